package standalone

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
)

// loop is the goroutine of a Reconciler that watches cgroups and enforces what was
// decided on them.
type loop struct {
	*Reconciler
	ctx     context.Context
	watcher *watcher
	// classes are the cgroups of the QoS classes.
	classes map[string]bool

	// dirty are the cgroups with an event that no pass has followed yet.
	dirty map[string]bool
	// quiet is when an event is followed by a pass at once again.
	quiet time.Time
	// known are the cgroups of what runs. unknown are those that have come since, with how many
	// rounds have not known them; sandboxes are those that are taken for a pod's sandbox.
	known, sandboxes map[string]bool
	unknown          map[string]int
	// unlimited are those without the quota that the spec of their pod has.
	unlimited map[string]bool
	// blocked is the obstacle that the log knows of, empty for none.
	blocked string
	// rediscover is how long to wait until Discovery may know the unknown ones, 0 while
	// it is asked; waited is how long the last wait was.
	rediscover, waited time.Duration
	pace               pace
	// owed is set while a round is wanted for which there was no token.
	owed bool
}

// A list of all pods costs a kubelet and the agent milliseconds for each hundred, so events ask for
// burst lists at once and one in each interval from then on: a pod alone is decided on as soon as it
// is listed, and a node on which pods come and go asks once a second.
const (
	burst    = 4
	interval = time.Second
)

// pace is a bucket of tokens for lists.
type pace struct {
	tokens float64
	at     time.Time
}

// take takes a token, or returns how long it takes until there is one.
func (p *pace) take(now time.Time) (wait time.Duration) {
	if !p.at.IsZero() {
		p.tokens = min(burst, p.tokens+float64(now.Sub(p.at))/float64(interval))
	}
	if p.at = now; p.tokens < 1 {
		return time.Duration((1 - p.tokens) * float64(interval))
	}
	p.tokens--
	return 0
}

// discover demands a round as soon as the pace allows one.
func (l *loop) discover() {
	if len(l.resync) != 0 {
		return // One is demanded, and has not begun.
	}
	if wait := l.pace.take(time.Now()); wait > 0 {
		l.owed, l.rediscover = true, max(l.rediscover, wait)
		return
	}
	l.owed = false
	l.demand()
}

func (l *loop) run() {
	beat := func() { l.beat.Store(int64(time.Since(epoch)) + 1) }
	beat()
	defer l.beat.Store(0)
	defer l.watches.Store(0)
	open := func() {
		if err := l.watcher.open(); err != nil {
			l.cfg.Logger.Warn("cannot watch cgroups; changes are found at the next resync", slog.Any("err", err))
		}
	}
	open()
	l.look()
	l.demand()
	resync := time.NewTicker(l.cfg.Resync)
	defer resync.Stop()
	settle, again, retry := stopped(), stopped(), stopped()
	for {
		beat()
		l.watches.Store(int64(len(l.watcher.watched)))
		l.unwatched.Store(l.watcher.full || l.watcher.inotify == nil)
		if next, ok := l.cfg.Enforcer.Next(); ok {
			retry.Reset(time.Until(next))
		}
		select {
		case <-l.ctx.Done():
			return
		case event := <-l.watcher.events:
			for more := true; more; {
				l.onEvent(event)
				select {
				case event = <-l.watcher.events:
				default:
					more = false
				}
			}
			if wait := time.Until(l.quiet); wait > 0 {
				settle.Reset(wait)
				continue
			}
			l.enforce(false)
		case <-settle.C:
			l.enforce(false)
		case err := <-l.watcher.errors:
			// After an overflow it is not known what was lost.
			l.cfg.Logger.Warn("events of cgroups were lost; looking at all of them", slog.Any("err", err))
			l.look()
			l.demand()
			l.enforce(true)
		case <-resync.C:
			open()
			l.look()
			l.demand()
			l.enforce(true)
		case <-again.C:
			l.discover()
		case <-retry.C:
			l.enforce(true)
		case o := <-l.synced:
			l.onSync(o)
			l.enforce(true)
		}
		l.Reconciler.unknown.Store(int64(len(l.unknown)))
		if (len(l.unknown) != 0 || l.owed) && l.rediscover != 0 {
			again.Reset(l.rediscover)
			l.rediscover = 0
		}
	}
}

// stopped returns a timer that does not run.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// onEvent follows an event of a directory or a file.
func (l *loop) onEvent(event fsnotify.Event) {
	own, watched := l.watcher.watched[event.Name]
	above, ok := l.watcher.watched[filepath.Dir(event.Name)]
	cgroup := own.cgroup
	if !watched {
		cgroup = path.Join(above.cgroup, filepath.Base(event.Name)) // Or a file.
	}
	switch {
	case !watched && !ok:
	case event.Has(fsnotify.Write) && !watched:
		if filepath.Base(event.Name) == "cgroup.subtree_control" {
			l.onControllers(above.cgroup)
			return
		}
		l.dirty[above.cgroup] = true
		if name := filepath.Base(event.Name); l.unlimited[above.cgroup] && (name == "cpu.cfs_quota_us" || name == "cpu.max") {
			l.rewrittenMu.Lock()
			l.rewritten[above.cgroup] = true
			l.rewrittenMu.Unlock()
			l.discover() // It has the kubelet's quota now.
		}
	case event.Has(fsnotify.Create) && !watched:
		// cgroupfs makes files with their directory: what is created later is a
		// cgroup.
		if info, err := os.Lstat(event.Name); err != nil || !info.IsDir() {
			return
		}
		l.cfg.Enforcer.Forget(cgroup)
		l.onCgroup(cgroup, false)
	case event.Has(fsnotify.Remove | fsnotify.Rename):
		if watched && own.current(event.Name) {
			return // It was another of that path.
		}
		l.watcher.removed(event.Name)
		l.forget(cgroup)
	}
}

