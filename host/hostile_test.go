package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// hostile is a guest that means harm, from testdata/hostile or from
// binaryGuests.
type hostile struct {
	name, does string
	module     []byte
	// wants is what must come back with a budget of fuel. endless is what must
	// come back with a timeout instead; nil if that adds nothing.
	wants   want
	endless *want
}

// want is an outcome as the guests write it: `load error "…"`, `load trap "…"`,
// `load violation "…"`, the same three with call, or `call result 0`.
type want struct {
	call   bool
	kind   string
	text   string // A part of the error.
	result uint64
}

var wantSyntax = regexp.MustCompile(`^(load|call) (?:(error|trap|violation) "(.+)"|result (\d+))$`)

func parseWant(s string) (want, error) {
	m := wantSyntax.FindStringSubmatch(s)
	if m == nil {
		return want{}, fmt.Errorf("wants %q, which is not %s", s, wantSyntax)
	}
	w := want{call: m[1] == "call", kind: m[2], text: m[3]}
	if w.kind == "" {
		w.kind = "result"
		fmt.Sscan(m[4], &w.result)
	}
	return w, nil
}

// match says how an outcome differs from what was wanted.
func (w want) match(called bool, result uint64, err error) error {
	if called != w.call {
		return fmt.Errorf("got as far as a call: %t, error %v", called, err)
	}
	var ok bool
	switch w.kind {
	case "result":
		ok = err == nil && result == w.result
	case "error":
		ok = errors.As(err, new(*host.ModuleError)) || errors.As(err, new(*host.ExportError)) ||
			errors.As(err, new(*host.ImportError)) || errors.As(err, new(*host.StatusError))
	case "trap":
		ok = errors.As(err, new(*host.TrapError)) && !errors.As(err, new(*host.ABIError))
	case "violation":
		ok = errors.As(err, new(*host.TrapError)) && errors.As(err, new(*host.ABIError))
	}
	switch {
	case !ok:
		return fmt.Errorf("got result %d, error %T %.1000v", result, err, err)
	case err != nil && !strings.Contains(err.Error(), w.text):
		return fmt.Errorf("got error %.1000v", err)
	case strings.HasPrefix(w.text, "out of fuel") && !errors.Is(err, host.ErrFuel):
		return fmt.Errorf("%v is no ErrFuel", err)
	case strings.HasPrefix(w.text, "out of stack") && !errors.Is(err, host.ErrStack):
		return fmt.Errorf("%v is no ErrStack", err)
	case strings.HasPrefix(w.text, "timeout") && !errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%v is no DeadlineExceeded", err)
	}
	return nil
}

// readHostile reads the guests of testdata/hostile and adds those that have no
// text.
func readHostile(t *testing.T) []hostile {
	t.Helper()
	files, err := filepath.Glob("testdata/hostile/*.wat")
	if err != nil {
		t.Fatal(err)
	}
	var all []hostile
	for _, g := range binaryGuests() {
		if g.wants, err = parseWant(g.want); err != nil {
			t.Fatalf("%s: %v", g.name, err)
		}
		all = append(all, g.hostile)
	}
	for _, file := range files {
		g, err := readText(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, g)
	}
	return all
}

// readText reads what the comments on top of a guest's text say, and the module
// beside it.
func readText(file string) (g hostile, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return g, err
	}
	g.name = strings.TrimSuffix(filepath.Base(file), ".wat")
	if g.module, err = os.ReadFile(strings.TrimSuffix(file, ".wat") + ".wasm"); err != nil {
		return g, err
	}
	var wants string
	for line := range strings.Lines(string(text)) {
		comment, ok := strings.CutPrefix(line, ";; ")
		if !ok {
			break
		}
		key, value, _ := strings.Cut(strings.TrimSpace(comment), ": ")
		switch key {
		case "does":
			g.does = value
		case "wants":
			wants = value
		case "wants with fuel without end":
			w, err := parseWant(value)
			if err != nil {
				return g, err
			}
			g.endless = &w
		default:
			return g, fmt.Errorf("comment %q is none that is known", comment)
		}
	}
	if g.does == "" {
		return g, errors.New("the text does not say what the guest does")
	}
	g.wants, err = parseWant(wants)
	return g, err
}

// hostileConfig offers every import of the ABI, whatever the kind of host, and
// two that a host should not have. made counts the instances.
func hostileConfig(g hostile, limits host.Limits, made *atomic.Int64) guest {
	limits.MemoryBytes = 1 << 20
	if strings.HasPrefix(g.name, "bulk-") {
		limits.MemoryBytes = 4 << 20 // More than is moved at a time.
	}
	limits.ResultBytes = 64 << 10
	limits.OutputBytes = 256
	cfg := guest{
		host.Config{Name: g.name, Module: host.ModuleConfig{Source: host.Bytes(g.module)}, Limits: limits, GuestConfig: bytes.Repeat([]byte{'x'}, 64)},
		host.Adapter{Kind: abi.KindScheduler, NewState: func() any { made.Add(1); return nil }},
	}
	data := make([]byte, 64)
	for module, names := range map[string][]string{
		abi.KindScheduler.Module(): {"node_scores", "node_names"},
		abi.KindAdmission.Module(): {"request", "object", "old_object", "options"},
		abi.KindHook.Module():      {"request"},
	} {
		for _, name := range names {
			cfg.Imports = append(cfg.Imports, host.ToGuest(module, name, func(*host.Instance) []byte { return data }))
		}
	}
	for module, names := range map[string][]string{
		abi.KindScheduler.Module(): {"result_node_names", "result_scores"},
		abi.KindAdmission.Module(): {"result"},
		abi.KindHook.Module():      {"decision"},
	} {
		for _, name := range names {
			cfg.Imports = append(cfg.Imports, host.FromGuest(module, name, func(*host.Instance, []byte) {}))
		}
	}
	cfg.Imports = append(cfg.Imports,
		host.Import{
			Module: abi.ModuleObjects, Name: "object",
			Params: []abi.ValueType{abi.I64, abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				if stack[0] != 1 {
					inst.Abort(fmt.Errorf("ref %#x names no object", stack[0]))
				}
				stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), data))
			},
		},
		host.Import{Module: "test", Name: "reenter", Func: func(inst *host.Instance, _ []uint64) {
			if _, err := inst.Call(inst.Dialect().Context(), abi.Filter, 0, 0, 0); err != nil {
				panic(err)
			}
		}},
		host.Import{Module: "test", Name: "panic", Func: func(_ *host.Instance, stack []uint64) {
			_ = stack[:0:0][len(stack)]
		}},
	)
	return cfg
}

