package manage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// replica is a server with a directory of its own, which restarts.
type replica struct {
	*fixture
	t  *testing.T
	rt *host.Runtime
	// keeps is set if it keeps its modules over restarts.
	keeps   bool
	sources host.Sources
	// ready is Config.ReadyTimeout.
	ready time.Duration
}

func (r *replica) start() {
	r.t.Helper()
	var err error
	r.rt, err = host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(r.dir, "cache"), KeepModules: r.keeps, Sources: r.sources})
	if err != nil {
		r.t.Fatal(err)
	}
	r.engine = admission.NewEngine()
	r.Manager, err = manage.New(r.t.Context(), manage.Config{
		Runtime: r.rt, Engine: r.engine, Interval: 10 * time.Millisecond, Directory: filepath.Join(r.dir, "state"), ReadyTimeout: r.ready,
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) stop() {
	r.t.Helper()
	if err := errors.Join(r.Close(context.Background()), r.rt.Close(context.Background())); err != nil {
		r.t.Error(err)
	}
}

func newReplica(t *testing.T, change func(*replica)) *replica {
	t.Helper()
	r := &replica{t: t, keeps: true, fixture: &fixture{dir: t.TempDir()}}
	if change != nil {
		change(r)
	}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *replica) restart() {
	r.t.Helper()
	r.stop()
	r.start()
}

// apply applies the text of a file.
func (r *replica) apply(text string) error {
	r.t.Helper()
	f, err := manage.ParseFile([]byte(text))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.Apply(r.t.Context(), f)
}

// answers returns the answer to a request for a Pod in JSON.
func (r *replica) answers() string {
	r.t.Helper()
	request := &admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create}
	request.Kind.Kind, request.Resource.Version, request.Resource.Resource = "Pod", "v1", "pods"
	request.Object.Raw = []byte(`{}`)
	text, err := json.Marshal(r.engine.Validate(r.t.Context(), request))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// state returns the state and the override of a policy.
func (r *replica) state(name string) string {
	for _, info := range r.List() {
		if info.Name == name {
			return strings.TrimSpace(string(info.State) + " " + info.Override)
		}
	}
	return "gone"
}

func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after 30 seconds", what)
		}
	}
}

// rules are the rules of a policy after other fields.
const rules = ", " + podRules

func file(plugins ...string) string { return "plugins: [" + strings.Join(plugins, ", ") + "]\n" }

