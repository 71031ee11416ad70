package host_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/profile"
)

// fuelOfCalls observes the fuel of each call.
type fuelOfCalls struct{ fuel []int64 }

func (f *fuelOfCalls) Called(_ context.Context, c host.CallEvent) { f.fuel = append(f.fuel, c.Fuel) }
func (*fuelOfCalls) Built(context.Context, host.BuildEvent)       {}
func (*fuelOfCalls) CacheHits(string, string, uint64)             {}
func (*fuelOfCalls) Refused(context.Context, string, error)       {}
func (*fuelOfCalls) Restarted(string, bool)                       {}

func (f *fuelOfCalls) sum() (n int64) {
	for _, fuel := range f.fuel {
		n += fuel
	}
	return n
}

func TestProfilesOfHostileGuestsAddUp(t *testing.T) {
	host.InProcess(t, "there are no profiles")
	var profiled, traps int
	for _, g := range readHostile(t) {
		t.Run(g.name, func(t *testing.T) {
			rt := newRuntime(t)
			run := func(profiler *host.Profiler) (calls *fuelOfCalls, results []uint64, failed []string) {
				calls = &fuelOfCalls{}
				cfg := hostileConfig(g, host.Limits{Instances: 1, Fuel: 2_100_000, Timeout: time.Minute}, new(atomic.Int64))
				cfg.Observer, cfg.Profiler = calls, profiler
				p, err := cfg.load(t.Context(), rt)
				if err != nil {
					return calls, nil, []string{reasonOf(err)}
				}
				for node := range uint64(4) {
					result, err := callNode(t.Context(), p, node)
					results = append(results, result)
					failed = append(failed, reasonOf(err))
				}
				if err := p.Close(t.Context()); err != nil {
					t.Error(err)
				}
				return calls, results, failed
			}
			plain, results, failed := run(nil)
			profiler := &host.Profiler{}
			calls, profiledResults, profiledFailed := run(profiler)
			if diff := cmp.Diff(results, profiledResults); diff != "" {
				t.Errorf("results (-plain +profiled):\n%s", diff)
			}
			if diff := cmp.Diff(failed, profiledFailed); diff != "" {
				t.Errorf("errors (-plain +profiled):\n%s", diff)
			}
			if diff := cmp.Diff(plain.fuel, calls.fuel); diff != "" {
				t.Errorf("fuel of each call (-plain +profiled):\n%s", diff)
			}
			p := profiler.Profile()
			if p.Fuel() != calls.sum() || p.Calls != int64(len(calls.fuel)) {
				t.Errorf("the profile has %d calls with %d fuel, there were %d with %d", p.Calls, p.Fuel(), len(calls.fuel), calls.sum())
			}
			if len(calls.fuel) != 0 {
				profiled++
			}
			traps += len(slices.DeleteFunc(failed, func(reason string) bool { return reason == "" }))
		})
	}
	if profiled < 30 || traps < 100 {
		t.Errorf("%d guests were profiled, with %d calls that failed", profiled, traps)
	}
}

// reasonOf returns the first line of an error.
func reasonOf(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return startIndex.ReplaceAllString(line, "start function")
}

// startIndex is how wazero calls a start function, whose index rewriting changes.
var startIndex = regexp.MustCompile(`start function\[\d+\]( export\["\w+"\])?`)