// TestHostile runs every hostile guest under tight limits, on one instance and
// on four, beside a guest that behaves and a ticker that must not stand still.
func TestHostile(t *testing.T) {
	guests := readHostile(t)
	if len(guests) < 40 {
		t.Fatalf("%d guests, want at least 40", len(guests))
	}
	slices.SortFunc(guests, func(a, b hostile) int { return strings.Compare(a.name, b.name) })
	before := goroutines(t)
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	wellBehaved, err := config("noop").load(t.Context(), rt)
	if err != nil {
		t.Fatal(err)
	}
	// More than the host gives at a time, so that guests yield. Under the race
	// detector, where host calls are slow, enough to tell the outcomes apart.
	fuel := func(g hostile) int64 {
		if race.Enabled && g.wants.text != "out of stack" {
			return 1_200_000
		}
		return 2_100_000
	}
	ticker := startTicker()
	// By the number of instances.
	baseline := map[int]time.Duration{1: ticker.baseline(1, 200*time.Millisecond), 4: ticker.baseline(4, 200*time.Millisecond)}
	longest := map[int]time.Duration{}
	for _, g := range guests {
		t.Run(g.name, func(t *testing.T) {
			t.Logf("%s", g.does)
			// The pool of one shows how long one guest holds others up; with four,
			// goroutines queue for the processors as they do without guests.
			for _, instances := range []int{1, 4} {
				run := func() {
					g.run(t, rt, host.Limits{Instances: instances, Fuel: fuel(g), Timeout: time.Minute}, g.wants)
					if g.endless != nil && instances == 1 && !race.Enabled {
						timeout := 20 * time.Millisecond
						if !strings.HasPrefix(g.endless.text, "timeout") { // It ends by itself, sooner or later.
							timeout = time.Minute
						}
						g.run(t, rt, host.Limits{Instances: 1, Fuel: math.MaxInt64, Timeout: timeout}, *g.endless)
					}
				}
				// What a guest does to others it does every time. What other
				// processes do to this one comes and goes: so a pause counts if
				// it comes back each time, and is longer by far than what the
				// machine shows meanwhile without guests.
				limit := func() time.Duration { return tolerated + 2*baseline[instances] }
				judged := !race.Enabled && !self.Emulated() && !host.Remote()
				begin := time.Now()
				pause := ticker.during(run)
				for range 10 {
					if pause <= limit() || !judged {
						break
					}
					// Looked at for as long as the guest ran: the longer, the longer the
					// longest pause.
					baseline[instances] = max(baseline[instances], ticker.baseline(instances, time.Since(begin)))
					begin = time.Now()
					pause = min(pause, ticker.during(run))
				}
				if pause > limit() && judged {
					t.Errorf("other goroutines waited for %s beside %d instances, %s without guests", pause, instances, baseline[instances])
				}
				longest[instances] = max(longest[instances], pause)
			}
			if code, err := callNode(t.Context(), wellBehaved, 0); err != nil || code != 0 {
				t.Errorf("afterwards a good guest returns %d, error %v", code, err)
			}
		})
	}
	ticker.stop()
	t.Logf("%d guests; the longest pause of others, by instances: %v; without guests: %v", len(guests), longest, baseline)

	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
	waitForGoroutines(t, before)
}

// tolerated is how long a guest may keep other goroutines from running, beside
// what the machine does to them anyway.
const tolerated = 20 * time.Millisecond

// run loads the guest, calls it from as many goroutines as it may have
// instances, and checks that each instance comes back.
func (g hostile) run(t *testing.T, rt *host.Runtime, limits host.Limits, w want) {
	t.Helper()
	var made atomic.Int64
	p, err := hostileConfig(g, limits, &made).load(t.Context(), rt)
	if err != nil {
		if err := w.match(false, 0, err); err != nil {
			t.Errorf("%v, want %+v", err, w)
		}
		return
	}
	// A guest that lies has four lies to tell, by the number of the node.
	const calls = 4
	var group sync.WaitGroup
	for i := range limits.Instances {
		group.Go(func() {
			for n := range calls / min(2, limits.Instances) {
				node := uint64(i + n)
				result, err := callNode(t.Context(), p, node)
				if err := w.match(true, result, err); err != nil {
					t.Errorf("call %d with %d instances: %v, want %+v", node, limits.Instances, err, w)
				}
			}
		})
	}
	group.Wait()

	// An instance that was lost would be missing now, and keep Close waiting.
	var all []*host.Instance
	for range limits.Instances {
		inst, err := acquireServed(t.Context(), p)
		if err != nil {
			t.Errorf("acquire all instances: %v", err)
			break
		}
		all = append(all, inst)
	}
	for _, inst := range all {
		inst.Release()
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// One for each call and one for each place in the pool, doubled since a
	// reset makes a new state, too.
	if most := int64(2 * limits.Instances * (calls + 1)); made.Load() > most && !host.Remote() {
		t.Errorf("%d instances made, want at most %d", made.Load(), most)
	}
}

// acquireServed is [host.Plugin.Acquire], and waits for the process that follows one which the host has
// ended: on a busy machine that takes longer than a short timeout of the plugin.
func acquireServed(ctx context.Context, p *host.Plugin) (*host.Instance, error) {
	inst, err := p.Acquire(ctx)
	for host.Remote() && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		inst, err = p.Acquire(ctx)
	}
	return inst, err
}

