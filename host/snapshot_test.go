package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

const page = 64 << 10

// eachMemory runs a test with the system's help and without.
func eachMemory(t *testing.T, run func(t *testing.T, plain bool)) {
	for name, plain := range memories {
		t.Run(name, func(t *testing.T) { run(t, plain) })
	}
}

// TestResetGivesTheMemoryOfTheStart lets a host function write into all of a
// guest's memory, as a guest may.
func TestResetGivesTheMemoryOfTheStart(t *testing.T) {
	eachMemory(t, func(t *testing.T, plain bool) {
		cfg := config("waits")
		cfg.Reset = host.ResetPerCall
		cfg.Limits.Instances = 1
		var seen []byte
		write := func([]byte) {}
		cfg.Imports = []host.Import{{
			Module: "test", Name: "wait", Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				memory := inst.Read(0, page)
				seen = bytes.Clone(memory)
				write(memory)
				stack[0] = 0
			},
		}}
		p := loadWith(t, cfg, plain)
		start := make([]byte, page)
		for name, w := range map[string]func([]byte){
			"nothing":     func([]byte) {},
			"one byte":    func(b []byte) { b[70]++ },
			"both ends":   func(b []byte) { b[0]++; b[page-1]++ },
			"across":      func(b []byte) { copy(b[4090:], "written across") },
			"all of it":   func(b []byte) { copy(b, bytes.Repeat([]byte{1}, page)) },
			"a page less": func(b []byte) { copy(b, bytes.Repeat([]byte{1}, page-4096)) },
		} {
			t.Run(name, func(t *testing.T) {
				for range 3 {
					write = w
					inst := acquire(t, p)
					if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
						t.Fatal(err)
					}
					inst.Release()
					if !bytes.Equal(seen, start) {
						t.Error("the guest finds what an earlier call left")
					}
				}
			})
		}
	})
}

// restarts counts what an observer is told of resets.
type restarts struct {
	host.Observer
	reset, discarded atomic.Int64
}

func (r *restarts) Called(context.Context, host.CallEvent) {}
func (r *restarts) Refused(context.Context, string, error) {}
func (r *restarts) Built(context.Context, host.BuildEvent) {}
func (r *restarts) Restarted(_ string, discarded bool) {
	if discarded {
		r.discarded.Add(1)
	} else {
		r.reset.Add(1)
	}
}

// TestResetAfterGrowth holds that memory which has grown shrinks, and that only
// what has reached its limit is thrown away.
func TestResetAfterGrowth(t *testing.T) {
	tests := map[string]struct {
		pages     uint64 // Of the limit.
		reset     int64
		discarded int64
	}{
		"below the limit": {pages: 3, reset: 4},
		"at the limit":    {pages: 2, discarded: 4},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachMemory(t, func(t *testing.T, plain bool) {
				rt := newRuntime(t)
				if plain {
					rt.UsePlainMemory()
				}
				observer := &restarts{}
				cfg := config("spins")
				cfg.Limits.Instances = 1
				cfg.Limits.MemoryBytes = test.pages * page
				cfg.Observer = observer
				p, err := cfg.load(t.Context(), rt)
				if err != nil {
					t.Fatal(err)
				}
				snapshot := rt.MemoryInUse() - page // It is empty, if pages of zeros need not be stored.
				if plain && snapshot != page || snapshot > page {
					t.Errorf("the snapshot counts %d bytes", snapshot)
				}
				for range 4 {
					inst := acquire(t, p)
					if used := rt.MemoryInUse(); used != page+snapshot {
						t.Errorf("%d bytes are in use, want a page and the snapshot", used)
					}
					if got, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil || got != 0x10001 {
						t.Errorf("the guest counts %#x, error %v", got, err)
					}
					if _, err := inst.Call(t.Context(), abi.Filter, 0, 8, 0); err == nil {
						t.Error("no trap")
					}
					if used := rt.MemoryInUse(); used != 2*page+snapshot {
						t.Errorf("%d bytes are in use, want two pages and the snapshot", used)
					}
					inst.Release()
				}
				if got := observer.reset.Load(); got != test.reset {
					t.Errorf("%d resets, want %d", got, test.reset)
				}
				if got := observer.discarded.Load(); got != test.discarded {
					t.Errorf("%d discarded, want %d", got, test.discarded)
				}
				if err := p.Close(t.Context()); err != nil {
					t.Fatal(err)
				}
				if used := rt.MemoryInUse(); used != 0 {
					t.Errorf("%d bytes are in use after the end", used)
				}
			})
		})
	}
}

