package host_test

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// smaps adds up a field of the kernel's list of the process's mappings, in
// bytes.
func smaps(t testing.TB, field string) int {
	t.Helper()
	debug.FreeOSMemory()
	list, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^`+field+`: +(\d+) kB`).FindAllSubmatch(list, -1) {
		kb, err := strconv.Atoi(string(m[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += kb << 10
	}
	return sum
}

// mappings counts the process's mappings.
func mappings(t testing.TB) int {
	t.Helper()
	list, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(list, []byte("\n"))
}

// TestPrivateMemoryOfManyInstances looks at what 300 instances of a Go guest cost
// a process: their memory, and what wazero and this package have for each.
func TestPrivateMemoryOfManyInstances(t *testing.T) {
	t.Setenv("KUBEWASM_DEBUG", "") // As users have it.
	const instances = 300
	cfg := zone(t)
	cfg.Limits.Instances = instances + 1
	p := loadWith(t, cfg, false)
	first := acquire(t, p)
	defer first.Release()
	filter(t, first, 1)

	before := smaps(t, "Private_Dirty")
	all := make([]*host.Instance, instances)
	for i := range all {
		all[i] = acquire(t, p)
	}
	fresh := (smaps(t, "Private_Dirty") - before) / instances
	for _, inst := range all {
		filter(t, inst, 1)
	}
	called := (smaps(t, "Private_Dirty") - before) / instances
	for i, inst := range all {
		if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err == nil {
			t.Fatal("no trap")
		}
		inst.Release()
		all[i] = nil
	}
	for i := range all {
		all[i] = acquire(t, p)
	}
	reset := (smaps(t, "Private_Dirty") - before) / instances
	t.Logf("an instance has %d KiB of its own when it is new, %d after PreFilter and Filter, %d after a trap and a reset; its memory is %d KiB long",
		fresh>>10, called>>10, reset>>10, p.Stats().MemoryBytes>>10)
	for _, got := range []int{fresh, called, reset} {
		if got > 1<<20 {
			t.Errorf("an instance has %d bytes of its own", got)
		}
	}
	for _, inst := range all {
		inst.Release()
	}
}

// TestNothingLeaks holds that neither calls with resets nor swaps leave memory,
// mappings or goroutines: 100,000 calls and 200 swaps or, if KUBEWASM_LEAKS
// is set, 1,000,000 and 1,000.
func TestNothingLeaks(t *testing.T) {
	t.Setenv("KUBEWASM_DEBUG", "") // As users have it.
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := config("spins")
	cfg.Reset = host.ResetPerCall
	p, err := cfg.load(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	// Every hundredth call grows and traps.
	calls := func(n int) {
		for i := range n {
			inst := acquire(t, p)
			how := uint64(0)
			if i%100 == 0 {
				how = 8
			}
			if _, err := inst.Call(t.Context(), abi.Filter, 0, how, 0); (err != nil) != (how == 8) {
				t.Fatal(err)
			}
			inst.Release()
		}
	}
	swaps := func(n int) {
		for i := range n {
			if err := p.Swap(t.Context(), testdata([]string{"noop", "spins"}[i%2]), ""); err != nil {
				t.Fatal(err)
			}
			inst := acquire(t, p)
			if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
				t.Fatal(err)
			}
			inst.Release()
		}
		for p.Stats().Retired != 0 { // Closed in the background.
			debug.FreeOSMemory()
		}
	}
	calls(1000)
	swaps(20)
	nCalls, nSwaps := 100_000, 200
	if os.Getenv("KUBEWASM_LEAKS") != "" {
		nCalls, nSwaps = 1_000_000, 1_000
	}
	maps, memory, used, goroutines := mappings(t), smaps(t, "Private_Dirty"), rt.MemoryInUse(), runtime.NumGoroutine()
	calls(nCalls)
	swaps(nSwaps)
	moreMaps, moreMemory := mappings(t)-maps, smaps(t, "Private_Dirty")-memory
	t.Logf("after %d calls and %d swaps: %d mappings, %d before; %d KiB of private memory, %d before; %d goroutines, %d before",
		nCalls, nSwaps, maps+moreMaps, maps, (memory+moreMemory)>>10, memory>>10, runtime.NumGoroutine(), goroutines)
	waitForGoroutines(t, goroutines)
	// Go's heap and wazero's machine code come and go with mappings of their own.
	if moreMaps > 20 {
		t.Errorf("%d mappings more than before", moreMaps)
	}
	if moreMemory > 8<<20 {
		t.Errorf("%d bytes more than before", moreMemory)
	}
	if got := rt.MemoryInUse(); got != used {
		t.Errorf("%d bytes of linear memory are in use, before it was %d", got, used)
	}
	if err := rt.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := rt.MemoryInUse(); got != 0 {
		t.Errorf("%d bytes of linear memory are in use after the end", got)
	}
}
