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

// loop is the goroutine of a Reconciler that watches cgroups and enforces the decisions on them.
type loop struct {
	*Reconciler
	ctx     context.Context
	watcher *watcher
	// classes are the cgroups of the QoS classes.
	classes map[string]bool

	// dirty are the cgroups with an event that no pass has processed yet.
	dirty map[string]bool
	// quiet is the time from which an event triggers a pass immediately again.
	quiet time.Time
	// known are the cgroups of running pods and containers. unknown are newer cgroups, with the time
	// of the first of the last rounds that have found them like a sandbox, zero for others.
	// sandboxes are cgroups taken for those of pods' sandboxes.
	known, sandboxes map[string]bool
	unknown          map[string]time.Time
	// unlimited are the cgroups without the quota in the spec of their pod.
	unlimited map[string]bool
	// blocked is the obstacle that was logged, empty for none.
	blocked string
	// rediscover is the time until Discovery may list the unknown cgroups, 0 while it is asked.
	// waited is the length of the last wait.
	rediscover, waited time.Duration
	pace               pace
	// owed is set while a round is needed for which there was no token.
	owed bool
}

// Limits of lists of all pods, which cost a kubelet and the agent milliseconds for each hundred
// pods. Events trigger at most burst lists at once, and then one in each interval. So a single pod
// is decided on as soon as it is listed, and a node with many changes lists pods less than once a
// second: with a new pod each second, there is at most one list for each, those of starts included.
const (
	burst    = 4
	interval = 1250 * time.Millisecond
)

// pace is a bucket of tokens for lists.
type pace struct {
	tokens float64
	at     time.Time
}

// take takes a token, or returns the time until one is available.
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
		return // A round is already requested and has not begun.
	}
	if wait := l.pace.take(time.Now()); wait > 0 {
		l.owed, l.rediscover = true, wait
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
			l.cfg.Logger.Warn("cannot watch cgroups; the next resync finds changes", slog.Any("err", err))
		}
	}
	open()
	l.look()
	l.demand()
	resync := time.NewTimer(l.cfg.Resync)
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
			// After an overflow, the lost events are unknown.
			l.cfg.Logger.Warn("events of cgroups were lost; checking all cgroups", slog.Any("err", err))
			l.look()
			l.demand()
			l.enforce(true)
		case <-resync.C:
			open()
			l.look()
			due := l.untilResync(time.Now())
			if due == 0 {
				l.demand()
				due = l.cfg.Resync
			}
			resync.Reset(due)
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

// untilResync returns the time until Discovery is asked at the latest, 0 if that is now: each of
// its answers takes the place of a resync for Config.Resync.
func (l *loop) untilResync(now time.Time) time.Duration {
	listed := l.listed.Load()
	if listed == 0 {
		return 0
	}
	return max(time.Duration(listed)+l.cfg.Resync-now.Sub(epoch), 0)
}

// stopped returns a stopped timer.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// onEvent processes an event of a directory or a file.
func (l *loop) onEvent(event fsnotify.Event) {
	own, watched := l.watcher.watched[event.Name]
	above, ok := l.watcher.watched[filepath.Dir(event.Name)]
	cgroup := own.cgroup
	if !watched {
		cgroup = path.Join(above.cgroup, filepath.Base(event.Name)) // May also be a file.
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
			l.onQuota(above.cgroup)
		}
	case event.Has(fsnotify.Create) && !watched:
		// cgroupfs creates files together with their directory, so anything created later is a
		// cgroup.
		if info, err := os.Lstat(event.Name); err != nil || !info.IsDir() {
			return
		}
		l.cfg.Enforcer.Forget(cgroup)
		l.onCgroup(cgroup, false)
	case event.Has(fsnotify.Remove | fsnotify.Rename):
		if watched && own.current(event.Name) {
			return // The removed cgroup was an earlier one of that path.
		}
		l.watcher.removed(event.Name)
		l.forget(cgroup)
	}
}

// onQuota demands a round that looks at a cgroup again, which now has the kubelet's quota.
func (l *loop) onQuota(cgroup string) {
	l.rewrittenMu.Lock()
	l.rewritten[cgroup] = true
	l.rewrittenMu.Unlock()
	l.discover()
}

// forget drops the state of a cgroup that is gone.
func (l *loop) forget(cgroup string) {
	l.cfg.Enforcer.Forget(cgroup)
	delete(l.unknown, cgroup)
	delete(l.sandboxes, cgroup)
}

// onControllers examines the cgroups below one that turns controllers on or off for them, which
// creates or removes their files. On cgroup v2, the kubelet and systemd do that. No event reports
// the files.
func (l *loop) onControllers(above string) {
	for _, w := range l.watcher.watched {
		if path.Dir(w.cgroup) == above {
			l.cfg.Enforcer.Forget(w.cgroup)
			l.dirty[w.cgroup] = true
		}
	}
}

// look examines all existing cgroups, regardless of events.
func (l *loop) look() {
	for _, cgroup := range l.watcher.sweep() {
		l.forget(cgroup)
	}
	// No event reports the end of a cgroup that is not watched.
	maps.DeleteFunc(l.sandboxes, func(cgroup string, _ bool) bool { return !l.cfg.Enforcer.Applier().Exists(cgroup) })
	for class := range l.classes {
		l.onCgroup(class, true)
	}
}

