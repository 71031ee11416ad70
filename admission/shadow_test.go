package admission_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

// shadowing is a shadow that takes every call, and all of a processor.
func shadowing(guestConfig string) *shadow.Config {
	return &shadow.Config{Rate: 1, CPU: 1, GuestConfig: host.GuestConfig(guestConfig)}
}

// await waits until a shadow is as a test wants it.
func await(t testing.TB, s *shadow.Shadow, what string, is func(shadow.Status) bool) shadow.Status {
	t.Helper()
	for {
		status := s.Status()
		if is(status) {
			return status
		}
		if status.State == shadow.Stopped && what != "stopped" {
			t.Fatalf("want %s, the shadow has stopped: %s", what, status.Reason)
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("want %s, have %+v", what, status)
		case <-time.After(time.Millisecond):
		}
	}
}

func running(s shadow.Status) bool { return s.State == shadow.Running }

// ask asks a policy about a Pod with annotations, or about an object, and waits until its shadow
// has taken the call.
func ask(t testing.TB, p *admission.Plugin, annotations ...string) {
	t.Helper()
	count := func(s shadow.Status) uint64 { return s.Compared + s.Failed + s.Uncompared }
	before := count(await(t, p.Shadow(), "running", running))
	r := request(t, annotations...)
	if len(annotations) == 1 {
		r = requestOf(annotations[0])
	}
	admission.NewEngine(p).Validate(t.Context(), r)
	await(t, p.Shadow(), "a call", func(s shadow.Status) bool { return count(s) > before || s.State == shadow.Stopped })
}

func TestShadowOfAPolicy(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = shadowing(`{"warning": "beware"}`)
	cfg.Shadow.Module.Source = cfg.Module.Source
	p := load(t, cfg)
	for range 5 {
		ask(t, p)
	}
	got := p.Shadow().Status()
	if got.Compared != 5 || got.Same != 0 || got.Failed != 0 || len(got.Groups) != 1 {
		t.Fatalf("got %+v", got)
	}
	g := got.Groups[0]
	if g.Change != "allow -> allow" || g.Calls != 5 || len(g.Examples) != 3 || !strings.Contains(g.Examples[0], "beware") || !strings.Contains(g.Examples[0], "CREATE Pod shop/web") {
		t.Errorf("got %+v", g)
	}
	if r := admission.NewEngine(p).Validate(t.Context(), request(t)); len(r.Warnings) != 0 {
		t.Errorf("the shadow warns the caller: %v", r.Warnings)
	}
}

