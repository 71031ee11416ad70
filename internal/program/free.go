package program

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/host"
)

const (
	// freeDelay is the time after the last of several builds.
	freeDelay = 2 * time.Second
	// collections is the number of collections after builds. What finalizers hold, as machine code, is
	// found by one and freed by the next. Each halves the stacks of goroutines that have built something.
	collections = 4
	// buildPercent is GOGC during builds. What a plugin keeps lies between what its build leaves behind,
	// so that afterwards the heap stays as large as it was before the last collection.
	buildPercent = 25
)

// FreeAfterBuilds returns an observer that gives memory back to the system after plugins were
// built, as compilations leave a hundred times what a plugin takes, and after the start.
func FreeAfterBuilds() host.Observer {
	f := new(freeing)
	f.timer = time.AfterFunc(freeDelay, f.free)
	return f
}

type freeing struct {
	timer *time.Timer

	mu sync.Mutex
	// building is set from the first of several builds, and percent is what GOGC was before it.
	building bool
	percent  int
}

// Built implements [host.Observer].
func (f *freeing) Built(context.Context, host.BuildEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.building && os.Getenv("GOGC") == "" {
		f.building, f.percent = true, debug.SetGCPercent(buildPercent)
	}
	f.timer.Reset(freeDelay)
}

func (f *freeing) free() {
	dropCode()
	debug.FreeOSMemory()
	touchChunks()
	for range collections {
		debug.FreeOSMemory()
		time.Sleep(freeDelay / 2)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.building {
		f.building = false
		debug.SetGCPercent(f.percent)
	}
}

// touchChunks allocates as much as Go's heap has free, in blocks of any free room, so that the next
// collection frees something in all parts of the heap. In a part where the scavenger in the background
// has found no free pages below the place where it began, FreeOSMemory finds none either until some are
// freed: it left up to 21 MB of 50. A Builder does not write to its memory, so that the blocks take none.
func touchChunks() {
	const (
		blockBytes = 40 << 10 // A page more than what has a size class.
		maxBlocks  = 8 << 10  // Go keeps 160 bytes for each.
	)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	// Blocks count for GOMEMLIMIT, near which Go would collect garbage without an end.
	room := max(debug.SetMemoryLimit(-1)-int64(m.Sys-m.HeapReleased), 0) / 2
	blocks := make([]strings.Builder, min(m.HeapIdle/blockBytes, uint64(room)/blockBytes, maxBlocks))
	for i := range blocks {
		blocks[i].Grow(blockBytes)
	}
	runtime.KeepAlive(blocks)
}

// Called implements [host.Observer].
func (*freeing) Called(context.Context, host.CallEvent) {}

// CacheHits implements [host.Observer].
func (*freeing) CacheHits(string, string, uint64) {}

// Refused implements [host.Observer].
func (*freeing) Refused(context.Context, string, error) {}

// Restarted implements [host.Observer].
func (*freeing) Restarted(string, bool) {}