// callNode calls filter on an instance of the pool.
func callNode(ctx context.Context, p *host.Plugin, node uint64) (uint64, error) {
	inst, err := acquireServed(ctx, p)
	if err != nil {
		return 0, err
	}
	defer inst.Release()
	return inst.Call(ctx, abi.Filter, 0, 0, node)
}

// pauseTicker measures how long a goroutine that has something to do every
// millisecond must wait for its turn. Garbage is collected all the while, since
// it is the collector that stops every goroutine until the last guest yields.
type pauseTicker struct {
	longest   atomic.Int64
	done      chan struct{}
	goroutine sync.WaitGroup
}

func startTicker() *pauseTicker {
	p := &pauseTicker{done: make(chan struct{})}
	p.every(time.Millisecond, func(gap time.Duration) {
		if int64(gap) > p.longest.Load() {
			p.longest.Store(int64(gap))
		}
	})
	if !race.Enabled { // It would take a minute, and pauses do not count then.
		p.every(10*time.Millisecond, func(time.Duration) { runtime.GC() })
	}
	return p
}

// every calls f with the time since it was called last, until stop.
func (p *pauseTicker) every(d time.Duration, f func(gap time.Duration)) {
	p.goroutine.Go(func() {
		ticker := time.NewTicker(d)
		defer ticker.Stop()
		last := time.Now()
		for {
			select {
			case <-p.done:
				return
			case <-ticker.C:
				now := time.Now()
				f(now.Sub(last))
				last = now
			}
		}
	})
}

func (p *pauseTicker) stop() {
	close(p.done)
	p.goroutine.Wait()
}

// during returns the longest pause while f runs.
func (p *pauseTicker) during(f func()) time.Duration {
	p.longest.Store(0)
	f()
	return time.Duration(p.longest.Load())
}

// baseline is the longest pause beside n goroutines that are busy for d and run no
// guest.
func (p *pauseTicker) baseline(n int, d time.Duration) time.Duration {
	return p.during(func() {
		var group sync.WaitGroup
		end := time.Now().Add(max(d, 200*time.Millisecond))
		for range n {
			group.Go(func() {
				for time.Now().Before(end) {
				}
			})
		}
		group.Wait()
	})
}

// hammerTime is how long TestHammerOfTrapsAndCloses goes on unless KUBEWASM_HAMMER holds another
// duration.
const hammerTime = 5 * time.Second

// TestHammerOfTrapsAndCloses lets calls, traps, timeouts, cancellations, resets, swaps and closes
// of plugins meet. What counts is that each answer is the right one and that Close
// returns, which it does only if no instance is lost.
func TestHammerOfTrapsAndCloses(t *testing.T) {
	duration := hammerTime
	if s := os.Getenv("KUBEWASM_HAMMER"); s != "" {
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	} else if testing.Short() {
		duration /= 10
	}
	// In another process a call waits for a processor whenever the two take turns.
	timeout := 5 * time.Millisecond
	if host.Remote() {
		timeout = time.Minute
	}
	before := goroutines(t)
	rt, err := host.NewRuntime(host.RuntimeConfig{IdleAfter: 100 * time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	load := func() *host.Plugin {
		cfg := config("spins")
		cfg.Limits = host.Limits{Instances: 3, MemoryBytes: 1 << 20, Fuel: 20_000_000, Timeout: timeout}
		p, err := cfg.load(t.Context(), rt)
		if err != nil {
			t.Error(err)
			return nil
		}
		return p
	}
	var current atomic.Pointer[host.Plugin]
	if current.Store(load()); t.Failed() {
		return
	}
	var calls, closes atomic.Int64
	counts := map[string]*atomic.Int64{}
	ctx, stop := context.WithTimeout(t.Context(), duration)
	defer stop()
	var group sync.WaitGroup
	for i, way := range hammerWays {
		count := new(atomic.Int64)
		counts[way.name] = count
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 0))
			for ctx.Err() == nil && !t.Failed() {
				calls.Add(1)
				err := way.call(t.Context(), current.Load(), random)
				switch {
				case err == nil:
					count.Add(1)
				case !errors.Is(err, host.ErrClosed):
					t.Errorf("%s: %v", way.name, err)
				}
			}
		})
	}
	// The plugin is replaced and closed while the others call it.
	group.Go(func() {
		for ctx.Err() == nil && !t.Failed() {
			next := load()
			if next == nil {
				return
			}
			old := current.Swap(next)
			within, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := old.Close(within); err != nil {
				t.Errorf("close: %v", err)
			}
			cancel()
			closes.Add(1)
		}
	})
	// The same module twice, with another digest.
	spins, err := testdata("spins").Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	versions := []host.Source{host.Bytes(spins), host.Bytes(append(bytes.Clone(spins), wasmSection(0, 1, 'v', 1)...))}
	var swaps atomic.Int64
	group.Go(func() {
		for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
			switch err := current.Load().Swap(t.Context(), versions[n%2], ""); {
			case err == nil:
				swaps.Add(1)
			case !errors.Is(err, host.ErrClosed):
				t.Errorf("swap: %v", err)
			}
		}
	})
	group.Wait()
	for name, count := range counts {
		if count.Load() == 0 && !t.Failed() {
			t.Errorf("%s: not once in %s", name, duration)
		}
		t.Logf("%s: %d", name, count.Load())
	}
	t.Logf("%d calls, %d swaps, %d plugins closed in %s", calls.Load(), swaps.Load(), closes.Load(), duration)
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
	waitForGoroutines(t, before)
}

