//go:build amd64 || arm64

package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// xorModule returns a module whose function filter returns its first argument xor a key, and counts its
// calls in memory: the second argument is added to the count, and the third is not 0 for the count.
func xorModule(key uint32) []byte {
	signed := binary.AppendUvarint(nil, uint64(key)) // Below 64 in each digit but the last: see the test.
	return filterModule(slices.Concat(
		[]byte{0x41, 0, 0x41, 0, 0x28, 2, 0, 0x20, 1, 0xa7, 0x6a, 0x36, 2, 0}, // memory[0] += second
		[]byte{0x20, 2, 0xa7, 0x04, 0x7f, 0x41, 0, 0x28, 2, 0, 0x05},          // if third: memory[0]
		[]byte{0x20, 0, 0xa7, 0x41}, signed, []byte{0x73, 0x0b})...)           // else first ^ key
}

// filterModule returns a module with the instructions of its function filter, which has no locals.
func filterModule(code ...byte) []byte {
	section := func(id byte, body ...byte) []byte {
		return slices.Concat([]byte{id}, binary.AppendUvarint(nil, uint64(len(body))), body)
	}
	filter := slices.Concat([]byte{0}, code, []byte{0x0b})
	marker := []byte{0, 0x42, 0x80, 1, 0x0b}
	return slices.Concat([]byte("\x00asm\x01\x00\x00\x00"),
		section(1, 2, 0x60, 0, 1, 0x7e, 0x60, 3, 0x7e, 0x7e, 0x7e, 1, 0x7f),
		section(3, 2, 0, 1),
		section(5, 1, 0, 1),
		section(7, []byte("\x03\x06memory\x02\x00\x0fkubewasm_abi_v1\x00\x00\x06filter\x00\x01")...),
		section(10, slices.Concat([]byte{2, byte(len(marker))}, marker, binary.AppendUvarint(nil, uint64(len(filter))), filter)...))
}

