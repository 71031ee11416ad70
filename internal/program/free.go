package program

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

// freeDelay is the time after the last of several builds.
const freeDelay = 2 * time.Second

// FreeAfterBuilds returns an observer that gives memory back to the system after plugins were
// built: compilations leave a hundred times what a plugin takes.
func FreeAfterBuilds() host.Observer {
	var f freeing
	f.timer = time.AfterFunc(time.Hour, func() {
		// What finalizers hold, as machine code, is found by one collection and freed by the next.
		debug.FreeOSMemory()
		time.AfterFunc(freeDelay, debug.FreeOSMemory)
	})
	f.timer.Stop()
	return f
}

type freeing struct{ timer *time.Timer }

// Built implements [host.Observer].
func (f freeing) Built(context.Context, host.BuildEvent) { f.timer.Reset(freeDelay) }

// Called implements [host.Observer].
func (freeing) Called(context.Context, host.CallEvent) {}

// CacheHits implements [host.Observer].
func (freeing) CacheHits(string, string, uint64) {}

// Refused implements [host.Observer].
func (freeing) Refused(context.Context, string, error) {}

// Restarted implements [host.Observer].
func (freeing) Restarted(string, bool) {}