func TestShadowOfTheSameVersionAgrees(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source = cfg.Module.Source
	p := load(t, cfg)
	ask(t, p)
	ask(t, p, "deny", "no", "code", "418")
	ask(t, p, "error", "cannot tell")
	ask(t, p, "panic", "oh")
	ask(t, p, "echo", "request")
	ask(t, p, "fields", "")
	if got := p.Shadow().Status(); got.Same != got.Compared || got.Failed != 0 || got.Compared != 4 || got.Uncompared != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestShadowStopsWhenTheCandidateFails(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source, cfg.Shadow.Failures = host.File(rulebreaker), 3
	p := load(t, cfg)
	for range 3 {
		ask(t, p, "5") // The candidate traps.
	}
	got := await(t, p.Shadow(), "stopped", func(s shadow.Status) bool { return s.State == shadow.Stopped })
	if got.Failed != 3 || !strings.Contains(got.Reason, "3 calls in a row have failed") {
		t.Errorf("got %+v", got)
	}
	if p.Shadow().Sampled() {
		t.Error("a shadow that has stopped samples")
	}
}

func TestShadowThatCannotBeLoadedStops(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source = host.Bytes([]byte("no module"))
	p := load(t, cfg)
	got := await(t, p.Shadow(), "stopped", func(s shadow.Status) bool { return s.State == shadow.Stopped })
	if !strings.Contains(got.Reason, "load: ") {
		t.Errorf("got %+v", got)
	}
}

// A candidate that has been compiled works no more until that is in its share of a processor.
func TestShadowPaysForItsCompilation(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source, cfg.Shadow.CPU = cfg.Module.Source, 1e-7 // A millisecond is some hours.
	p := load(t, cfg)
	got := await(t, p.Shadow(), "loaded", func(s shadow.Status) bool { return s.Digest != "" })
	if got.State != shadow.Loading || p.Shadow().Sampled() {
		t.Errorf("after its compilation it is %+v", got)
	}
}

// renamed returns a guest with another digest, which does the same: with one more custom section.
func renamed(t testing.TB, dir string) []byte {
	t.Helper()
	module, err := config(t, "p", dir).Module.Source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return append(slices.Clone(module), "\x00\x07\x05otherx"...)
}

func TestShadowIsPromoted(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source = host.Bytes(renamed(t, scripted))
	p := load(t, cfg)
	for range 3 {
		ask(t, p)
	}
	if err := p.Shadow().Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := await(t, p.Shadow(), "promoted", func(s shadow.Status) bool { return s.State == shadow.Promoted })
	if p.Digest() != got.Digest {
		t.Errorf("%s serves, the candidate is %s", p.Digest(), got.Digest)
	}
}

func TestProfileOfAServingPolicy(t *testing.T) {
	p := load(t, config(t, "p", scripted))
	err := p.BeginProfile(t.Context(), 3)
	if strings.Contains(os.Getenv("KUBEWASM_DEBUG"), "process") {
		if err == nil || !strings.Contains(err.Error(), "isolation is process") {
			t.Errorf("a profile of a process begins: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	await(t, p.Profile(), "running", running)
	engine := admission.NewEngine(p)
	for p.Profile().Profile() == nil {
		engine.Validate(t.Context(), request(t, "echo", "sums"))
	}
	got := p.Profile().Profile()
	if got.Calls != 3 || got.Fuel() == 0 || got.Digest != p.Digest() || got.Plugin != "p" {
		t.Errorf("got %d calls with %d fuel of %q", got.Calls, got.Fuel(), got.Plugin)
	}
	found := false
	for _, c := range got.Top(0) {
		found = found || c.Function == "main.(*scripted).Validate"
	}
	if !found {
		t.Error("Validate of the guest is not in the profile")
	}
}

func TestShadowReportsEveryMistake(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = &shadow.Config{Module: host.ModuleConfig{HTTPS: "https://example.com/a.wasm", File: "b.wasm"}, Rate: 2, CPU: -1, MemoryBytes: 1, Queue: -1, Examples: -1, Failures: -1}
	_, err := admission.Load(t.Context(), shared, cfg)
	if err == nil {
		t.Fatal("it is loaded")
	}
	var missing []string
	for _, want := range []string{
		"shadow.module has file and https, want one of them", "shadow.module.https needs sha256", "shadow.rate is 2", "shadow.cpu is -1", "shadow.memoryBytes is 1", "shadow.queue is -1",
		"shadow.examples is -1", "shadow.failures is -1",
	} {
		if !strings.Contains(err.Error(), want) {
			missing = append(missing, want)
		}
	}
	if diff := cmp.Diff([]string(nil), missing); diff != "" {
		t.Errorf("not reported: %s\n%v", diff, err)
	}
}

func TestShadowNeverWaits(t *testing.T) {
	cfg := config(t, "p", scripted)
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source, cfg.Shadow.Queue, cfg.Shadow.CPU = cfg.Module.Source, 1, 0.02
	p := load(t, cfg)
	await(t, p.Shadow(), "running", running)
	engine := admission.NewEngine(p)
	for range 50 {
		if r := engine.Validate(t.Context(), request(t)); !r.Allowed {
			t.Fatal(fmt.Sprint(r.Result))
		}
	}
	if got := p.Shadow().Status(); got.Dropped == 0 {
		t.Errorf("nothing was dropped: %+v", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Shadow().Close(ctx); err != nil {
		t.Error(err)
	}
}

// A candidate looks objects up as they were for the serving version, and takes no look of its own.
func TestShadowIsToldWhatTheServingVersionWasTold(t *testing.T) {
	ingresses := &objects{}
	cfg := config(t, "unique", uniqueHosts)
	cfg.Cluster, cfg.Objects = &keeper{kept: map[string]*objects{"networking.k8s.io/v1/ingresses": ingresses}}, []host.ObjectGrant{{Resource: "networking.k8s.io/v1/ingresses"}}
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source = cfg.Module.Source
	p := load(t, cfg)
	await(t, p.Shadow(), "running", running)
	engine := admission.NewEngine(p)
	const calls = 4
	for n := range calls {
		ingresses.set(nil, ingress("bank", "web", fmt.Sprintf("%d.example.com", n%2)))
		engine.Validate(t.Context(), hostRequest("0.example.com"))
		ingresses.set(nil) // The candidate would allow it now.
		await(t, p.Shadow(), "a call", func(s shadow.Status) bool { return s.Compared+s.Failed+s.Uncompared+s.Asked == uint64(n+1) })
	}
	if got := p.Shadow().Status(); got.Same != calls {
		t.Errorf("got %+v", got)
	}
	if ingresses.snapshots != calls {
		t.Errorf("%d calls have taken %d snapshots", calls, ingresses.snapshots)
	}
}

func TestShadowThatAsksSomethingElse(t *testing.T) {
	pods := &objects{}
	cfg := config(t, "p", scripted)
	cfg.Cluster, cfg.Objects = &keeper{kept: map[string]*objects{"v1/pods": pods}}, []host.ObjectGrant{{Resource: "v1/pods"}}
	cfg.Shadow = shadowing("")
	cfg.Shadow.Module.Source = host.File(asker)
	p := load(t, cfg)
	await(t, p.Shadow(), "running", running)
	r := request(t)
	r.Options.Raw = []byte("gv1/pods\x00shop\x00web")
	admission.NewEngine(p).Validate(t.Context(), r)
	got := await(t, p.Shadow(), "a call", func(s shadow.Status) bool { return s.Compared+s.Failed+s.Uncompared+s.Asked == 1 })
	if got.Asked != 1 || len(got.Groups) != 1 || got.Groups[0].Change != "allow -> asked different questions" || !strings.Contains(got.Groups[0].Examples[0], "objects v1/pods") {
		t.Errorf("got %+v", got)
	}
	if pods.snapshots != 0 {
		t.Errorf("the candidate has taken %d snapshots", pods.snapshots)
	}
}

func TestShadowOfAConverter(t *testing.T) {
	converted := func(spec string) string {
		return `[{"op":"replace","path":"/apiVersion","value":"stable.example.com/v1"},{"op":"replace","path":"/spec","value":` + spec + `}]`
	}
	for name, test := range map[string]struct {
		candidate string
		change    string // Empty if both agree.
		failed    uint64
	}{
		"the same":             {converted(`{"y":1}`), "", 0},
		"another object":       {converted(`{"y":2}`), "converted -> converted", 0},
		"an object of no kind": {`{}`, "converted -> failure", 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := converterOf(t, "tabs", converted(`{"y":1}`), func(cfg *admission.PluginConfig) {
				cfg.Shadow = shadowing(test.candidate)
				cfg.Shadow.Module.Source = cfg.Module.Source
			})
			await(t, p.Shadow(), "running", running)
			if _, err := admission.NewEngine(p).Convert(t.Context(), toV1(tab)); err != nil {
				t.Fatal(err)
			}
			got := await(t, p.Shadow(), "a call", func(s shadow.Status) bool { return s.Compared+s.Failed+s.Uncompared == 1 })
			if got.Failed != test.failed || (test.change == "") != (got.Same == 1) {
				t.Fatalf("got %+v", got)
			}
			if test.change != "" && (got.Groups[0].Change != test.change || !strings.Contains(got.Groups[0].Examples[0], "CronTab shop/backup")) {
				t.Errorf("got %+v", got.Groups)
			}
		})
	}
}

// scriptedAccount is an account with answers to the questions whether a call may begin.
type scriptedAccount struct {
	mu      sync.Mutex
	answers []error
}

func (a *scriptedAccount) AccountOf(string) loading.Account { return a }
func (a *scriptedAccount) Charge(int64)                     {}

func (a *scriptedAccount) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) == 0 {
		return nil
	}
	err := a.answers[0]
	a.answers = a.answers[1:]
	return err
}

func (*scriptedAccount) Called(context.Context, host.CallEvent) {}
func (*scriptedAccount) Built(context.Context, host.BuildEvent) {}
func (*scriptedAccount) CacheHits(string, string, uint64)       {}
func (*scriptedAccount) Refused(context.Context, string, error) {}
func (*scriptedAccount) Restarted(string, bool)                 {}

// An account that refuses a call of one of two versions says nothing about either.
func TestShadowsAreNotComparedByTheirQuota(t *testing.T) {
	for name, answers := range map[string][]error{
		"the candidate":       {nil, nil, loading.ErrQuota}, // Each call asks twice.
		"the serving version": {loading.ErrQuota, nil, nil},
		"both":                {loading.ErrQuota, loading.ErrQuota},
	} {
		t.Run(name, func(t *testing.T) {
			account := new(scriptedAccount)
			cfg := config(t, "p", scripted)
			cfg.Config.Observer = account
			cfg.Shadow = shadowing(`{"warning": "beware"}`)
			cfg.Shadow.Module.Source = cfg.Module.Source
			p := load(t, cfg)
			await(t, p.Shadow(), "running", running)
			account.mu.Lock()
			account.answers = answers
			account.mu.Unlock()
			ask(t, p)
			if got := p.Shadow().Status(); got.Uncompared != 1 || got.Failed != 0 || got.Compared != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A plugin is asked, recorded, swapped and shadowed at the same time. What was recorded replays.
func TestShadowsWhileAPluginIsSwappedAndRecorded(t *testing.T) {
	rounds := 2
	if testing.Short() {
		rounds = 1
	}
	dir := t.TempDir()
	cfg := config(t, "p", scripted)
	modules := [][]byte{fetched(t, cfg.Module.Source), renamed(t, scripted)}
	cfg.Limits.Instances, cfg.Record = 3, &record.Config{Path: dir, Rate: 0.2, SequenceCalls: 16, QueueBytes: 1 << 30}
	p := load(t, cfg)
	engine := admission.NewEngine(p)
	stop := make(chan struct{})
	var callers sync.WaitGroup
	var calls atomic.Int64
	for range 3 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				script := []string{"deny", "fields", "echo", "panic"}[n%4]
				want := script != "deny" && script != "panic"
				if r := engine.Validate(t.Context(), request(t, script, "request")); r.Allowed != want && script != "echo" && script != "fields" {
					t.Errorf("%s: allowed is %t", script, r.Allowed)
				}
				calls.Add(1)
			}
		})
	}
	for round := range rounds {
		candidate := shadowing("")
		candidate.Module.Source = host.Bytes(modules[round%2])
		if err := p.BeginShadow(t.Context(), *candidate); err != nil {
			t.Fatal(err)
		}
		if err := p.Guest().Swap(t.Context(), host.Bytes(modules[(round+1)%2]), ""); err != nil {
			t.Fatal(err)
		}
		got := await(t, p.Shadow(), "calls", func(s shadow.Status) bool { return s.Compared >= 10 })
		if got.Same != got.Compared || got.Failed != 0 || got.Asked != 0 {
			t.Errorf("got %+v", got)
		}
	}
	close(stop)
	callers.Wait()
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	replaying.Verify(t, shared, dir, int(calls.Load())/20, modules...)
}