// loadXor loads a plugin of xorModule.
func loadXor(t *testing.T, rt *Runtime, name string, key uint32, reset ResetPolicy) *Plugin {
	t.Helper()
	p, err := rt.Load(t.Context(), Config{
		Name: name, Module: ModuleConfig{Bytes: xorModule(key)}, Reset: reset, Limits: Limits{Timeout: time.Minute, Instances: 2},
	}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// processOf returns the process that serves a plugin's next call.
func processOf(t *testing.T, p *Plugin) *remoteProcess {
	t.Helper()
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer inst.Release()
	return inst.remote.process
}

// ask calls a plugin.
func ask(ctx context.Context, p *Plugin, args ...uint64) (uint32, error) {
	inst, err := p.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer inst.Release()
	answer, err := inst.Call(ctx, abi.Filter, args...)
	return uint32(answer), err
}

// gathering has the modules of domains share processes when the test calls gather, and not by themselves.
func gathering(t *testing.T) {
	after := gatherAfter
	gatherAfter = time.Hour
	t.Cleanup(func() { gatherAfter = after })
}

// gather has the modules of a domain share a process now.
func gather(rt *Runtime, name string) *domain {
	rt.mu.Lock()
	d := rt.domains["domain "+name]
	rt.mu.Unlock()
	d.gather()
	return d
}

func TestGuestsOfADomainShareAProcess(t *testing.T) {
	gathering(t)
	rt := newWalledRuntime(t, IsolationProcess)
	a, b, never := loadXor(t, rt, "a", 1, ""), loadXor(t, rt, "b", 2, ""), loadXor(t, rt, "never", 1, ResetNever)
	others := []*Plugin{loadXor(t, rt, "team/a", 1, ""), loadXor(t, rt, "team/b", 2, "")}
	if processOf(t, a) == processOf(t, b) {
		t.Fatal("two modules are compiled in one process")
	}
	if processOf(t, a) == processOf(t, others[0]) {
		t.Fatal("two domains share a module")
	}
	if n, err := ask(t.Context(), never, 0, 7, 1); n != 7 || err != nil {
		t.Fatalf("the count is %d, %v", n, err)
	}
	alone := processOf(t, b)
	session, err := a.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := session.remote.process

	gather(rt, "")
	gather(rt, "team/")
	shared := processOf(t, b)
	if shared == alone || len(shared.modules) != 2 {
		t.Fatalf("the modules share no process of two, %d", len(shared.modules))
	}
	if team := processOf(t, others[0]); team == shared || team != processOf(t, others[1]) {
		t.Error("the second domain has no process that its guests share")
	}
	for _, p := range others {
		if remote := p.current.Load().compiled.remote; slices.Contains(shared.modules, remote) {
			t.Errorf("the process of a domain has the module of %s", p.Name())
		}
	}
	if err := alone.Err(); err == nil {
		t.Error("the process for loading goes on without instances")
	}
	// An instance that is in use stays where it is, and one whose state counts.
	if n, err := session.Call(t.Context(), abi.Filter, 8, 0, 0); n != 9 || err != nil || session.remote.process != first {
		t.Errorf("the instance in use answers %d, %v", n, err)
	}
	if n, err := ask(t.Context(), never, 0, 1, 1); n != 8 || err != nil {
		t.Errorf("the count of the guest that is never reset is %d, %v, want 8", n, err)
	}
	session.Release()
	if processOf(t, a) != shared {
		t.Error("an instance that was in use is not replaced")
	}
	// Another module, and one that goes.
	c := loadXor(t, rt, "c", 3, "")
	gather(rt, "")
	wider := processOf(t, c)
	if wider == shared || processOf(t, a) != wider || processOf(t, b) != wider || shared.Err() == nil {
		t.Error("after another load the modules share no process")
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := gather(rt, "")
	if p := processOf(t, a); p == wider || len(p.modules) != 2 || wider.Err() == nil {
		t.Error("the process goes on with a module that is gone")
	}
	for _, p := range []*Plugin{a, b, never} {
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if d.now != nil || len(rt.domains) != 1 {
		t.Errorf("without plugins the domain has a process: %t; %d domains", d.now != nil, len(rt.domains))
	}
}

// TestProcessesOfADomainAreReplaced ends the process that guests share while all of them serve.
func TestProcessesOfADomainAreReplaced(t *testing.T) {
	gathering(t)
	rt := newWalledRuntime(t, IsolationProcess)
	const modules, callers = 4, 2
	var plugins []*Plugin
	for key := range uint32(modules) {
		plugins = append(plugins, loadXor(t, rt, "p"+strconv.Itoa(int(key)), key, ""))
	}
	hole := drill(t, rt, "hole")
	d := gather(rt, "")
	shared := processOf(t, hole)
	never := slices.IndexFunc(attempts, func(a attempt) bool { return a.name == "never answer" })

	// Each caller goes on until the end, and counts its answers and its errors.
	var end atomic.Bool
	var answers [modules]atomic.Int64
	var failed [modules * callers]atomic.Int64
	var callersDone sync.WaitGroup
	for n := range modules * callers {
		callersDone.Go(func() {
			key := n % modules
			for x := uint64(0); !end.Load(); x++ {
				got, err := ask(t.Context(), plugins[key], x, 0, 0)
				switch {
				case err == nil && got != uint32(x)^uint32(key):
					t.Errorf("guest %d answers %d to %d", key, got, x)
				case err == nil:
					answers[key].Add(1)
				case strings.Contains(err.Error(), "process of the guest"):
					failed[n].Add(1)
				default:
					t.Errorf("guest %d: %v", key, err)
				}
			}
		})
	}
	// serve waits until each guest has answered.
	serve := func() {
		for key := range answers {
			for before := answers[key].Load(); answers[key].Load() < before+10; {
				time.Sleep(time.Millisecond)
			}
		}
	}
	serve()
	for _, test := range []struct {
		name string
		end  func()
		// alone is set if each guest has its own process then.
		alone bool
	}{
		{"a guest does not answer", func() {
			if _, err := try(t, hole, never, 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the call that does not answer: %v, want %v", err, context.DeadlineExceeded)
			}
		}, false},
		{"the process is killed", func() {
			if err := unix.Kill(d.process(plugins[0].current.Load().compiled.remote).Pid(), unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}, true},
	} {
		for i := range failed {
			failed[i].Store(0)
		}
		before := processOf(t, plugins[0])
		test.end()
		<-before.Done()
		serve()
		for i := range failed {
			if n := failed[i].Load(); n > 1 {
				t.Errorf("%s: a caller has %d errors, want 1 for the call under way", test.name, n)
			}
		}
		now := map[*remoteProcess]bool{}
		for _, p := range plugins {
			now[processOf(t, p)] = true
		}
		if n := len(now); now[before] || test.alone != (n == modules) || !test.alone && n != 1 {
			t.Errorf("%s: %d processes serve %d guests", test.name, n, modules)
		}
		if errno, err := try(t, hole, 1, 0); errno == 0 || err != nil {
			t.Errorf("%s: the guest answers %d, %v", test.name, errno, err)
		}
	}
	if d.wait < endsWithin {
		t.Errorf("the guests share a process again after %s", d.wait)
	}
	gather(rt, "")
	serve()
	if p := processOf(t, hole); p == shared || p != processOf(t, plugins[0]) {
		t.Error("the guests do not share a process again")
	}
	end.Store(true)
	callersDone.Wait()
	t.Log(fmt.Sprint("answers: ", answers[0].Load(), answers[1].Load(), answers[2].Load(), answers[3].Load()))
}

// TestInstancesDoNotUseUpTheThreads loads more plugins of a module than a process has threads for when the
// first one is loaded: each instance that waits for a call has one.
func TestInstancesDoNotUseUpTheThreads(t *testing.T) {
	gathering(t)
	rt := newWalledRuntime(t, IsolationProcess)
	const plugins = leastThreads + 32
	processes := map[*remoteProcess]bool{}
	var loaded []*Plugin
	for n := range plugins {
		p := loadXor(t, rt, "p"+strconv.Itoa(n), 5, "")
		loaded = append(loaded, p)
		processes[processOf(t, p)] = true
	}
	if len(processes) < 2 {
		t.Errorf("%d instances are in %d process", plugins, len(processes))
	}
	for n, p := range loaded {
		if got, err := ask(t.Context(), p, 1, 0, 0); got != 1^5 || err != nil {
			t.Errorf("guest %d answers %d, %v", n, got, err)
		}
	}
	for p := range processes {
		if err := p.Err(); err != nil && !p.retired.Load() {
			t.Errorf("a process has ended: %v", err)
		}
	}
}

// TestGuestsThatWaitForAProcessorKeepTheirProcess has more guests of a process run on after their time than
// it has processors for, so that each of them answers late.
func TestGuestsThatWaitForAProcessorKeepTheirProcess(t *testing.T) {
	gathering(t)
	rt := newWalledRuntime(t, IsolationProcess)
	callers := 80 * min(runtime.NumCPU(), 4)
	const forEver = "\x03\x40\x0c\x00\x0b\x00" // loop br 0 end unreachable
	loops, err := rt.Load(t.Context(), Config{
		Name: "loops", Module: ModuleConfig{Bytes: filterModule([]byte(forEver)...)}, Limits: Limits{Timeout: time.Second / 2, Fuel: 1 << 60, Instances: callers},
	}, Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	good := loadXor(t, rt, "good", 1, "")
	gather(rt, "")
	shared := processOf(t, good)
	var calls sync.WaitGroup
	for range callers {
		calls.Go(func() {
			if _, err := ask(t.Context(), loops, 0, 0, 0); !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "process of the guest") {
				t.Errorf("a guest that loops: %v, want its timeout", err)
			}
		})
	}
	if got, err := ask(t.Context(), good, 7, 0, 0); got != 7^1 || err != nil {
		t.Errorf("the other guest answers %d, %v", got, err)
	}
	calls.Wait()
	if p := processOf(t, good); p != shared {
		t.Errorf("the process has ended: %v", shared.Err())
	}
	if used := shared.ProcessorTime(); used < 100*time.Millisecond {
		t.Errorf("the process has used %s of processors", used)
	}
}

// TestFilesOfAProcessBoundItsInstances has a process whose threads would allow more instances than the files
// of their snapshots do.
func TestFilesOfAProcessBoundItsInstances(t *testing.T) {
	p := &remoteProcess{threads: 1 << 20, ready: make(chan struct{})}
	close(p.ready)
	for p.users = 0; !p.full(); p.users++ {
		if 2*p.users > 4<<10 {
			t.Fatalf("a process has more than %d instances, of two files each", p.users)
		}
	}
}

// TestThreadsAreNotWantOfMemory has more instances than stacks of a program with C, of 8 MB each, fit into
// the memory of the compiler: few pages of them are ever touched.
func TestThreadsAreNotWantOfMemory(t *testing.T) {
	gathering(t)
	if self.Emulated() {
		t.Skip("an emulator runs this test")
	}
	rt, err := NewRuntime(RuntimeConfig{MinimumIsolation: IsolationProcess, MemoryBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	var plugins []*Plugin
	for key := range uint32(2) {
		p, err := rt.Load(t.Context(), Config{
			Name: "p" + strconv.Itoa(int(key)), Module: ModuleConfig{Bytes: xorModule(key)}, Limits: Limits{Timeout: time.Minute, Instances: 160},
		}, Adapter{Kind: abi.KindScheduler})
		if err != nil {
			t.Fatal(err)
		}
		plugins = append(plugins, p)
	}
	gather(rt, "")
	shared := processOf(t, plugins[0])
	for _, p := range plugins {
		for range 160 {
			inst, err := p.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer inst.Release()
		}
	}
	if err := shared.Err(); err != nil {
		t.Error(err)
	}
}

// TestLoadsWaitForTheirProcess has plugins whose calls have next to no time loaded at once: their processes
// may take longer to start.
func TestLoadsWaitForTheirProcess(t *testing.T) {
	rt := newWalledRuntime(t, IsolationProcess)
	first := loadXor(t, rt, "first", 0, "")
	processOf(t, first).Kill(errors.New("the next one starts another"))
	p, err := rt.Load(t.Context(), Config{
		Name: "second", Module: ModuleConfig{Bytes: xorModule(0)}, Limits: Limits{Timeout: time.Microsecond, Instances: 1},
	}, Adapter{Kind: abi.KindScheduler})
	if errors.Is(err, context.DeadlineExceeded) && strings.Contains(err.Error(), "is not ready") {
		t.Fatal(err)
	}
	if err == nil {
		_ = p.Close(context.Background())
	}
}