// hammerWays are what the goroutines of TestHammerOfTrapsAndCloses do. Each returns nil if what
// came back is right, or [host.ErrClosed] if the plugin was closed before.
var hammerWays = []struct {
	name string
	call func(ctx context.Context, p *host.Plugin, random *rand.Rand) error
}{
	// The guest counts its calls in memory and in a global, so the two halves of
	// its answer differ if one of them was reset without the other.
	{"calls", func(ctx context.Context, p *host.Plugin, random *rand.Rand) error {
		inst, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		defer inst.Release()
		var last uint64
		for range 1 + random.IntN(20) {
			got, err := inst.Call(ctx, abi.Filter, 0, 0, 0)
			if err != nil {
				return err
			}
			if got>>16 != got&0xffff || last != 0 && got&0xffff != last+1 {
				return fmt.Errorf("the guest counts %#x, %#x before", got, last)
			}
			last = got & 0xffff
		}
		if last > 1<<15 {
			// Before the count outgrows its half: begin anew.
			inst.Call(ctx, abi.Filter, 0, 9, 0)
		}
		return nil
	}},
	{"traps", hammerCall(9, trapped)},
	{"traps behind growth", hammerCall(8, trapped)},
	{"stops of a loop", hammerCall(1, stopped)},
	{"stops of a recursion", hammerCall(2, stopped)},
	{"stops of growth", hammerCall(7, stopped)},
	{"cancellations", func(ctx context.Context, p *host.Plugin, random *rand.Rand) error {
		inst, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		defer inst.Release()
		ctx, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(3000))*time.Microsecond)
		defer cancel()
		if _, err := inst.Call(ctx, abi.Filter, 0, 1, 0); !stopped(err) {
			return fmt.Errorf("a call that is cancelled fails with %v", err)
		}
		return nil
	}},
	{"waiters that give up", func(ctx context.Context, p *host.Plugin, random *rand.Rand) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(random.IntN(2000))*time.Microsecond)
		defer cancel()
		inst, err := p.Acquire(ctx)
		if err == nil {
			inst.Release()
			return nil
		}
		if errors.Is(err, host.ErrSaturated) || errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	}},
}

// hammerCall is a call of testdata/spins.wat that must fail.
func hammerCall(how uint64, right func(error) bool) func(context.Context, *host.Plugin, *rand.Rand) error {
	return func(ctx context.Context, p *host.Plugin, _ *rand.Rand) error {
		inst, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		defer inst.Release()
		if _, err := inst.Call(ctx, abi.Filter, 0, how, 0); !right(err) {
			return fmt.Errorf("way %d fails with %v", how, err)
		}
		return nil
	}
}

func trapped(err error) bool {
	return errors.As(err, new(*host.TrapError)) && strings.Contains(err.Error(), "unreachable")
}

// stopped accepts fuel and time: which one ends first depends on the machine.
func stopped(err error) bool {
	return errors.Is(err, host.ErrFuel) || errors.Is(err, context.DeadlineExceeded)
}

