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
	for range collections {
		touchChunks()
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

// touchChunks allocates what Go's heap has free, in blocks of any free room, so that the next collection
// frees something in all parts of the heap. In a part where the scavenger in the background has found no
// free pages below the place where it began, FreeOSMemory finds none either until some are freed: it left
// up to 21 MB of 50. On a busy machine the scavenger may come between again. A Builder does not write to
// its memory, so that the blocks take none.
func touchChunks() {
	const (
		leftBytes = 1 << 20 // What is less stays.
		maxBlocks = 8 << 10 // Go keeps 160 bytes for each.
	)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapIdle-m.HeapReleased < leftBytes {
		return
	}
	// Blocks count for GOMEMLIMIT, near which Go would collect garbage without an end.
	room := max(debug.SetMemoryLimit(-1)-int64(m.Sys-m.HeapReleased), 0) / 2
	blocks := make([]strings.Builder, 0, maxBlocks)
	for _, size := range []int{1 << 20, 40 << 10} { // The smaller one is a page more than what has a size class.
		// Until the heap had to grow for one, which is looked up after each megabyte.
		for most := m.HeapSys + 1<<20; m.HeapSys < most && len(blocks) < maxBlocks && room >= 1<<20; runtime.ReadMemStats(&m) {
			for range min(1<<20/size, maxBlocks-len(blocks)) {
				blocks = append(blocks, strings.Builder{})
				blocks[len(blocks)-1].Grow(size)
				room -= int64(size)
			}
		}
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