// goGuest builds a guest of testdata in Go.
func goGuest(t testing.TB, name string, flags ...string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guest.wasm")
	cmd := exec.Command("go", append(append([]string{"build", "-buildmode=c-shared", "-o", file}, flags...), "./testdata/"+name)...)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

func TestProfileOfGoroutines(t *testing.T) {
	host.InProcess(t, "there are no profiles")
	for name, flags := range map[string][]string{"with names": nil, "stripped": {"-ldflags=-s -w"}} {
		t.Run(name, func(t *testing.T) {
			profiler, calls := &host.Profiler{}, &fuelOfCalls{}
			p := loadGo(t, guest{
				host.Config{Name: "goroutines", Module: host.ModuleConfig{Bytes: goGuest(t, "goroutines", flags...)}, Observer: calls, Profiler: profiler},
				host.Adapter{Kind: abi.KindScheduler},
			})
			profiler.Reset()
			calls.fuel = nil
			for range 3 {
				if result, err := callNode(t.Context(), p, 20); err != nil || result != 2471 {
					t.Fatalf("filter returned %d, %v", result, err)
				}
			}
			got := profiler.Profile()
			if got.Fuel() != calls.sum() || got.Calls != 3 {
				t.Errorf("the profile has %d calls with %d fuel, there were %d with %d", got.Calls, got.Fuel(), len(calls.fuel), calls.sum())
			}
			// inner waits 40 times, so it, outer and filter are resumed by the loop. The
			// stack is moved while deep calls itself.
			paths := map[string][]string{}
			for _, s := range got.Samples {
				var path []string
				for _, f := range s.Stack {
					if name, ok := strings.CutPrefix(f.Name, "main."); ok && !slices.Contains(path, name) {
						path = append(path, name)
					}
				}
				f := s.Stack[0]
				if name, ok := strings.CutPrefix(f.Name, "main."); ok {
					if text := strings.Join(path, "<"); !slices.Contains(paths[name], text) {
						paths[name] = append(paths[name], text)
					}
					if !strings.HasSuffix(f.File, "testdata/goroutines/main.go") || f.Line == 0 {
						t.Errorf("%s begins at %q:%d", f.Name, f.File, f.Line)
					}
				}
			}
			for name := range paths {
				slices.Sort(paths[name])
			}
			want := map[string][]string{
				"filter": {"filter"},
				"outer":  {"outer<filter"},
				"inner":  {"inner<outer<filter"},
				"deep":   {"deep<inner<outer<filter"},
				"spin":   {"spin<deep<inner<outer<filter", "spin<inner<outer<filter"},
				"square": {"square<worker<inner.gowrap1"},
				// What a goroutine runs is called by the loop.
				"worker":            {"worker<inner.gowrap1"},
				"inner.gowrap1":     {"inner.gowrap1"},
				"worker.deferwrap1": {"worker.deferwrap1<worker<inner.gowrap1"},
			}
			if diff := cmp.Diff(want, paths); diff != "" {
				t.Errorf("paths of the guest's own functions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProfileIsReadByPprof(t *testing.T) {
	host.InProcess(t, "there are no profiles")
	profiler := &host.Profiler{}
	cfg := config("deep")
	cfg.Profiler = profiler
	if _, err := callNode(t.Context(), load(t, cfg), 10); err != nil {
		t.Fatal(err)
	}
	p := profiler.Profile()
	var encoded bytes.Buffer
	if err := p.Write(&encoded); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "fuel.pb.gz")
	if err := os.WriteFile(file, encoded.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "tool", "pprof", "-raw", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	top, err := exec.Command("go", "tool", "pprof", "-top", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, top)
	}
	for want, in := range map[string][]byte{
		"memory/bytes fuel/count":                  out,
		fmt.Sprintf("100%% of %d total", p.Fuel()): top,
	} {
		if !strings.Contains(string(in), want) {
			t.Errorf("pprof does not print %q:\n%s", want, in)
		}
	}
}

func TestTop(t *testing.T) {
	a, b := &profile.Function{Name: "a"}, &profile.Function{Name: "b"}
	path := func(fuel, bytes int64, stack ...*profile.Function) profile.Sample {
		return profile.Sample{Stack: stack, Fuel: fuel, Bytes: bytes}
	}
	old := &profile.Profile{Samples: []profile.Sample{path(5, 0, b, a), path(3, 64, a), path(2, 0, b, a, b, a)}}
	if diff := cmp.Diff([]profile.Cost{
		{Function: "b", Flat: 7, Cumulative: 7}, {Function: "a", Flat: 3, Cumulative: 10, Bytes: 64},
	}, old.Top(0)); diff != "" {
		t.Errorf("all functions (-want +got):\n%s", diff)
	}
	if got := old.Top(1); len(got) != 1 || got[0].Function != "b" {
		t.Errorf("the first is %v", got)
	}
}
