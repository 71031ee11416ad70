package host_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// serves is states that also keeps the digests of the modules that serve in place of declared ones.
type serves struct {
	*states
	serving []string
}

func (s *serves) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "serving" {
			s.serving = append(s.serving, a.Value.String())
		}
		return true
	})
	return s.states.Handle(ctx, r)
}

// TestRollback rolls a plugin back while its source still holds the version that was wrong, and has
// it follow again once that holds another.
func TestRollback(t *testing.T) {
	read := func(name string) []byte {
		module, err := testdata(name).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return module
	}
	noop, spins := read("noop"), read("spins")
	for name, cache := range map[string]string{"with a cache": t.TempDir(), "without": ""} {
		t.Run(name, func(t *testing.T) {
			log := &serves{states: new(states)}
			rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: cache, KeepModules: cache != ""})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(context.Background())
			source := new(memory)
			source.set(string(noop))
			p, err := rt.Load(t.Context(), host.Config{Name: "p", Logger: slog.New(log), Module: host.ModuleConfig{Source: source}}, host.Adapter{Kind: abi.KindScheduler})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Rollback(t.Context(), ""); !errors.Is(err, host.ErrNoVersion) {
				t.Errorf("error is %v, want that there is no version before", err)
			}
			source.set(string(spins))
			if err := p.Swap(t.Context(), source, ""); err != nil {
				t.Fatal(err)
			}
			source.set("no module")
			v, err := p.Rollback(t.Context(), "")
			if cache == "" {
				// The source has another module by then, and nobody has kept the earlier one.
				if state, _ := p.State(); err == nil || p.Digest() != digest(spins) || state != host.Serving {
					t.Errorf("error is %v, and %s serves", err, p.Digest())
				}
				return
			}
			if err != nil || v.Digest != digest(noop) || p.Digest() != digest(noop) {
				t.Fatalf("rolled back to %+v, %v, and %s serves", v, err, p.Digest())
			}
			if state, why := p.State(); state != host.Stale || !strings.Contains(why.Error(), "rolled back from "+digest(spins)) {
				t.Errorf("state is %s, %v", state, why)
			}
			var got []string
			for _, v := range p.Versions() {
				got = append(got, v.Digest)
			}
			if diff := cmp.Diff([]string{digest(spins), digest(noop)}, got); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
			if v, err = p.Rollback(t.Context(), digest(spins)[:60]); !errors.Is(err, host.ErrNoVersion) {
				t.Errorf("rolled back to %+v, %v", v, err)
			}
			if _, err = p.Rollback(t.Context(), strings.ToUpper(digest(spins))); err != nil || p.Digest() != digest(spins) {
				t.Errorf("%s serves, %v", p.Digest(), err)
			}
			source.set(string(noop))
			if err := p.Swap(t.Context(), source, ""); err != nil {
				t.Fatal(err)
			}
			if got := log.lines(); got != "Stale Stale Serving" {
				t.Errorf("states are %s", got)
			}
			if diff := cmp.Diff([]string{digest(noop), digest(spins)}, log.serving); diff != "" {
				t.Errorf("modules that serve after each roll back, by the log (-want +got):\n%s", diff)
			}
		})
	}
}

// waits is a log whose lines about a module in place of the declared one wait.
type waits struct {
	states
	until atomic.Pointer[func() bool]
}

func (w *waits) Handle(_ context.Context, r slog.Record) error {
	for until := w.until.Load(); until != nil && r.Level == slog.LevelError && !(*until)(); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// TestRollbackAndSwap rolls a plugin back while it is swapped to the module of its source, and while
// its source is checked: the state is that of the module in service.
func TestRollbackAndSwap(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: t.TempDir(), KeepModules: true, Sources: host.Sources{Interval: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	noop, err := testdata("noop").Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spins, err := testdata("spins").Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	source, log := new(memory), new(waits)
	source.set(string(noop))
	p, err := rt.Load(t.Context(), host.Config{Name: "p", Logger: slog.New(log), Module: host.ModuleConfig{Source: source, Follow: true}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	source.set(string(spins))
	until(t, "follow", func() bool { return p.Digest() == digest(spins) })
	log.until.Store(new(func() bool {
		state, _ := p.State()
		return state == host.Serving || p.Digest() == digest(noop) // A check has changed the state, or no longer can.
	}))
	for range 20 {
		var both sync.WaitGroup
		both.Go(func() {
			if err := p.Swap(t.Context(), source, ""); err != nil {
				t.Error(err)
			}
		})
		both.Go(func() {
			if _, err := p.Rollback(t.Context(), digest(noop)); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if state, why := p.State(); (state == host.Serving) != (p.Digest() == digest(spins)) {
			t.Fatalf("the state is %s, %v, and %s serves", state, why, p.Digest())
		}
	}
}