// TestResetGrown holds which calls find the memory of the snapshot, of 40 that grow it.
func TestResetGrown(t *testing.T) {
	for _, test := range []struct {
		name   string
		grown  bool
		reset  host.ResetPolicy
		held   bool
		beside int    // The number of other instances.
		pages  uint64 // By which each call grows, or each second one.
		second bool
		want   []int
	}{
		{name: "by 64 KiB in two", grown: true, pages: 1, second: true, want: []int{0, 32}},
		{name: "by 64 KiB in two, beside 7 instances", grown: true, beside: 7, pages: 1, second: true, want: []int{0, 32}},
		{name: "by 64 KiB in two, beside 31 instances", grown: true, beside: 31, pages: 1, second: true, want: []int{0, 16, 32}},
		{name: "by 192 KiB each", grown: true, pages: 3, want: []int{0, 16, 32}},
		{name: "to the limit", grown: true, pages: 20, want: []int{0, 16, 32}},
		{name: "until it cannot", grown: true, pages: 22, want: []int{0, 16, 32}},
		{name: "not at all", grown: true, want: []int{0}},
		{name: "for an adapter that needs what earlier calls left", pages: 1, want: []int{0}},
		{name: "beside very many instances", grown: true, beside: 64, pages: 1, want: []int{0, 16, 32}},
		{name: "a hold", grown: true, held: true, pages: 1, want: []int{0}},
		{name: "never reset", grown: true, reset: host.ResetNever, pages: 1, want: []int{0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachMemory(t, func(t *testing.T, plain bool) {
				rt := newRuntime(t)
				if plain {
					rt.UsePlainMemory()
				}
				observer := &restarts{}
				cfg := config("growsby")
				cfg.Limits.Instances, cfg.Limits.MemoryBytes = 1, 200*page
				cfg.Reset, cfg.Observer = test.reset, observer
				cfg.Adapter.ResetGrown = test.grown
				p, err := cfg.load(t.Context(), rt)
				if err != nil {
					t.Fatal(err)
				}
				if test.beside > 0 {
					others := cfg
					others.Observer, others.Limits.Instances = nil, test.beside
					q, err := others.load(t.Context(), rt)
					if err != nil {
						t.Fatal(err)
					}
					for range test.beside {
						defer acquire(t, q).Release()
					}
				}
				before := rt.MemoryInUse()
				acquire := func() *host.Instance { return acquire(t, p) }
				if test.held {
					h := hold(t, p)
					defer h.Release()
					acquire = func() *host.Instance { return acquireHeld(t, h) }
				}
				var got []int
				for n := range 40 {
					inst := acquire()
					pages := test.pages
					if test.second && n%2 == 0 {
						pages = 0
					}
					calls, err := inst.Call(t.Context(), abi.Filter, 0, 0, pages)
					if err != nil {
						t.Fatal(err)
					}
					inst.Release()
					if calls == 1 {
						got = append(got, n)
					}
					if used := rt.MemoryInUse(); slices.Contains(test.want, n+1) && used > before {
						t.Errorf("%d bytes are in use after %d calls, %d before", used, n+1, before)
					}
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("calls that began anew (-want +got):\n%s", diff)
				}
				if n := observer.reset.Load() + observer.discarded.Load(); n != 0 {
					t.Errorf("the observer was told of %d resets, want none: they are no faults", n)
				}
			})
		})
	}
}