// onCgroup examines an existing cgroup. It also examines those in it, if the cgroup was not watched
// before, or if list is set. If the cgroup is unknown, it asks Discovery: now, and soon again.
//
// A pod's or a container's cgroup is a child or grandchild of that of a QoS class. Cgroups that a
// container creates below its cgroup are not decided on, since each would cost watches and rounds
// of discovery.
func (l *loop) onCgroup(cgroup string, list bool) {
	above := path.Dir(cgroup)
	switch {
	case l.classes[above] || l.classes[path.Dir(above)]:
		l.dirty[cgroup] = true
		if _, decided := l.cfg.State.Get(cgroup); !l.known[cgroup] && !decided && !l.sandboxes[cgroup] {
			if _, ok := l.unknown[cgroup]; !ok {
				l.unknown[cgroup] = time.Time{}
				l.rediscover, l.waited = l.cfg.Rediscover, 0
				l.discover()
			}
		}
	case !l.classes[cgroup]:
		return
	}
	children, err := l.watcher.add(cgroup, list)
	if err != nil {
		l.cfg.Logger.Warn("cannot watch all cgroups; the next resync finds changes", slog.String("cgroup", cgroup), slog.Any("err", err))
	}
	for _, child := range children {
		l.onCgroup(child, list)
	}
}

// onSync processes the result of a round of decisions.
func (l *loop) onSync(o outcome) {
	if o.err != nil && l.ctx.Err() == nil {
		l.cfg.Logger.Warn("reconcile", slog.Any("err", o.err))
	}
	switch was := l.blocked; {
	case o.obstacle != nil && o.obstacle.Error() != was:
		l.blocked = o.obstacle.Error()
		l.cfg.Logger.Error("decisions of the plugins are not in force", slog.Any("err", o.obstacle))
	case o.obstacle == nil && o.err == nil && was != "":
		l.blocked = ""
		l.cfg.Logger.Info("decisions of the plugins are in force again")
	}
	unlimited := l.unlimited
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
	for _, cgroup := range o.unlimited {
		// The kubelet may have written a quota since the round looked at the cgroup, and before it was
		// watched or its events were known to matter.
		if !unlimited[cgroup] {
			if found := l.cfg.Enforcer.Applier().Limits(cgroup); found.CFSQuotaUS != nil && *found.CFSQuotaUS >= 0 {
				l.onQuota(cgroup)
			}
		}
	}
	maps.DeleteFunc(l.unknown, func(cgroup string, _ time.Time) bool { return !l.cfg.Enforcer.Applier().Exists(cgroup) })
	maps.DeleteFunc(l.sandboxes, func(cgroup string, _ bool) bool { return l.known[cgroup] })
	asks := l.findSandboxes(time.Now())
	switch {
	case len(l.unknown) == 0:
		l.rediscover, l.waited = l.cfg.Rediscover, 0
	case asks > 0:
		l.rediscover, l.waited = asks, 0
	default:
		l.waited = min(max(2*l.waited, l.cfg.Rediscover), l.cfg.Resync)
		l.rediscover = l.waited
	}
}

// sandboxWait times Config.Rediscover is the time for which a cgroup is unlisted before it is taken
// for a sandbox. By default that is 3.2 s, within which a kubelet lists a container.
const sandboxWait = 64

// findSandboxes stops asking about the cgroup of a pod's sandbox, which no list of pods names. It
// is the only unlisted cgroup in the cgroup of a listed pod with listed containers. A container
// that has just been created is a second one, and is asked about until it is listed. It is the
// only one as well if the runtime has no sandboxes, so the list is read again before a cgroup is
// taken for one.
//
// It returns the time after which to read the list if all unknown cgroups may be sandboxes, and 0
// otherwise.
func (l *loop) findSandboxes(now time.Time) (after time.Duration) {
	named, unnamed := map[string]bool{}, map[string]int{}
	for cgroup := range l.known {
		named[path.Dir(cgroup)] = true
	}
	for cgroup := range l.unknown {
		unnamed[path.Dir(cgroup)]++
	}
	for cgroup := range l.sandboxes {
		unnamed[path.Dir(cgroup)]++
	}
	wait, others := min(sandboxWait*l.cfg.Rediscover, l.cfg.Resync), false
	after = wait
	for cgroup, since := range l.unknown {
		pod := path.Dir(cgroup)
		switch like := !l.classes[pod] && l.known[pod] && named[pod] && unnamed[pod] == 1; {
		case !like:
			l.unknown[cgroup], others = time.Time{}, true
		case since.IsZero():
			l.unknown[cgroup] = now
		case now.Sub(since) >= wait:
			delete(l.unknown, cgroup)
			l.sandboxes[cgroup] = true
		default:
			after = min(after, wait-now.Sub(since))
		}
	}
	if others {
		return 0
	}
	return after
}

// enforce enforces the cgroups with an event, or all cgroups.
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
