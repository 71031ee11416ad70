package host_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
)

// states is a logger's handler that keeps the transitions that are logged.
type states struct {
	mu  sync.Mutex
	log []string
}

func (s *states) Enabled(context.Context, slog.Level) bool { return true }
func (s *states) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *states) WithGroup(string) slog.Handler            { return s }

func (s *states) Handle(_ context.Context, r slog.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "state" {
			s.log = append(s.log, a.Value.String())
		}
		return true
	})
	return nil
}

func (s *states) lines() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, " ")
}

// until waits until a condition holds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after a minute", what)
		}
	}
}

// TestStates is the table of the transitions of a plugin. Each step changes the source of the
// plugin, and restarts the program or not.
func TestStates(t *testing.T) {
	read := func(name string) string {
		module, err := testdata(name).Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(module)
	}
	noop, spins := read("noop"), read("spins")
	type step struct {
		content string
		restart bool
		state   host.State
		serves  string
	}
	for _, tt := range []struct {
		name    string
		follow  bool
		standIn bool
		steps   []step
		log     string
	}{
		{name: "loaded", steps: []step{{noop, true, host.Serving, noop}}},
		{name: "not found at first", standIn: true, steps: []step{
			{"error: away", true, host.Unavailable, ""},
			{"error: still away", false, host.Unavailable, ""},
			{noop, false, host.Serving, noop},
			// It does not follow.
			{spins, false, host.Serving, noop},
		}, log: "Unavailable Unavailable Serving"},
		{name: "refused at first", standIn: true, steps: []step{
			{"no module", true, host.Unavailable, ""},
			{spins, false, host.Serving, spins},
		}, log: "Unavailable Serving"},
		{name: "unavailable, and followed", standIn: true, follow: true, steps: []step{
			{"no module", true, host.Unavailable, ""},
			{spins, false, host.Serving, spins},
			{noop, false, host.Serving, noop},
			{"error: away", false, host.Stale, noop},
			{noop, false, host.Serving, noop},
		}, log: "Unavailable Serving Stale Serving"},
		{name: "refused after a restart", follow: true, steps: []step{
			{noop, true, host.Serving, noop},
			{"no module", false, host.Stale, noop},
			{"no module", true, host.Stale, noop},
			{"no module", true, host.Stale, noop},
			{spins, false, host.Serving, spins},
			{"error: away", true, host.Stale, spins},
			{spins, false, host.Serving, spins},
		}, log: "Stale Stale Stale Serving Stale Serving"},
		{name: "away after a restart, and not followed", steps: []step{
			{noop, true, host.Serving, noop},
			{"error: away", true, host.Stale, noop},
			{spins, false, host.Serving, spins},
		}, log: "Stale Serving"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			log, source := &states{}, &memory{}
			var rt *host.Runtime
			var p *host.Plugin
			for i, step := range tt.steps {
				source.set(step.content)
				if step.restart {
					if rt != nil {
						if err := rt.Close(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					var err error
					if rt, err = host.NewRuntime(host.RuntimeConfig{CacheDir: dir, KeepModules: true, Sources: host.Sources{Interval: time.Millisecond}}); err != nil {
						t.Fatal(err)
					}
					cfg := config("noop")
					cfg.Module = host.ModuleConfig{Source: source, Follow: tt.follow}
					cfg.Logger, cfg.StandIn = slog.New(log), tt.standIn
					p = loadIn(t, rt, cfg)
				}
				fetches := source.fetched()
				until(t, fmt.Sprint("step ", i), func() bool {
					want := ""
					if step.serves != "" {
						want = digest([]byte(step.serves))
					}
					state, err := p.State()
					settled := step.restart || source.fetched() > fetches+1 || state == host.Serving
					return settled && state == step.state && p.Digest() == want && (err == nil) == (state == host.Serving)
				})
				inst, err := p.Acquire(t.Context())
				if err == nil {
					inst.Release()
				}
				var unavailable *host.UnavailableError
				if (err == nil) != (step.serves != "") || err != nil && !errors.As(err, &unavailable) {
					t.Errorf("step %d: acquire: %v", i, err)
				}
			}
			if err := rt.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.log, log.lines()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLastModules starts programs after failures in the middle.
func TestLastModules(t *testing.T) {
	noop, err := testdata("noop").Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		// between is done between the first start and the second, whose source is away.
		between func(t *testing.T, dir string)
		change  func(*guest)
		keep    bool
		want    string
	}{
		"the module":           {keep: true},
		"a tool keeps nothing": {want: "away"},
		"another plugin of the same source": {
			keep: true, change: func(g *guest) { g.Name = "other" }, want: "away",
		},
		"the pinned module": {
			keep: true, change: func(g *guest) { g.Module.SHA256 = digest(noop) },
		},
		"a pinned module that is another": {
			keep: true, change: func(g *guest) { g.Module.SHA256 = digest([]byte("other")) }, want: "away",
		},
		"a module that was damaged": {keep: true, want: "away", between: func(t *testing.T, dir string) {
			for _, name := range glob(t, dir, "*.wasm") {
				if err := os.WriteFile(name, []byte("\x00asm"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"a name that was cut off": {keep: true, want: "away", between: func(t *testing.T, dir string) {
			for _, name := range glob(t, dir, "*.last") {
				if err := os.Truncate(name, 10); err != nil {
					t.Fatal(err)
				}
			}
		}},
		"a module that was removed": {keep: true, want: "away", between: func(t *testing.T, dir string) {
			for _, name := range glob(t, dir, "*.wasm") {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			source := &memory{content: string(noop)}
			start := func(change func(*guest)) error {
				rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: dir, KeepModules: tt.keep})
				if err != nil {
					t.Fatal(err)
				}
				defer rt.Close(t.Context())
				cfg := config("noop")
				cfg.Module = host.ModuleConfig{Source: source}
				if change != nil {
					change(&cfg)
				}
				p, err := cfg.load(t.Context(), rt)
				if err == nil && p.Digest() != digest(noop) {
					t.Errorf("%s serves", p.Digest())
				}
				return err
			}
			if err := start(nil); err != nil {
				t.Fatal(err)
			}
			if tt.between != nil {
				tt.between(t, dir)
			}
			source.set("error: away")
			if err := start(tt.change); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("second start: %v, want %q", err, tt.want)
			}
		})
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "kubewasm-last", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	return names
}

// TestSwapsOfAnUnavailablePlugin calls a plugin while its first version comes into service, and
// closes one that never had any.
func TestSwapsOfAnUnavailablePlugin(t *testing.T) {
	source := &memory{content: "error: away"}
	cfg := config("noop")
	cfg.Module, cfg.StandIn = host.ModuleConfig{Source: source}, true
	p := load(t, cfg)
	if fns, about := p.Functions(), p.Module(); fns != 0 || about == nil || p.Dialect() != "" {
		t.Errorf("functions %s, module %v, dialect %q", fns, about, p.Dialect())
	}
	if s := p.Stats(); s.Instances != 0 || s.Limit != 2 {
		t.Errorf("stats %+v", s)
	}
	if _, err := p.Fresh(t.Context()); err == nil {
		t.Error("there is a fresh instance of no version")
	}
	pin := p.Pin()
	if _, err := pin.Acquire(t.Context(), nil); !errors.As(err, new(*host.UnavailableError)) {
		t.Errorf("acquire by a pin: %v", err)
	}
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			until(t, "call", func() bool {
				inst, err := p.Acquire(t.Context())
				if err == nil {
					inst.Release()
				} else if !errors.As(err, new(*host.UnavailableError)) {
					t.Errorf("acquire: %v", err)
					return true
				}
				return err == nil
			})
		})
	}
	if err := p.Swap(t.Context(), testdata("noop"), ""); err != nil {
		t.Fatal(err)
	}
	calls.Wait()
	pin.Release()
	// The declared source is still away, which its follower may have found after the swap.
	if state, err := p.State(); state != host.Serving && (state != host.Stale || err == nil || !strings.HasSuffix(err.Error(), "away")) {
		t.Errorf("state %s, %v", state, err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	q := load(t, cfg)
	if err := q.Close(t.Context()); err != nil {
		t.Errorf("close without a version: %v", err)
	}
	if _, err := q.Acquire(t.Context()); !errors.Is(err, host.ErrClosed) {
		t.Errorf("acquire after close: %v", err)
	}
}

// TestReadiness waits for the plugins once, and not for ever.
func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		var never, served host.Readiness
		bounded := host.Readiness{Timeout: time.Minute}
		for _, step := range []struct {
			after                  time.Duration
			unavailable            error
			never, served, bounded error
		}{
			{0, away, away, away, away},
			{30 * time.Second, away, away, away, away},
			{30 * time.Second, away, away, away, nil},
			{8 * time.Minute, away, away, away, nil},
			{time.Minute, away, nil, nil, nil},
		} {
			time.Sleep(step.after)
			if step.after == 8*time.Minute {
				if err := served.Ready(nil); err != nil {
					t.Error(err)
				}
				step.served = nil
			}
			got := []error{never.Ready(step.unavailable), served.Ready(step.unavailable), bounded.Ready(step.unavailable)}
			if want := []error{step.never, step.served, step.bounded}; !slices.Equal(got, want) {
				t.Errorf("after %s: %v, want %v", step.after, got, want)
			}
		}
	})
}

// TestKeepModuleWithoutRoom keeps a module that is larger than its part of the cache.
func TestKeepModuleWithoutRoom(t *testing.T) {
	t.Parallel()
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: t.TempDir(), CacheBytes: 400, KeepModules: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	module := make([]byte, 1000)
	if kept := rt.KeepModule(module); kept {
		_, err := rt.KeptModule(t.Context(), digest(module))
		t.Errorf("the module is kept, and reading it is: %v", err)
	}
}

// TestDamagedModuleIsKeptAgain damages a kept module without changing its size.
func TestDamagedModuleIsKeptAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: dir, KeepModules: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	module := []byte("module")
	if !rt.KeepModule(module) {
		t.Fatal("the module is not kept")
	}
	if err := os.WriteFile(filepath.Join(dir, "kubewasm-last", digest(module)+".wasm"), []byte("MODULE"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.KeptModule(t.Context(), digest(module)); err == nil {
		t.Error("a damaged module is returned")
	}
	if !rt.KeepModule(module) {
		t.Fatal("the module is not kept again")
	}
	if _, err := rt.KeptModule(t.Context(), digest(module)); err != nil {
		t.Error(err)
	}
}