// goroutines returns the number of goroutines. The first process of a guest is started by one that stays.
func goroutines(t *testing.T) int {
	t.Helper()
	if host.Remote() {
		rt, err := host.NewRuntime(host.RuntimeConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config("noop").load(t.Context(), rt); err != nil {
			t.Fatal(err)
		}
		if err := rt.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return runtime.NumGoroutine()
}

// waitForGoroutines holds that there are no more goroutines than before: those
// that were told to end may need a moment.
func waitForGoroutines(t *testing.T, before int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(end) {
			t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
			return
		}
	}
}

// binaryGuest is a guest that wat2wasm cannot write: it is malformed, too large
// for a text, or of a feature that is off.
type binaryGuest struct {
	hostile
	want string
}

func binaryGuests() []binaryGuest {
	guest := func(name, does, want string, module []byte) binaryGuest {
		return binaryGuest{hostile{name: name, does: does, module: module}, want}
	}
	return []binaryGuest{
		guest("binary-empty", "has no byte", `load error "preamble"`, nil),
		guest("binary-script", "is a script", `load error "preamble"`, []byte("#!/bin/sh\nexit 1\n")),
		guest("binary-version", "is of version 2", `load error "preamble"`, []byte("\x00asm\x02\x00\x00\x00")),
		guest("binary-component", "is a component, not a module", `load error "unsupported feature: the component model"`, []byte("\x00asm\x0d\x00\x01\x00")),
		guest("binary-preamble-only", "is a module without anything", `load error "is missing"`, wasmModule()),
		guest("section-unknown", "has a section 99", `load error "unknown section 99"`, wasmModule(wasmSection(99))),
		guest("section-twice", "has two type sections", `load error "want a section that may follow"`, wasmModule(typeSection, typeSection)),
		guest("section-order", "has its functions before its types", `load error "want a section that may follow"`, wasmModule(functionSection, typeSection)),
		guest("section-longer-than-file", "has a section that claims 4 GiB", `load error "decode wasm: section type"`, wasmModule([]byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f})),
		guest("section-left-over", "has bytes behind the last type of the section", `load error "left over"`, wasmModule(wasmSection(1, 0, 0xaa))),
		guest("section-size-overflows", "has a section whose size has 70 bits", `load error "decode wasm"`, wasmModule([]byte{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})),
		guest("count-of-types", "claims four billion types", `load error "decode wasm: section type"`, wasmModule(wasmSection(1, 0xff, 0xff, 0xff, 0xff, 0x0f))),
		guest("count-of-functions", "claims four billion functions", `load error "decode wasm: section function"`, wasmModule(typeSection, wasmSection(3, 0xff, 0xff, 0xff, 0xff, 0x0f))),
		guest("count-of-bodies", "has a function without a body", `load error "2 functions have 0 bodies"`, wasmModule(typeSection, functionSection)),
		guest("count-of-locals", "declares four billion locals in seven bytes", `load error "too many locals"`, guestOf(1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x7f, 0x41, 0, 0x0b)),
		guest("count-of-locals-together", "declares 40,000 locals in each of a hundred functions", `load error "too many locals"`, guestWith(100, []byte{1, 0xc0, 0xb8, 0x02, 0x7f, 0x0b})),
		guest("count-of-data", "claims four billion data segments", `load error "decode wasm: section data count"`, wasmModule(typeSection, functionSection, memorySection, exportSection, wasmSection(12, 0xff, 0xff, 0xff, 0xff, 0x0f, 0), codeSection)),
		guest("name-not-utf8", "exports a name that is no UTF-8", `load error "UTF-8"`, wasmModule(typeSection, functionSection, memorySection, wasmSection(7, 1, 2, 0xff, 0xfe, 0, 0), codeSection)),
		guest("name-longer-than-section", "has a name of 4 GiB", `load error "decode wasm: section export"`, wasmModule(typeSection, functionSection, memorySection, wasmSection(7, 1, 0xff, 0xff, 0xff, 0xff, 0x0f), codeSection)),
		guest("names-lie", "has a name section of 4 GiB", `call result 0`, append(bytes.Clone(goodBinary), wasmSection(0, slices.Concat([]byte("\x04name"), []byte{1, 0xff, 0xff, 0xff, 0xff, 0x0f})...)...)),
		guest("body-without-end", "has a body that ends in the middle of an instruction", `load error "section code"`, guestOf(0, 0x41)),
		guest("body-stack-underflow", "adds two numbers that are not there", `load error "load module"`, guestOf(0, 0x6a, 0x0b)),
		guest("body-opcode", "has an instruction 0xff", `load error "section code"`, guestOf(0, 0xff, 0x0b)),
		guest("body-vector-opcode", "has a vector instruction that is one to some readers and two to others", `load error "section code"`, guestOf(0, 0xfd, 0xd6, 0x00, 0x0b)),
		guest("body-branch-beyond", "branches out of more blocks than there are", `load error "load module"`, guestOf(0, 0x0c, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x0b)),
		guest("body-global-of-the-meter", "sets the first global that it does not have, which will be the fuel", `load error "invalid global index"`, guestOf(0, 0x42, 0, 0x24, 0, 0x41, 0, 0x0b)),
		guest("body-local-of-the-meter", "reads the first local that it does not have", `load error "load module"`, guestOf(0, 0x20, 3, 0x0b)),
		guest("feature-tail-call", "calls itself in tail position for ever", `call trap "out of fuel"`, guestOf(0, 0x20, 0, 0x20, 1, 0x20, 2, 0x12, 1, 0x0b)),
		guest("feature-tail-call-on-the-stack", "does so in a function with seven parameters, for which the engine makes a call", `call trap "out of stack"`, wasmModule(
			wasmSection(1, slices.Concat([]byte{4}, threeTypes, []byte{0x60, 7, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 1, 0x7f})...),
			wasmSection(3, 3, 0, 1, 3), memorySection, exportSection,
			wasmSection(10, slices.Concat([]byte{3}, wasmSized(markerBody),
				wasmSized(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x42, 0}, 7), []byte{0x10, 2, 0x0b})),
				wasmSized(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x42, 0}, 7), []byte{0x12, 2, 0x0b})))...))),
		guest("feature-reference-of-another-type", "has a number called as if it were a function, which the engine takes for valid", `call trap "indirect call type mismatch"`, wasmModule(
			wasmSection(1, slices.Concat([]byte{5}, threeTypes, []byte{0x60, 1, 0x7e, 1, 0x7f, 0x60, 1, 0x64, 3, 1, 0x7f})...),
			wasmSection(3, 3, 0, 1, 4), memorySection, exportSection, wasmSection(9, 1, 3, 0, 1, 2),
			wasmSection(10, slices.Concat([]byte{3}, wasmSized(markerBody), wasmSized([]byte{0, 0xd2, 2, 0x10, 2, 0x0b}),
				wasmSized([]byte{0, 0x42, 1, 0x20, 0, 0x14, 3, 0x0b}))...))),
		guest("feature-atomic-wait", "waits on an address for ever", `load error "unsupported feature: threads; build without: wasm-opt --disable-threads"`, guestOf(0, 0x41, 0, 0x41, 0, 0x42, 0x7f, 0xfe, 0x01, 2, 0, 0x0b)),
		guest("feature-exceptions", "throws an exception", `load error "unsupported feature: exceptions; build without: wasm-opt --disable-exception-handling"`, wasmModule(typeSection, functionSection, memorySection, wasmSection(13, 1, 0, 0), exportSection, codeSection)),
		guest("feature-memory64", "has a memory of 64 bits", `load error "unsupported feature: 64-bit memories"`, wasmModule(typeSection, functionSection, wasmSection(5, 1, 4, 1), exportSection, codeSection)),
		guest("feature-shared-memory", "has a shared memory", `load error "unsupported feature: threads"`, wasmModule(typeSection, functionSection, wasmSection(5, 1, 3, 1, 1), exportSection, codeSection)),
		guest("feature-two-memories", "has two memories", `load error "unsupported feature: several memories"`, wasmModule(typeSection, functionSection, wasmSection(5, 2, 0, 1, 0, 1), exportSection, codeSection)),
		guest("stack-of-phis", "recurses with 2,000 locals that a branch which is never taken sets, so a frame costs little fuel", `call trap "out of stack"`, guestOf(deepFrames(2000)...)),
		guest("stack-of-locals", "recurses with 4,000 locals", `call trap "out of stack"`, guestOf(deepFrames(4_000)...)),
		guest("bomb-locals", "has 40,000 locals that a branch sets, each a value of two when compiled", `load error "too complex to compile"`, guestOf(deepFrames(40_000)...)),
		guest("bomb-loops", "has three thousand loops within one another in 9 KB", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x03, 0x40}, 3000), bytes.Repeat([]byte{0x0b}, 3000), []byte{0x41, 0, 0x0b})...)),
		guest("bomb-blocks", "has thirty thousand blocks within one another in 90 KB", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x02, 0x40}, 30_000), bytes.Repeat([]byte{0x0b}, 30_000), []byte{0x41, 0, 0x0b})...)),
		guest("bomb-ifs", "has ten thousand ifs within one another in 60 KB", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x20, 0, 0x50, 0x04, 0x40}, 10_000), bytes.Repeat([]byte{0x0b}, 10_000), []byte{0x41, 0, 0x0b})...)),
		guest("bomb-returns", "has ten thousand ifs that return", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x20, 0, 0x50, 0x04, 0x40, 0x41, 0, 0x0f, 0x0b}, 10_000), []byte{0x41, 0, 0x0b})...)),
		guest("bomb-branches", "has forty thousand branches out of one block", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0, 0x02, 0x40}, bytes.Repeat([]byte{0x20, 0, 0x50, 0x0d, 0}, 40_000), []byte{0x0b, 0x41, 0, 0x0b})...)),
		guest("bomb-calls", "calls itself from five thousand places", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x20, 0, 0x20, 0, 0x20, 0, 0x10, 1, 0x1a}, 5000), []byte{0x41, 0, 0x0b})...)),
		guest("bomb-fills", "has five thousand memory.fill, each with a check of the fuel", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 0x0b, 0}, 5000), []byte{0x41, 0, 0x0b})...)),
		guest("bomb-branch-table", "has a table of a thousand branches that carry a thousand values each, in 6 KB", `load error "too complex to compile"`, bombOfTargets(1000)),
		guest("bomb-parameters", "has ten thousand functions of ten thousand parameters each in 50 KB", `load error "too complex to compile"`, bombOfParameters(10_000)),
		guest("bomb-functions", "has three hundred thousand functions in 1.2 MB", `load error "too complex to compile"`, guestWith(300_000, []byte{0, 0x0b})),
		guest("bomb-functions-without-bodies", "has two hundred thousand functions and one more, and no body", `load error "too complex to compile"`, wasmModule(typeSection, wasmSection(3, repeated(200_001, 0)...))),
		guest("bomb-types", "has fifty thousand types and one more", `load error "too complex to compile"`, wasmModule(wasmSection(1, repeated(50_001, 0x60, 0, 0)...))),
		guest("bomb-type-group", "has as many types in one group", `load error "too complex to compile"`, wasmModule(wasmSection(1, append([]byte{1, 0x4e}, repeated(50_001, 0x60, 0, 0)...)...))),
		guest("bomb-type-groups", "has as many types in groups of a thousand", `load error "too complex to compile"`, wasmModule(wasmSection(1, repeated(51, append([]byte{0x4e}, repeated(1_000, 0x60, 0, 0)...)...)...))),
		guest("bomb-type", "has a type of a million parameters, which wazero looks at for each of them", `load error "too complex to compile"`, wasmModule(wasmSection(1, slices.Concat([]byte{1, 0x60}, repeated(1_000_000, 0x7e), []byte{0})...))),
		guest("bomb-types-of-parameters", "has six hundred types of a thousand parameters", `load error "too complex to compile"`, wasmModule(wasmSection(1, repeated(600, slices.Concat([]byte{0x60}, repeated(1_000, 0x7e), []byte{0})...)...))),
		guest("bomb-results", "has a type of a thousand results and one more", `load error "too complex to compile"`, wasmModule(wasmSection(1, append([]byte{1, 0x60, 0}, repeated(1_001, 0x7e)...)...))),
		guest("bomb-imports", "imports ten thousand functions and one more", `load error "too complex to compile"`, wasmModule(typeSection, wasmSection(2, repeated(10_001, 1, 'm', 1, 'f', 0, 2)...))),
		guest("bomb-tables", "has a thousand tables and one more", `load error "too complex to compile"`, wasmModule(wasmSection(4, repeated(1_001, 0x70, 0, 0)...))),
		guest("bomb-tags", "has ten thousand tags and one more", `load error "too complex to compile"`, wasmModule(typeSection, wasmSection(13, repeated(10_001, 0, 2)...))),
		guest("bomb-globals", "has fifty thousand globals and one more", `load error "too complex to compile"`, wasmModule(wasmSection(6, repeated(50_001, 0x7f, 1, 0x41, 0, 0x0b)...))),
		guest("bomb-exports", "exports its memory under fifty thousand names and one more", `load error "too complex to compile"`, wasmModule(memorySection, wasmSection(7, repeated(50_001, 0, 2, 0)...))),
		guest("bomb-segments-of-elements", "has ten thousand segments of elements and one more", `load error "too complex to compile"`, wasmModule(wasmSection(9, repeated(10_001, 1, 0, 0)...))),
		guest("bomb-elements", "has a segment of half a million elements and one more", `load error "too complex to compile"`, wasmModule(wasmSection(9, append([]byte{1, 1, 0}, repeated(500_001, 0)...)...))),
		guest("bomb-elements-in-segments", "has as many elements in segments of ten thousand", `load error "too complex to compile"`, wasmModule(wasmSection(9, repeated(51, append([]byte{1, 0}, repeated(10_000, 0)...)...)...))),
		guest("bomb-data", "has a hundred thousand data segments and one more", `load error "too complex to compile"`, wasmModule(memorySection, wasmSection(11, repeated(100_001, 0, 0x41, 0, 0x0b, 0)...))),
		guest("bomb-customs", "has ten thousand custom sections and one more", `load error "too complex to compile"`, append(bytes.Clone(goodBinary), bytes.Repeat(wasmSection(0, 0), 10_001)...)),
		guest("bomb-name", "exports its memory under a name of a megabyte", `load error "too complex to compile"`, wasmModule(memorySection, wasmSection(7, slices.Concat([]byte{1}, wasmSized(bytes.Repeat([]byte{'x'}, 1<<20)), []byte{2, 0})...))),
		guest("bomb-body", "has a function of a megabyte of stores, of which wazero keeps 800 MB", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x41, 1, 0x41, 1, 0x36, 2, 0}, 150_000), []byte{0x41, 0, 0x0b})...)),
		guest("bomb-conversions", "has a hundred thousand conversions that may trap, of which wazero keeps 700 MB", `load error "too complex to compile"`, guestOf(slices.Concat([]byte{0, 0x43, 0, 0, 0, 0}, bytes.Repeat([]byte{0xa8, 0xb2}, 100_000), []byte{0x1a, 0x41, 0, 0x0b})...)),
		guest("bomb-operands", "leaves thirty thousand operands on its stack, each of which an error would name", `load error "…"`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x41, 0}, 30_000), []byte{0x0b})...)),
		guest("name-in-traces", "traps in a function that has a name of two hundred thousand bytes", `call trap "unreachable"`, append(bytes.Clone(guestOf(0, 0x00, 0x0b)), wasmSection(0, append([]byte("\x04name"), append([]byte{1}, wasmSized(append([]byte{1, 1}, wasmSized(bytes.Repeat([]byte{'x'}, 200_000))...))...)...)...)...)),
		guest("many-names", "names a million locals and more of one function", `call result 0`, append(bytes.Clone(goodBinary), wasmSection(0, append([]byte("\x04name"), append([]byte{2}, wasmSized(append([]byte{1, 0}, repeated(1<<20+1, 0, 0)...))...)...)...)...)),
		guest("many-types", "has thirty thousand types", `call result 0`, wasmModule(
			wasmSection(1, slices.Concat(binary.AppendUvarint(nil, 30_003), []byte{0x60, 0, 1, 0x7e, 0x60, 3, 0x7e, 0x7e, 0x7e, 1, 0x7f, 0x60, 0, 0}, bytes.Repeat([]byte{0x60, 1, 0x7e, 0}, 30_000))...),
			functionSection, memorySection, exportSection, codeSection)),
		guest("many-functions", "has thirty thousand functions in 120 KB", `call result 0`, guestWith(30_000, []byte{0, 0x0b})),
		guest("many-blocks", "has a thousand blocks within one another", `call result 0`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x02, 0x40}, 1000), bytes.Repeat([]byte{0x0b}, 1000), []byte{0x41, 0, 0x0b})...)),
		guest("many-loops", "has a thousand loops within one another, each with a check of the fuel", `call result 0`, guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x03, 0x40}, 1000), bytes.Repeat([]byte{0x0b}, 1000), []byte{0x41, 0, 0x0b})...)),
		guest("many-branches", "has a table of ten thousand branches", `call result 0`, guestOf(slices.Concat([]byte{0}, []byte{0x02, 0x40, 0x41, 0, 0x0e, 0x90, 0x4e}, make([]byte, 10_001), []byte{0x0b, 0x41, 0, 0x0b})...)),
	}
}

