package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
)

// logging returns an adapter whose host function "log" adds its name to a list.
func logging(name string, to *[]string) Adapter {
	return Adapter{Kind: abi.KindScheduler, Imports: []Import{{
		Module: abi.KindCommon.Module(), Name: "log", Params: []abi.ValueType{abi.I32, abi.I32, abi.I32},
		Func: func(inst *Instance, _ []uint64) { *to = append(*to, name+" "+inst.plugin.cfg.Name) },
	}}}
}

// Plugins with the same module share what is compiled of it, and nothing else: each has
// the host functions of its own adapter and its own configuration.
func TestPluginsShareACompiledModule(t *testing.T) {
	InProcess(t, "each plugin has a process, and they share nothing")
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var logged []string
	load := func(name string, limits Limits) *Plugin {
		p, err := rt.Load(t.Context(), Config{
			Name: name, Module: ModuleConfig{File: "testdata/good.wasm"}, GuestConfig: []byte(name), Limits: limits,
		}, logging("adapter of "+name, &logged))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	call := func(p *Plugin) {
		inst, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer inst.Release()
		if code, err := inst.Call(t.Context(), abi.Filter, 0, 0, 1); err != nil || abi.Code(code) != abi.Unschedulable {
			t.Errorf("%s: got %d, %v", p.Name(), code, err)
		}
	}
	a, b, small := load("a", Limits{}), load("b", Limits{}), load("small", Limits{MemoryBytes: 1 << 20})
	if got := len(rt.compiled); got != 2 {
		t.Errorf("%d modules are compiled, want one for a and b and one with other limits", got)
	}
	call(a)
	call(b)
	call(small)
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	call(b)
	if diff := cmp.Diff([]string{"adapter of a a", "adapter of b b", "adapter of small small", "adapter of b b"}, logged); diff != "" {
		t.Errorf("calls of host functions (-want +got):\n%s", diff)
	}
	// A module that is refused to one plugin serves another.
	if _, err := rt.Load(t.Context(), Config{Name: "c", Module: ModuleConfig{File: "testdata/good.wasm"}}, Adapter{Kind: abi.KindHook}); err == nil {
		t.Error("a scheduler's guest is loaded as a hook")
	}
	call(b)
	// A swap leaves the module to the others.
	if err := b.Swap(t.Context(), Bytes(withCustomSection(t, "testdata/good.wasm")), ""); err != nil {
		t.Fatal(err)
	}
	call(b)
	call(small)
	if err := errors.Join(b.Close(t.Context()), small.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if len(rt.compiled) != 0 || rt.MemoryInUse() != 0 {
		t.Errorf("%d modules and %d bytes are left", len(rt.compiled), rt.MemoryInUse())
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// withCustomSection returns a module with one more section, and so another digest.
func withCustomSection(t *testing.T, file string) []byte {
	t.Helper()
	module, err := File(file).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return append(module, 0, 3, 1, 'x', 0)
}

// Plugins of one module begin from its state after the start. What they do differently
// from there on is their own.
func TestPluginsShareTheStart(t *testing.T) {
	InProcess(t, "each plugin has a process, and they share nothing")
	for _, test := range []struct {
		name, module string
		configs      []string
		grants       []string
		reset        ResetPolicy
		wantShared   bool
		want         []string
	}{
		{
			name: "a guest that reads its configuration when it is configured", module: "good", configs: []string{"a", strings.Repeat("b", 65), "c"}, wantShared: true,
			want: []string{"2 node is odd", `plugin "1": configure returned Error: ` + strings.Repeat("b", 65), "2 node is odd"},
		},
		{name: "a guest that is not configured", module: "noop", configs: []string{"", "", ""}, wantShared: true, want: []string{"0 ", "0 ", "0 "}},
		{name: "a guest that reads it before", module: "startasks", configs: []string{"\x02", "\x03", "\x02"}, want: []string{"2 ", "3 ", "2 "}},
		{name: "plugins with the real time", module: "noop", configs: []string{"", ""}, grants: []string{GrantClock}, want: []string{"0 ", "0 "}},
		{name: "plugins with random numbers", module: "noop", configs: []string{"", ""}, grants: []string{GrantRandom}, want: []string{"0 ", "0 "}},
		{name: "plugins that are never reset", module: "good", configs: []string{"", ""}, reset: ResetNever, want: []string{"2 node is odd", "2 node is odd"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt, err := NewRuntime(RuntimeConfig{})
			if err != nil {
				t.Fatal(err)
			}
			var plugins []*Plugin
			call := func(p *Plugin) string {
				inst, err := p.Acquire(t.Context())
				if err != nil {
					return err.Error()
				}
				defer inst.Release()
				code, err := inst.Call(t.Context(), abi.Filter, 0, 0, 1)
				if err != nil {
					return err.Error()
				}
				return fmt.Sprint(code, " ", inst.Reason())
			}
			var got []string
			for n, config := range test.configs {
				p, err := rt.Load(t.Context(), Config{
					Name: fmt.Sprint(n), Module: ModuleConfig{File: "testdata/" + test.module + ".wasm"}, GuestConfig: []byte(config), Grants: test.grants, Reset: test.reset,
				}, Adapter{Kind: abi.KindScheduler})
				if err != nil {
					got = append(got, err.Error())
					continue
				}
				plugins = append(plugins, p)
				got = append(got, call(p))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			shared := plugins[0].current.Load().base == nil // A module may have no other plugin.
			for _, p := range plugins[1:] {
				shared = shared && p.current.Load().base != nil
			}
			if shared != test.wantShared {
				t.Errorf("the start is shared: %v, want %v", shared, test.wantShared)
			}
			if err := rt.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if n := rt.MemoryInUse(); n != 0 {
				t.Errorf("%d bytes are in use in the end", n)
			}
		})
	}
}

// A plugin whose caller stops waiting does not end the compilation that another waits for.
func TestSharedCompilationOutlivesItsFirstCaller(t *testing.T) {
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for range cap(rt.compiling) {
		rt.compiling <- struct{}{}
	}
	load := func(ctx context.Context, name string) <-chan error {
		before := users(rt)
		ended := make(chan error, 1)
		go func() {
			_, err := rt.Load(ctx, Config{Name: name, Module: ModuleConfig{File: "testdata/good.wasm"}}, Adapter{Kind: abi.KindScheduler})
			ended <- err
		}()
		for users(rt) == before {
			select {
			case err := <-ended:
				t.Fatal(err)
			default:
			}
		}
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	first, second := load(ctx, "first"), load(t.Context(), "second")
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	for range cap(rt.compiling) {
		<-rt.compiling
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func users(rt *Runtime) (n int) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for _, c := range rt.compiled {
		n += c.users
	}
	return n
}

// Plugins of two modules are loaded, called, swapped and closed at the same time. In the
// end nothing is left.
func TestSharedModulesHammer(t *testing.T) {
	rt, err := NewRuntime(RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	sources := []Source{File("testdata/good.wasm"), Bytes(withCustomSection(t, "testdata/good.wasm"))}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				p, err := rt.Load(t.Context(), Config{Name: fmt.Sprint(i), Module: ModuleConfig{Source: sources[(i+n)%2]}}, Adapter{Kind: abi.KindScheduler})
				if err != nil {
					t.Error(err)
					return
				}
				inst, err := p.Acquire(t.Context())
				if err == nil {
					err = p.Swap(t.Context(), sources[(i+n+1)%2], "")
					if _, failed := inst.Call(t.Context(), abi.Filter, 0, 0, 1); failed != nil {
						t.Error(failed)
					}
					inst.Release()
				}
				if err = errors.Join(err, p.Close(t.Context())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := rt.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if len(rt.compiled) != 0 || rt.MemoryInUse() != 0 {
		t.Errorf("%d modules and %d bytes are left", len(rt.compiled), rt.MemoryInUse())
	}
}