// TestForeignGuestsKeepTheirMemory holds that Adapter.ResetGrown is not for guests of another
// ABI: one of OPA has the objects of a cluster there.
func TestForeignGuestsKeepTheirMemory(t *testing.T) {
	i32 := []abi.ValueType{abi.I32}
	cfg := config("foreigngrows")
	cfg.Adapter.ResetGrown = true
	cfg.Dialects = []host.Dialect{{
		Name:    "grows",
		Detect:  func(m *host.Module) bool { return m.Export("grow") != "" },
		Exports: []host.Export{{Name: "grow", Params: i32, Results: i32}},
	}}
	p := load(t, cfg)
	for want := range uint64(40) {
		inst := acquire(t, p)
		got, err := inst.Dialect().CallExport(t.Context(), 0, 16)
		if err != nil || got != want+1 {
			t.Fatalf("call %d is number %d of the instance, error %v", want+1, got, err)
		}
		inst.Release()
	}
}

// countRefused counts callers that got no instance.
type countRefused struct{ n atomic.Int32 }

func (*countRefused) Called(context.Context, host.CallEvent)         {}
func (*countRefused) Built(context.Context, host.BuildEvent)         {}
func (*countRefused) Restarted(string, bool)                         {}
func (c *countRefused) Refused(_ context.Context, _ string, _ error) { c.n.Add(1) }

// TestMemoryOfAllPlugins holds the limit that plugins share.
func TestMemoryOfAllPlugins(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{MemoryBytes: 10 * page})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	var refused countRefused
	load := func(name string) *host.Plugin {
		t.Helper()
		cfg := config(name)
		cfg.Observer = &refused
		p, err := cfg.load(t.Context(), rt)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	small, grows := load("noop"), load("grows")
	inUse := rt.MemoryInUse()

	inst := acquire(t, grows)
	pages, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := pages*page, 10*page-inUse+page; got != want || rt.MemoryInUse() != 10*page {
		t.Errorf("the guest got %d bytes of %d, %d are in use", got, want, rt.MemoryInUse())
	}

	// Nothing is left: no instance, no plugin.
	pin := small.Pin()
	defer pin.Release()
	for name, take := range map[string]func(context.Context) (*host.Instance, error){"plugin": small.Acquire, "pin": func(ctx context.Context) (*host.Instance, error) { return pin.Acquire(ctx, nil) }} {
		first := acquire(t, small)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		before := refused.n.Load()
		_, err = take(ended)
		if !errors.Is(err, host.ErrMemory) || !errors.Is(err, host.ErrSaturated) || !strings.Contains(err.Error(), "655360 of 655360 in use") {
			t.Errorf("%s: got %v", name, err)
		}
		if n := refused.n.Load() - before; n != 1 {
			t.Errorf("%s: the observer was told of %d refusals, want 1", name, n)
		}
		// But another instance of the plugin is in use, and waited for.
		waited := make(chan error)
		go func() {
			inst, err := take(t.Context())
			if err == nil {
				inst.Release()
			}
			waited <- err
		}()
		for small.Stats().Waiting == 0 {
			runtime.Gosched()
		}
		first.Release()
		if err := <-waited; err != nil {
			t.Errorf("%s: a caller that waited: %v", name, err)
		}
	}
	first := acquire(t, small)
	if _, err := config("good").load(t.Context(), rt); !errors.Is(err, host.ErrMemory) {
		t.Errorf("got %v", err)
	}
	first.Release()

	inst.Release()
	if err := grows.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	load("good")
	a, b := acquire(t, small), acquire(t, small)
	a.Release()
	b.Release()
}

// TestFailedStartsFreeTheirMemory holds that what cannot be instantiated leaves
// nothing.
func TestFailedStartsFreeTheirMemory(t *testing.T) {
	eachMemory(t, func(t *testing.T, plain bool) {
		rt := newRuntime(t)
		if plain {
			rt.UsePlainMemory()
		}
		for _, name := range []string{"startfails", "startsection", "badimports", "wrongexports", "unknownfunction"} {
			if _, err := config(name).load(t.Context(), rt); err == nil {
				t.Errorf("%s: no error", name)
			}
			if used := rt.MemoryInUse(); used != 0 {
				t.Errorf("%s: %d bytes are in use", name, used)
			}
		}
	})
}