// repeated is a vector of n times the same entry.
func repeated(n int, entry ...byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(n)), bytes.Repeat(entry, n)...)
}

// bombOfTargets is a guest with a br_table of n targets that carry n values each.
func bombOfTargets(n int) []byte {
	count := binary.AppendUvarint(nil, uint64(n))
	types := wasmSection(1, slices.Concat([]byte{4, 0x60, 0, 1, 0x7e, 0x60, 3, 0x7e, 0x7e, 0x7e, 1, 0x7f, 0x60, 0, 0, 0x60, 0}, count, bytes.Repeat([]byte{0x7e}, n))...)
	code := slices.Concat([]byte{0, 0x02, 3}, bytes.Repeat([]byte{0x42, 0}, n), []byte{0x41, 0, 0x0e}, count, make([]byte, n+1), []byte{0x0b}, bytes.Repeat([]byte{0x1a}, n), []byte{0x41, 0, 0x0b})
	return wasmModule(types, functionSection, memorySection, exportSection, wasmSection(10, slices.Concat([]byte{2}, wasmSized(markerBody), wasmSized(code))...))
}

// bombOfParameters is a guest with n functions of n parameters each.
func bombOfParameters(n int) []byte {
	params, functions := binary.AppendUvarint(nil, uint64(n)), binary.AppendUvarint(nil, uint64(n+2))
	return wasmModule(
		wasmSection(1, slices.Concat([]byte{3, 0x60, 0, 1, 0x7e, 0x60, 3, 0x7e, 0x7e, 0x7e, 1, 0x7f, 0x60}, params, bytes.Repeat([]byte{0x7e}, n), []byte{0})...),
		wasmSection(3, slices.Concat(functions, []byte{0, 1}, bytes.Repeat([]byte{2}, n))...), memorySection, exportSection,
		wasmSection(10, slices.Concat(functions, wasmSized(markerBody), wasmSized(filterBody), bytes.Repeat(wasmSized([]byte{0, 0x0b}), n))...))
}

