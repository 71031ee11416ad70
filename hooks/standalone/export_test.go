package standalone

import (
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
