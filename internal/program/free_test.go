package program

import (
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
)

// TestTouchChunks has a heap in pieces give back its free memory: in some rounds FreeOSMemory alone leaves
// megabytes.
func TestTouchChunks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(25))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	kept := make([][]byte, 4000)
	free := func() int {
		debug.FreeOSMemory()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapIdle - m.HeapReleased)
	}
	most := 1<<20 + runtime.GOMAXPROCS(0)<<19 // Each processor has some free pages at hand.
	var alone, worst int
	for range 12 {
		for range 80_000 {
			kept[rand.IntN(len(kept))] = make([]byte, 1<<(10+rand.IntN(6)))
			if rand.IntN(200) == 0 {
				kept[0] = make([]byte, 2<<20)
			}
		}
		alone = max(alone, free())
		left := 0
		for range 20 { // The scavenger may come between, again and again where the machine is busy.
			touchChunks()
			if left = free(); left < most {
				break
			}
		}
		worst = max(worst, left)
	}
	runtime.KeepAlive(kept)
	t.Logf("FreeOSMemory leaves up to %d KB, and %d KB with touchChunks", alone>>10, worst>>10)
	if worst > most {
		t.Errorf("%d bytes are free and not given back, want at most %d", worst, most)
	}
}