// forget drops what is known of a cgroup that is gone.
func (l *loop) forget(cgroup string) {
	l.cfg.Enforcer.Forget(cgroup)
	delete(l.unknown, cgroup)
	delete(l.sandboxes, cgroup)
}

// onControllers follows the cgroups in one that turns controllers on or off for them, with
// their files: on cgroup v2, the kubelet and systemd do. No event tells of the files.
func (l *loop) onControllers(above string) {
	for _, w := range l.watcher.watched {
		if path.Dir(w.cgroup) == above {
			l.cfg.Enforcer.Forget(w.cgroup)
			l.dirty[w.cgroup] = true
		}
	}
}

// look follows the cgroups that are there, whatever the events were.
func (l *loop) look() {
	for _, cgroup := range l.watcher.sweep() {
		l.forget(cgroup)
	}
	// Of one that is not watched, no event tells that it is gone.
	maps.DeleteFunc(l.sandboxes, func(cgroup string, _ bool) bool { return !l.cfg.Enforcer.Applier().Exists(cgroup) })
	for class := range l.classes {
		l.onCgroup(class, true)
	}
}

// onCgroup follows a cgroup that is there, and those in it: if it was not watched before, or
// if list is set. If nothing is known of it, Discovery is asked: now, and soon again.
//
// A pod's or a container's cgroup lies right in that of a QoS class, or in one that
// does. What a container makes in its own is not decided on, and would cost watches and
// rounds of discovery as fast as it makes them.
func (l *loop) onCgroup(cgroup string, list bool) {
	above := path.Dir(cgroup)
	switch {
	case l.classes[above] || l.classes[path.Dir(above)]:
		l.dirty[cgroup] = true
		if _, decided := l.cfg.State.Get(cgroup); !l.known[cgroup] && !decided && !l.sandboxes[cgroup] {
			if _, ok := l.unknown[cgroup]; !ok {
				l.unknown[cgroup] = 0
				l.rediscover, l.waited = l.cfg.Rediscover, 0
				l.discover()
			}
		}
	case !l.classes[cgroup]:
		return
	}
	children, err := l.watcher.add(cgroup, list)
	if err != nil {
		l.cfg.Logger.Warn("cannot watch all cgroups; changes are found at the next resync", slog.String("cgroup", cgroup), slog.Any("err", err))
	}
	for _, child := range children {
		l.onCgroup(child, list)
	}
}

// onSync follows a round of decisions.
func (l *loop) onSync(o outcome) {
	if o.err != nil && l.ctx.Err() == nil {
		l.cfg.Logger.Warn("reconcile", slog.Any("err", o.err))
	}
	switch was := l.blocked; {
	case o.obstacle != nil && o.obstacle.Error() != was:
		l.blocked = o.obstacle.Error()
		l.cfg.Logger.Error("what the plugins decide is not in force", slog.Any("err", o.obstacle))
	case o.obstacle == nil && o.err == nil && was != "":
		l.blocked = ""
		l.cfg.Logger.Info("what the plugins decide is in force again")
	}
	l.unlimited = make(map[string]bool, len(o.unlimited))
	for _, cgroup := range o.unlimited {
		l.unlimited[cgroup] = true
	}
	l.known = make(map[string]bool, len(o.cgroups))
	for _, cgroup := range o.cgroups {
		l.known[cgroup] = true
		delete(l.unknown, cgroup)
	}
	for _, cgroup := range o.cgroups {
		l.onCgroup(cgroup, false)
	}
	maps.DeleteFunc(l.unknown, func(cgroup string, _ int) bool { return !l.cfg.Enforcer.Applier().Exists(cgroup) })
	maps.DeleteFunc(l.sandboxes, func(cgroup string, _ bool) bool { return l.known[cgroup] })
	l.findSandboxes()
	if len(l.unknown) == 0 {
		l.rediscover, l.waited = l.cfg.Rediscover, 0
		return
	}
	l.waited = min(max(2*l.waited, l.cfg.Rediscover), l.cfg.Resync)
	l.rediscover = l.waited
}

// looks is how many rounds must not know a cgroup before it is taken for a sandbox.
const looks = 2

// findSandboxes stops asking about the cgroup of a pod's sandbox, which no list of pods names: the
// only one in the cgroup of a pod that is listed, beside those of containers that are. A container
// that has just been made is a second one, and is asked about until it is listed.
func (l *loop) findSandboxes() {
	named, unnamed := map[string]bool{}, map[string]int{}
	for cgroup := range l.known {
		named[path.Dir(cgroup)] = true
	}
	for cgroup := range l.unknown {
		l.unknown[cgroup]++
		unnamed[path.Dir(cgroup)]++
	}
	for cgroup := range l.sandboxes {
		unnamed[path.Dir(cgroup)]++
	}
	for cgroup, rounds := range l.unknown {
		pod := path.Dir(cgroup)
		if rounds >= looks && !l.classes[pod] && l.known[pod] && named[pod] && unnamed[pod] == 1 {
			delete(l.unknown, cgroup)
			l.sandboxes[cgroup] = true
		}
	}
}

// enforce enforces the cgroups with an event, or all.
func (l *loop) enforce(all bool) {
	var cgroups []string
	if !all {
		if cgroups = slices.Collect(maps.Keys(l.dirty)); len(cgroups) == 0 {
			return
		}
	}
	clear(l.dirty)
	l.cfg.Enforcer.Enforce(l.ctx, cgroups...)
	if !all {
		l.quiet = time.Now().Add(l.cfg.Debounce)
	}
}