// TestReplicasAnswerAlike gives two replicas the same declarations by different ways: one restarts
// before each, and its API loads the policies in another order. What they answer is alike, byte for
// byte, and in the order that is declared.
func TestReplicasAnswerAlike(t *testing.T) {
	t.Parallel()
	one, other := newReplica(t, nil), newReplica(t, nil)
	for _, name := range []string{"api-1", "api-2"} {
		if err := one.Load(t.Context(), policyNamed(t, name), says(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"api-2", "api-1"} {
		if err := other.Load(t.Context(), policyNamed(t, name), says(name)); err != nil {
			t.Fatal(err)
		}
	}
	a, b, c := plugin("a", rules), plugin("b", rules), plugin("c", rules)
	for _, step := range []struct {
		declared []string
		want     string
	}{
		{[]string{a, b}, "a: a; b: b; api-1: api-1; api-2: api-2"},
		{[]string{b, a}, "b: b; a: a; api-1: api-1; api-2: api-2"},
		{[]string{c, b, a}, "c: c; b: b; a: a; api-1: api-1; api-2: api-2"},
		{[]string{a, c}, "a: a; c: c; api-1: api-1; api-2: api-2"},
	} {
		other.restart()
		for _, r := range []*replica{one, other} {
			if err := r.apply(file(step.declared...)); err != nil {
				t.Fatal(err)
			}
			if got := r.ask("Pod"); got != step.want {
				t.Errorf("%q answers, want %q", got, step.want)
			}
		}
		if x, y := one.answers(), other.answers(); x != y {
			t.Errorf("the replicas answer\n%s\n%s", x, y)
		}
	}
}

// TestOverridesLastUntilTheDeclarationChanges changes declared policies by the API. Neither another
// policy's change nor a restart takes that back, and a change of the declaration does.
func TestOverridesLastUntilTheDeclarationChanges(t *testing.T) {
	t.Parallel()
	one, two := plugin("p", rules), plugin("p", rules+", guestConfig: {of: two}")
	changes := map[string]struct {
		change       func(t *testing.T, r *replica)
		state, wants string
	}{
		"disabled": {func(t *testing.T, r *replica) {
			if err := r.SetEnabled("p", false); err != nil {
				t.Fatal(err)
			}
		}, "Disabled disabled", ""},
		"promoted": {func(t *testing.T, r *replica) {
			if err := shadowOf(t, r.fixture, shadow.Config{Module: host.ModuleConfig{Bytes: says("better")}}).Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, "Serving version", "better"},
		"rolled back": {func(t *testing.T, r *replica) {
			if err := r.apply(file(two)); err != nil {
				t.Fatal(err)
			}
			if err := r.apply(file(one)); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Rollback(t.Context(), "p", ""); err != nil {
				t.Fatal(err)
			}
		}, "Serving version", "p"},
		"promoted, and disabled": {func(t *testing.T, r *replica) {
			if err := shadowOf(t, r.fixture, shadow.Config{Module: host.ModuleConfig{Bytes: says("better")}}).Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.SetEnabled("p", false); err != nil {
				t.Fatal(err)
			}
		}, "Disabled version", ""},
	}
	for name, test := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReplica(t, nil)
			check := func(when, state, wants string) {
				t.Helper()
				if got := r.state("p"); got != state {
					t.Errorf("%s: the state is %s, want %s", when, got, state)
				}
				if got := strings.TrimPrefix(r.ask("Pod"), "p: "); got != wants {
					t.Errorf("%s: %q answers, want %q", when, got, wants)
				}
			}
			quiet := plugin("q", ", mode: Monitor")
			if err := r.apply(file(one)); err != nil {
				t.Fatal(err)
			}
			check("declared", "Serving", "p")
			test.change(t, r)
			check("changed", test.state, test.wants)
			for _, text := range []string{file(one, quiet), file(quiet, one), file(one)} {
				if err := r.apply(text); err != nil {
					t.Fatal(err)
				}
				check("another policy has changed", test.state, test.wants)
			}
			for range 2 {
				r.restart()
				if err := r.apply(file(one)); err != nil {
					t.Fatal(err)
				}
				check("restarted", test.state, test.wants)
			}
			if err := r.apply(file(two)); err != nil {
				t.Fatal(err)
			}
			check("declared anew", "Serving", "p")
			r.restart()
			if err := r.apply(file(one)); err != nil {
				t.Fatal(err)
			}
			check("declared as before", "Serving", "p")
		})
	}
}

// TestALostOverrideIsTheDeclaredVersion restarts a server whose directory has lost the module that
// was promoted.
func TestALostOverrideIsTheDeclaredVersion(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(dir string) error{
		"the module": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "state", "modules")) },
		"the overrides": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "state", "overrides.list"), []byte("{"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, func(r *replica) { r.keeps = false })
			declared := file(plugin("p", rules))
			if err := r.apply(declared); err != nil {
				t.Fatal(err)
			}
			if err := shadowOf(t, r.fixture, shadow.Config{Module: host.ModuleConfig{Bytes: says("better")}}).Promote(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.stop()
			if err := lose(r.dir); err != nil {
				t.Fatal(err)
			}
			r.start()
			if err := r.apply(declared); err != nil {
				t.Error(err)
			}
			if got, state := r.ask("Pod"), r.state("p"); got != "p" || state != "Serving" {
				t.Errorf("%q answers, %s", got, state)
			}
		})
	}
}

// away is a source that is slow or away.
type away struct {
	mu     sync.Mutex
	module []byte
	// slow, if it is not nil, holds up each fetch until it is closed.
	slow chan struct{}
}

func (a *away) set(module []byte, slow chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.module, a.slow = module, slow
}

func (a *away) String() string { return "away" }