// deepFrames is a function that calls itself with n locals, each of which has
// another value if a branch is taken.
func deepFrames(n int) []byte {
	count := func(i int) []byte { return binary.AppendUvarint(nil, uint64(i)) }
	local := func(op byte, i int) []byte { return append([]byte{op}, count(3+i)...) }
	code := slices.Concat([]byte{1}, count(n), []byte{0x7e}) // n locals of type i64
	code = append(code, 0x20, 0, 0x50, 0x45, 0x04, 0x40)     // if the cycle is not 0
	for i := range n {
		code = append(append(code, 0x20, 0), local(0x21, i)...) // local i is the cycle
	}
	code = append(code, 0x0b, 0x20, 0, 0x20, 1, 0x20, 2, 0x10, 1) // end; call filter again
	for i := range n {
		code = append(append(append(code, 0x41, 0), local(0x20, i)...), 0x37, 3, 0) // store local i at 0
	}
	return append(code, 0x0b)
}

// The parts of a guest in binary: two functions, the marker and a filter.
var (
	threeTypes      = []byte{0x60, 0, 1, 0x7e, 0x60, 3, 0x7e, 0x7e, 0x7e, 1, 0x7f, 0x60, 0, 0}
	typeSection     = wasmSection(1, slices.Concat([]byte{3}, threeTypes)...)
	functionSection = wasmSection(3, 2, 0, 1)
	memorySection   = wasmSection(5, 1, 0, 1)
	exportSection   = wasmSection(7, slices.Concat([]byte{3},
		[]byte("\x06memory"), []byte{2, 0}, []byte("\x0fkubewasm_abi_v1"), []byte{0, 0}, []byte("\x06filter"), []byte{0, 1})...)
	markerBody  = []byte{0, 0x42, 0x80, 0x01, 0x0b}
	filterBody  = []byte{0, 0x41, 0, 0x0b}
	codeSection = wasmSection(10, slices.Concat([]byte{2}, wasmSized(markerBody), wasmSized(filterBody))...)
	goodBinary  = wasmModule(typeSection, functionSection, memorySection, exportSection, codeSection)
)

