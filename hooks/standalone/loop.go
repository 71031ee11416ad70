package standalone

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// loop is the goroutine of a Reconciler that watches cgroups and enforces what was
// decided on them.
type loop struct {
	*Reconciler
	ctx     context.Context
	watcher *watcher

	// dirty are the cgroups with an event that no pass has followed yet.
	dirty map[string]bool
	// quiet is when an event is followed by a pass at once again.
	quiet time.Time
	// known are the cgroups of what runs, unknown those that have come since.
	known, unknown map[string]bool
	// rediscover is how long to wait until Discovery may know the unknown ones, 0 while
	// it is asked; waited is how long the last wait was.
	rediscover, waited time.Duration
}

func (l *loop) run() {
	beat := func() { l.beat.Store(time.Now().UnixNano()) }
	beat()
	defer l.beat.Store(0)
	open := func() {
		if err := l.watcher.open(); err != nil {
			l.cfg.Logger.Warn("cannot watch cgroups; changes are found at the next resync", slog.Any("err", err))
		}
	}
	open()
	for class := hookmsg.QOSGuaranteed; class <= hookmsg.QOSBestEffort; class++ {
		l.watch(l.cfg.Layout.QOS(class))
	}
	l.demand()
	resync := time.NewTicker(l.cfg.Resync)
	defer resync.Stop()
	settle, again, retry := stopped(), stopped(), stopped()
	for {
		beat()
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
			l.enforceDirty()
		case <-settle.C:
			l.enforceDirty()
		case err := <-l.watcher.errors:
			// After an overflow it is not known what was lost.
			l.cfg.Logger.Warn("events of cgroups were lost; looking at all of them", slog.Any("err", err))
			l.demand()
			l.enforceAll()
		case <-resync.C:
			open()
			l.demand()
			l.enforceAll()
		case <-again.C:
			l.demand()
		case <-retry.C:
			l.enforceAll()
		case o := <-l.synced:
			l.onSync(o)
			l.enforceAll()
		}
		if len(l.unknown) != 0 && l.rediscover != 0 {
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

// watch watches a cgroup and those in it.
func (l *loop) watch(cgroup string) {
	children, err := l.watcher.add(cgroup)
	if err != nil {
		l.cfg.Logger.Warn("cannot watch all cgroups; changes are found at the next resync", slog.String("cgroup", cgroup), slog.Any("err", err))
	}
	for _, child := range children {
		l.onCgroup(child)
	}
}

// onEvent follows an event of a directory or a file.
func (l *loop) onEvent(event fsnotify.Event) {
	cgroup, name := l.watcher.locate(event.Name)
	child := path.Join(cgroup, name)
	switch {
	case cgroup == "":
	case event.Has(fsnotify.Write) && name != "":
		l.dirty[cgroup] = true
	case event.Has(fsnotify.Create) && name != "":
		// cgroupfs makes files with their directory: what is created later is a
		// cgroup.
		if info, err := os.Lstat(event.Name); err != nil || !info.IsDir() {
			return
		}
		l.cfg.Enforcer.Forget(child)
		l.onCgroup(child)
	case event.Has(fsnotify.Remove | fsnotify.Rename):
		l.watcher.removed(event.Name)
		l.cfg.Enforcer.Forget(child)
		delete(l.unknown, child)
	}
}

// onCgroup follows a cgroup that is there. If nothing is known of it, Discovery is
// asked: now, and soon again.
//
// A pod's or a container's cgroup lies right in that of a QoS class, or in one that
// does. What a container makes in its own is not decided on, and would cost watches and
// rounds of discovery as fast as it makes them.
func (l *loop) onCgroup(cgroup string) {
	ours := false
	for class := hookmsg.QOSGuaranteed; class <= hookmsg.QOSBestEffort; class++ {
		above := l.cfg.Layout.QOS(class)
		ours = ours || path.Dir(cgroup) == above || path.Dir(path.Dir(cgroup)) == above
	}
	if !ours {
		return
	}
	l.dirty[cgroup] = true
	if _, decided := l.cfg.State.Get(cgroup); !l.known[cgroup] && !decided && !l.unknown[cgroup] {
		l.unknown[cgroup] = true
		l.rediscover, l.waited = l.cfg.Rediscover, 0
		l.demand()
	}
	l.watch(cgroup)
}

// onSync follows a round of decisions.
func (l *loop) onSync(o outcome) {
	if o.err != nil && l.ctx.Err() == nil {
		l.cfg.Logger.Warn("reconcile", slog.Any("err", o.err))
	}
	l.known = make(map[string]bool, len(o.cgroups))
	for _, cgroup := range o.cgroups {
		l.known[cgroup] = true
		delete(l.unknown, cgroup)
		l.watch(cgroup)
	}
	maps.DeleteFunc(l.unknown, func(cgroup string, _ bool) bool { return !l.cfg.Enforcer.Applier().Exists(cgroup) })
	if len(l.unknown) == 0 {
		l.rediscover, l.waited = l.cfg.Rediscover, 0
		return
	}
	l.waited = min(max(2*l.waited, l.cfg.Rediscover), l.cfg.Resync)
	l.rediscover = l.waited
}

// enforceDirty enforces the cgroups with an event.
func (l *loop) enforceDirty() {
	if len(l.dirty) == 0 {
		return
	}
	l.cfg.Enforcer.Enforce(l.ctx, slices.Collect(maps.Keys(l.dirty))...)
	clear(l.dirty)
	l.quiet = time.Now().Add(l.cfg.Debounce)
}

// enforceAll enforces all cgroups.
func (l *loop) enforceAll() {
	clear(l.dirty)
	l.cfg.Enforcer.Enforce(l.ctx)
}