func (a *away) Fetch(ctx context.Context) ([]byte, error) {
	a.mu.Lock()
	module, slow := a.module, a.slow
	a.mu.Unlock()
	if slow != nil {
		select {
		case <-slow:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if module == nil {
		return nil, errors.New("the registry is away")
	}
	return module, nil
}

// inSource declares a policy whose module is in the source of a replica.
func inSource(name, more string) string {
	return "{name: " + name + ", module: {oci: 'registry.example.com/" + name + ":1', follow: true}, " + more + "}"
}

func with(a *away) func(*replica) {
	return func(r *replica) {
		r.sources = host.Sources{OCI: func(string) host.Source { return a }, Interval: 10 * time.Millisecond}
	}
}

// TestAReplicaThatServesNothingIsNotReady starts replicas while the registry is away. One that could
// load nothing is not ready, for a bounded time, and one that has served stays ready.
func TestAReplicaThatServesNothingIsNotReady(t *testing.T) {
	t.Parallel()
	a := &away{}
	a.set(says("p"), nil)
	old := newReplica(t, with(a))
	declared := old.write(t, "policies.yaml", file(inSource("p", podRules)))
	follow := func(r *replica) (stop func()) {
		ctx, stop := context.WithCancel(t.Context())
		_ = r.FollowFile(ctx, declared) // Ready has the error.
		return stop
	}
	defer follow(old)()
	if err := old.Ready(); err != nil {
		t.Fatal(err)
	}
	a.set(nil, nil)
	young := newReplica(t, with(a))
	stop := follow(young)
	if err := young.Ready(); err == nil || !strings.Contains(err.Error(), `policy "p" is not available`) || !strings.Contains(err.Error(), "the registry is away") {
		t.Errorf("ready without a policy: %v", err)
	}
	if got := young.state("p"); got != "Unavailable" {
		t.Errorf("the state is %s", got)
	}
	until(t, "the replica that serves is stale", func() bool { return old.state("p") == "Stale" })
	if err := old.Ready(); err != nil || old.ask("Pod") != "p" {
		t.Errorf("a replica that serves: %v", err)
	}
	// A restart of the replica that served goes on with its last module.
	old.restart()
	again := follow(old)
	if err := old.Ready(); err != nil || old.ask("Pod") != "p" || old.state("p") != "Stale" {
		t.Errorf("after a restart: %v, %s", err, old.state("p"))
	}
	a.set(says("p"), nil)
	for name, r := range map[string]*replica{"young": young, "old": old} {
		until(t, name+" is ready", func() bool { return r.Ready() == nil && r.state("p") == "Serving" })
	}
	if x, y := old.answers(), young.answers(); x != y {
		t.Errorf("the replicas answer\n%s\n%s", x, y)
	}
	again()
	stop()

	a.set(nil, nil)
	bounded := newReplica(t, func(r *replica) {
		with(a)(r)
		r.ready = 20 * time.Millisecond
	})
	defer follow(bounded)()
	if err := bounded.Ready(); err == nil {
		t.Error("it is ready at once")
	}
	until(t, "ready after the timeout", func() bool { return bounded.Ready() == nil })
	if got := bounded.ask("Pod"); !strings.Contains(got, "is not available") {
		t.Errorf("message is %q", got)
	}
}

// TestASlowModuleDelaysNothingElse changes policies while the source of one does not answer.
func TestASlowModuleDelaysNothingElse(t *testing.T) {
	t.Parallel()
	a, slow := &away{}, make(chan struct{})
	a.set(says("slow"), slow)
	r := newReplica(t, with(a))
	if err := r.apply(file(plugin("p", rules))); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	declared := r.write(t, "policies.yaml", file(plugin("p", rules), inSource("s", podRules)))
	var following sync.WaitGroup
	following.Go(func() { _ = r.FollowFile(ctx, declared) })
	until(t, "the slow one is being loaded", func() bool { return r.state("s") == "Loading" })
	if got := r.ask("Pod"); got != "p" {
		t.Errorf("%q answers", got)
	}
	// An emergency stop, a change of another policy and one of the API: while the fetch hangs.
	if err := r.SetEnabled("p", false); err != nil {
		t.Fatal(err)
	}
	if got := r.ask("Pod"); got != "" {
		t.Errorf("disabled, and %q answers", got)
	}
	if err := r.Load(t.Context(), policyNamed(t, "api"), says("api")); err != nil {
		t.Fatal(err)
	}
	if got := r.ask("Pod"); got != "api: api" {
		t.Errorf("%q answers", got)
	}
	next, err := manage.ParseFile([]byte(file(plugin("next", rules), inSource("s", podRules))))
	if err != nil {
		t.Fatal(err)
	}
	applied := make(chan error, 1)
	go func() { applied <- r.Apply(t.Context(), next) }()
	until(t, "a newer file is in service", func() bool { return r.ask("Pod") == "next: next; api: api" })
	if got := r.state("p"); got != "Disabled disabled" {
		t.Errorf("a policy that the newer file lacks is %s before the others are loaded", got)
	}
	close(slow)
	if err := <-applied; err != nil {
		t.Error(err)
	}
	if got := r.ask("Pod"); got != "next: next; s: slow; api: api" || r.state("p") != "gone" {
		t.Errorf("%q answers, p is %s", got, r.state("p"))
	}
	stop()
	following.Wait()

	// A declaration that is replaced does not come into service, even if its module comes late.
	late := make(chan struct{})
	a.set(says("late"), late)
	go func() { applied <- r.apply(file(inSource("s", podRules+", guestConfig: {n: 1}"))) }()
	until(t, "a change is being loaded", func() bool { return len(r.List()) != 0 && r.ask("Pod") != "" })
	a.set(says("new"), nil)
	if err := r.apply(file(inSource("s", podRules+", guestConfig: {n: 2}"))); err != nil {
		t.Fatal(err)
	}
	close(late)
	<-applied
	if got := r.ask("Pod"); got != "s: new; api: api" {
		t.Errorf("%q answers", got)
	}

	// Close ends loads.
	hangs := make(chan struct{})
	defer close(hangs)
	a.set(says("never"), hangs)
	go func() { applied <- r.apply(file(inSource("t", podRules))) }()
	until(t, "the last one is being loaded", func() bool { return r.state("t") == "Loading" })
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-applied; !errors.Is(err, host.ErrClosed) {
		t.Errorf("the declaration that was not applied: %v", err)
	}
}

// TestModulesAreNotKeptInMemory loads many policies of one module, each in several versions.
func TestModulesAreNotKeptInMemory(t *testing.T) {
	built, err := guestbuild.Build(t.Context(), "../../../examples/admission/required-labels")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	const policies, versions = 16, 3
	r := newReplica(t, nil)
	heap := func() int {
		var s runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&s)
		return int(s.HeapAlloc)
	}
	before := heap()
	config := func(version int) string { return fmt.Sprintf("{labels: [team-%d]}", version) }
	for version := range versions {
		var declared []string
		for n := range policies {
			declared = append(declared, fmt.Sprintf("{name: p%d, module: {file: %s}, guestConfig: %s%s}", n, built, config(version), rules))
		}
		if err := r.apply(file(declared...)); err != nil {
			t.Fatal(err)
		}
		spec := policyNamed(t, "api")
		spec.GuestConfig = host.GuestConfig(config(version))
		if err := yaml.Unmarshal(spec.GuestConfig, &spec.GuestConfig); err != nil {
			t.Fatal(err)
		}
		if err := r.Load(t.Context(), spec, module); err != nil {
			t.Fatal(err)
		}
	}
	if grown := heap() - before; grown > policies*len(module)/4 {
		t.Errorf("the heap has grown by %d bytes for %d policies of a module of %d bytes", grown, policies, len(module))
	}
	// Their versions are there all the same.
	for _, name := range []string{"p0", "api"} {
		v, err := r.Rollback(t.Context(), name, "")
		if err != nil || !strings.Contains(string(v.Spec.GuestConfig), fmt.Sprint("team-", versions-2)) {
			t.Errorf("%s: %s, %v", name, v.Spec.GuestConfig, err)
		}
	}
}