// wasm is a module of these sections.
func wasmModule(sections ...[]byte) []byte {
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"), slices.Concat(sections...))
}

func wasmSection(id byte, content ...byte) []byte {
	return slices.Concat([]byte{id}, wasmSized(content))
}

// sized writes the length of b in front of it.
func wasmSized(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }

// TestOptionalParameters holds that a guest may leave out the last parameter of Filter, whether
// a caller gives it or not, and that one which is not given is 0.
func TestOptionalParameters(t *testing.T) {
	const last = 7
	for _, test := range []struct {
		params  int
		with    uint64
		without uint64
		refused bool
	}{
		{params: 2, refused: true},
		{params: 3, with: 3, without: 3},
		{params: 4, with: last, without: 0},
		{params: 5, refused: true},
	} {
		t.Run(strconv.Itoa(test.params), func(t *testing.T) {
			filter := slices.Concat([]byte{0x60, byte(test.params)}, bytes.Repeat([]byte{0x7e}, test.params), []byte{1, 0x7f})
			module := wasmModule(
				wasmSection(1, slices.Concat([]byte{2, 0x60, 0, 1, 0x7e}, filter)...), functionSection, memorySection, exportSection,
				wasmSection(10, slices.Concat([]byte{2}, wasmSized(markerBody), wasmSized([]byte{0, 0x20, byte(test.params - 1), 0xa7, 0x0b}))...))
			cfg := config("good")
			cfg.Module.Source = host.Bytes(module)
			p, err := cfg.load(t.Context(), newRuntime(t))
			if test.refused {
				if err == nil || !strings.Contains(err.Error(), "want (i64, i64, i64[, i64]) -> i32") {
					t.Fatalf("error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			inst := acquire(t, p)
			defer inst.Release()
			for range 2 {
				if got, err := inst.Call(t.Context(), abi.Filter, 1, 2, 3, last); err != nil || got != test.with {
					t.Errorf("with it: got %d, error %v, want %d", got, err, test.with)
				}
				if got, err := inst.Call(t.Context(), abi.Filter, 1, 2, 3); err != nil || got != test.without {
					t.Errorf("without it: got %d, error %v, want %d", got, err, test.without)
				}
			}
			for _, args := range [][]uint64{{1, 2}, {1, 2, 3, 4, 5}} {
				if _, err := inst.Call(t.Context(), abi.Filter, args...); err == nil {
					t.Errorf("%d arguments: no error", len(args))
				}
			}
		})
	}
}

// TestCompileIsALimitOfThePlugin holds that a module which is slow to compile is
// refused with the figure and the remedy. It loads when it is allowed by name or
// when the operator gave its digest.
func TestCompileIsALimitOfThePlugin(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close(context.Background()) })
	// About 1.2 s by the estimate, of which 0.87 s are allowed.
	module := guestOf(slices.Concat([]byte{0}, bytes.Repeat([]byte{0x20, 0, 0x50, 0x04, 0x40, 0x0b}, 7_500), []byte{0x41, 0, 0x0b})...)
	sum := sha256.Sum256(module)
	digest := hex.EncodeToString(sum[:])
	for _, test := range []struct {
		name   string
		sha256 string
		limit  time.Duration
		want   string
	}{
		{name: "neither digest nor limit", want: "too complex to compile in the time allowed"},
		{name: "a digest", sha256: digest},
		{name: "a limit above what it takes", limit: 10 * time.Second},
		{name: "a limit below what it takes", limit: time.Second, want: "possible are 1000"},
		{name: "a digest and a limit below what it takes", sha256: digest, limit: time.Second, want: "possible are 1000"},
		{name: "a limit below zero", limit: -1, want: "limits.compile is -1ns, less than 0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := rt.Load(t.Context(), host.Config{
				Name: "slow", Module: host.ModuleConfig{Bytes: module, SHA256: test.sha256}, Limits: host.Limits{Compile: test.limit},
			}, host.Adapter{Kind: abi.KindScheduler})
			if err == nil {
				err = p.Close(t.Context())
			}
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want == "":
			case err == nil || !strings.Contains(err.Error(), test.want):
				t.Errorf("got %v", err)
			case test.limit >= 0 && !strings.Contains(err.Error(), "limits.compile can allow more"):
				t.Errorf("the error does not name the remedy: %v", err)
			}
		})
	}
}

// guestOf is a guest whose filter consists of these bytes.
func guestOf(code ...byte) []byte {
	return wasmModule(typeSection, functionSection, memorySection, exportSection, wasmSection(10, slices.Concat([]byte{2}, wasmSized(markerBody), wasmSized(code))...))
}

// guestWith is a guest with n functions () -> () of that body beside its own.
func guestWith(n int, code []byte) []byte {
	count := binary.AppendUvarint(nil, uint64(n+2))
	return wasmModule(typeSection,
		wasmSection(3, slices.Concat(count, []byte{0, 1}, bytes.Repeat([]byte{2}, n))...),
		memorySection, exportSection,
		wasmSection(10, slices.Concat(count, wasmSized(markerBody), wasmSized(filterBody), bytes.Repeat(wasmSized(code), n))...))
}
