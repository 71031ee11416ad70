package hooks_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

// A plugin decides, traps, is recorded, swapped, shadowed, profiled, promoted and closed at the
// same time. No decision is lost or another one, what was recorded replays, and no memory stays.
func TestShadowsWhileAHookIsSwappedAndRecorded(t *testing.T) {
	// A guest in another process cannot be profiled.
	unprofiled := race.Enabled || strings.Contains(os.Getenv("KUBEWASM_DEBUG"), "process")
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	dir, log := t.TempDir(), guarded.NewLog()
	cfg := plugin(t, "p", scripted)
	module, err := cfg.Module.Source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	modules := [][]byte{module, append(module[:len(module):len(module)], "\x00\x07\x05otherx"...)} // With one more custom section.
	cfg.Limits.Instances, cfg.Record = 8, &record.Config{Path: dir, Rate: 0.05, SequenceCalls: 16, QueueBytes: 1 << 30}
	e, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: []hooks.PluginConfig{cfg}, Logger: slog.New(log)})
	if err != nil {
		t.Fatal(err)
	}

	stop := make(chan struct{})
	// paced lets callers wait between two decisions. A profile is compiled at its share of a processor: callers that
	// never wait would make minutes of that, and thousands of recorded calls.
	var paced atomic.Bool
	var callers sync.WaitGroup
	for g := range 3 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if paced.Load() {
					time.Sleep(time.Millisecond)
				}
				shares, line := int64(2+g<<10+n%64), "panic now"
				if n%50 != 49 {
					line = fmt.Sprint("cpu_shares ", shares)
				}
				req := script(map[string]string{"p": line})
				req.Pod.Name = fmt.Sprintf("web-%d-%d", g, n)
				d, err := e.Decide(t.Context(), req)
				if trap := (*host.TrapError)(nil); n%50 == 49 {
					if !errors.As(err, &trap) {
						t.Errorf("%s: error %v, want that of a trap", req.Pod.Name, err)
					}
				} else if err != nil || d.Resources == nil || d.Resources.CPUShares == nil || *d.Resources.CPUShares != shares {
					t.Errorf("%s: got %+v, %v, want %d shares", req.Pod.Name, d, err, shares)
				}
			}
		})
	}
	var begun []*shadow.Shadow
	begin := func(cfg shadow.Config) *shadow.Shadow {
		t.Helper()
		cfg.Rate, cfg.CPU = 1, 1
		if err := e.BeginShadow(t.Context(), "p", cfg); err != nil {
			t.Fatal(err)
		}
		begun = append(begun, e.Shadow("p"))
		return e.Shadow("p")
	}
	await := func(s *shadow.Shadow, is func(shadow.Status) bool) shadow.Status {
		t.Helper()
		for {
			switch status := s.Status(); {
			case is(status):
				return status
			case status.State == shadow.Stopped:
				t.Fatalf("the shadow has stopped: %s", status.Reason)
			}
			time.Sleep(time.Millisecond)
		}
	}
	rounds := 2
	if race.Enabled {
		rounds = 1
	}
	for round := range rounds {
		begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[round%2]}}) // Is replaced while it is loaded.
		s := begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[round%2]}})
		var swapping sync.WaitGroup
		swapping.Go(func() {
			if err := e.Swap(t.Context(), "p", host.Bytes(modules[(round+1)%2]), ""); err != nil {
				t.Error(err)
			}
		})
		// A profile pays for its compilation by its share of a processor, for minutes under the race
		// detector.
		swapping.Go(func() {
			if unprofiled {
				return
			}
			if err := e.BeginProfile(t.Context(), "p", 3); err != nil {
				t.Error(err)
			}
		})
		if got := await(s, func(s shadow.Status) bool { return s.Compared >= 5 }); got.Same != got.Compared || got.Failed != 0 || got.Asked != 0 {
			t.Errorf("got %+v", got)
		}
		swapping.Wait()
		if err := s.Promote(t.Context()); err != nil {
			t.Error(err)
		}
		if unprofiled {
			continue
		}
		profile := e.Profile("p")
		paced.Store(true)
		await(profile, func(shadow.Status) bool { return profile.Profile() != nil })
		paced.Store(false)
		begun = append(begun, profile)
	}
	s := begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[0]}, GuestConfig: host.GuestConfig(`{"qos": 7}`)})
	for s.Status().State != shadow.Stopped { // The candidate refuses its configuration.
		time.Sleep(time.Millisecond)
	}
	s = begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[0]}})
	await(s, func(s shadow.Status) bool { return s.Compared >= 1 })
	close(stop)
	callers.Wait()
	var closing sync.WaitGroup
	closing.Go(func() {
		err := e.BeginShadow(t.Context(), "p", shadow.Config{Module: host.ModuleConfig{Bytes: modules[0]}})
		if err != nil && !errors.Is(err, host.ErrClosed) {
			t.Error(err)
		}
	})
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	closing.Wait()
	for i, s := range append(begun, e.Shadow("p")) {
		select {
		case <-s.Done():
		default:
			t.Errorf("shadow %d still runs", i)
		}
	}
	if text := log.String(); strings.Contains(text, "close shadow") {
		t.Error(text)
	}
	if n := rt.MemoryInUse(); n != 0 {
		t.Errorf("the Runtime still has %d bytes", n)
	}
	replaying.Verify(t, rt, dir, 0, modules...)
}
