package standalone

import (
	"io"
	"time"

	"github.com/fsnotify/fsnotify"
)

// RefuseInotify makes the kernel seem to have no room for another instance, until
// restore is called.
func RefuseInotify(err error) (restore func()) {
	newInotify = func(uint) (*fsnotify.Watcher, error) { return nil, err }
	return func() { newInotify = fsnotify.NewBufferedWatcher }
}

// HealthyAt and ReadyAt are Healthy and Ready at another time.
func (r *Reconciler) HealthyAt(now time.Time) error { return r.healthy(now) }
func (r *Reconciler) ReadyAt(now time.Time) error   { return r.ready(now) }

// Unknown returns the number of cgroups of which it is asked again what they are.
func (r *Reconciler) Unknown() int64 { return r.unknown.Load() }

// PodList is one that is read for each list.
type PodList struct{ list podList }

// Read reads a list, and returns the number of pods that were decoded for it.
func (l *PodList) Read(r io.Reader) (pods []Pod, decoded int, err error) {
	before := l.list.decoded
	pods, err = l.list.read(r)
	return pods, l.list.decoded - before, err
}

// Looks returns how often cgroups were looked at again that have no quota.
func (r *Reconciler) Looks() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.looked {
		n += l.times
	}
	return n
}

// ResyncsIn returns the time until Discovery is asked at the latest if its last answer is as old.
func (r *Reconciler) ResyncsIn(age time.Duration) time.Duration {
	now := epoch.Add(time.Hour)
	r.listed.Store(int64(now.Sub(epoch) - age))
	return (&loop{Reconciler: r}).untilResync(now)
}