// TestMemoryHammer calls, traps, grows, resets and swaps at once, within a limit
// that they reach; run it with -race. Memory that is unmapped while a guest runs
// on it would crash.
func TestMemoryHammer(t *testing.T) {
	eachMemory(t, func(t *testing.T, plain bool) {
		rt, err := host.NewRuntime(host.RuntimeConfig{MemoryBytes: 12 * page})
		if err != nil {
			t.Fatal(err)
		}
		if plain {
			rt.UsePlainMemory()
		}
		cfg := config("spins")
		cfg.Reset = host.ResetPerCall
		cfg.Limits = host.Limits{Instances: 4, Fuel: 100_000, MemoryBytes: 4 * page}
		p, err := cfg.load(t.Context(), rt)
		if err != nil {
			t.Fatal(err)
		}
		var served, full atomic.Int64
		var callers, swapper sync.WaitGroup
		stop := make(chan struct{})
		for n := range 6 {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(n), 11))
				for range 500 {
					inst, err := p.Acquire(t.Context())
					if errors.Is(err, host.ErrMemory) {
						full.Add(1)
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					// Count, recurse, grow until the fuel ends, grow and trap, trap.
					how := []uint64{0, 0, 0, 3, 7, 8, 9}[r.IntN(7)]
					got, err := inst.Call(t.Context(), abi.Filter, 0, how, 10)
					if how == 0 && (err != nil || got != 0x10001 && got != 0) {
						t.Errorf("got %#x, error %v", got, err)
					}
					if used := rt.MemoryInUse(); used > 12*page {
						t.Errorf("%d bytes are in use", used)
					}
					served.Add(1)
					inst.Release()
				}
			})
		}
		swapper.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := p.Swap(t.Context(), testdata([]string{"noop", "spins"}[n%2]), ""); err != nil && !errors.Is(err, host.ErrMemory) {
					t.Error(err)
				}
			}
		})
		callers.Wait()
		close(stop)
		swapper.Wait()
		t.Logf("%d calls, %d found no memory", served.Load(), full.Load())
		if err := rt.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if used := rt.MemoryInUse(); used != 0 {
			t.Errorf("%d bytes are in use after the end", used)
		}
	})
}

// TestManyInstancesOfARealGuest holds that the instances of a Go guest share what
// they begin from, serve, and are reset.
func TestManyInstancesOfARealGuest(t *testing.T) {
	eachMemory(t, func(t *testing.T, plain bool) {
		cfg := zone(t)
		cfg.Limits.Instances = 20
		p := loadWith(t, cfg, plain)
		instances := make([]*host.Instance, cfg.Limits.Instances)
		for i := range instances {
			instances[i] = acquire(t, p)
		}
		for round := range uint32(3) {
			for i, inst := range instances {
				filter(t, inst, 1+round)
				// Filter of a cycle that the guest does not know panics.
				if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err == nil {
					t.Fatal("no trap")
				}
				inst.Release()
				instances[i] = acquire(t, p)
			}
		}
		for _, inst := range instances {
			inst.Release()
		}
	})
}

// ExampleRuntime_MemoryInUse limits what all plugins of a process may have.
func ExampleRuntime_MemoryInUse() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{MemoryBytes: 3 * page})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close(ctx)
	plugin, err := rt.Load(ctx, host.Config{Name: "odd", Module: host.ModuleConfig{File: "testdata/good.wasm"}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The instance has a page of WebAssembly; the snapshot stores what is not zero of it.
	fmt.Println(rt.MemoryInUse() > page, rt.MemoryInUse() <= 2*page)
	_ = plugin.Close(ctx)
	fmt.Println(rt.MemoryInUse())
	// Output:
	// true true
	// 0
}

func (*restarts) CacheHits(string, string, uint64) {}

func (*countRefused) CacheHits(string, string, uint64) {}
