package manage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// building is a host.Observer that reports each build and blocks until it may end.
type building struct{ begun, end chan struct{} }

func newBuilding() *building { return &building{make(chan struct{}), make(chan struct{})} }

func (b *building) Built(context.Context, host.BuildEvent) {
	b.begun <- struct{}{}
	<-b.end
}

func (*building) Called(context.Context, host.CallEvent) {}
func (*building) Refused(context.Context, string, error) {}
func (*building) Restarted(string, bool)                 {}
func (*building) CacheHits(string, string, uint64)       {}
func (b *building) finish()                              { b.end <- struct{}{} }
func observed(b *building, dir string) func(*manage.Config) {
	return func(c *manage.Config) { c.HostObserver, c.Directory = b, dir }
}

// TestFailedLoadsLeaveNoPolicy loads a policy twice at the same time, and both loads fail.
func TestFailedLoadsLeaveNoPolicy(t *testing.T) {
	t.Parallel()
	b := newBuilding()
	f := start(t, observed(b, ""))
	failed := make(chan error, 2)
	for _, version := range []string{"1", "2"} {
		spec := policyNamed(t, "p")
		spec.Version = version
		go func() { failed <- f.Load(t.Context(), spec, []byte("no module")) }()
		until(t, "the load has begun", func() bool {
			list := f.List()
			return len(list) == 1 && list[0].Version == version
		})
		if version == "1" {
			<-b.begun
		}
	}
	b.finish()
	<-b.begun
	b.finish()
	for range 2 {
		if err := <-failed; err == nil {
			t.Error("the module was loaded")
		}
	}
	if list := f.List(); len(list) != 0 {
		t.Errorf("policies are %+v", list)
	}
}

// TestAPolicyThatWasNeverLoadedIsNotStored disables a policy while its first version is loaded, which
// fails.
func TestAPolicyThatWasNeverLoadedIsNotStored(t *testing.T) {
	t.Parallel()
	b, dir := newBuilding(), filepath.Join(t.TempDir(), "state")
	f := start(t, observed(b, dir))
	failed := make(chan error, 1)
	go func() { failed <- f.Load(t.Context(), policyNamed(t, "p"), []byte("no module")) }()
	<-b.begun
	if err := f.SetEnabled("p", false); !errors.Is(err, manage.ErrNotFound) {
		t.Errorf("disable: %v, want ErrNotFound", err)
	}
	b.finish()
	if err := <-failed; err == nil {
		t.Error("the module was loaded")
	}
	if _, err := os.Stat(filepath.Join(dir, "p.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the record of a policy that was never loaded: %v", err)
	}
}

// TestADisabledPolicyStaysDisabledWhenALoadEnds disables a policy while another version is loaded.
func TestADisabledPolicyStaysDisabledWhenALoadEnds(t *testing.T) {
	t.Parallel()
	b := newBuilding()
	f := start(t, observed(b, ""))
	loaded := make(chan error, 1)
	for _, text := range []string{"one", "two"} {
		go func() { loaded <- f.Load(t.Context(), policyNamed(t, "p"), says(text)) }()
		<-b.begun
		if text == "two" {
			if err := f.SetEnabled("p", false); err != nil {
				t.Error(err)
			}
		}
		b.finish()
		if err := <-loaded; err != nil {
			t.Fatal(err)
		}
	}
	if got := f.ask("Pod"); got != "" {
		t.Errorf("a disabled policy answers %q", got)
	}
}

// TestConcurrentLoadsAreStored loads policies at the same time, and then restarts the server.
func TestConcurrentLoadsAreStored(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	restarted(t, dir, func(m *manage.Manager, _ func() string) {
		var loading sync.WaitGroup
		for p := range 6 {
			loading.Go(func() {
				for n := range 5 {
					spec := manage.PluginSpec{PluginConfig: admission.PluginConfig{Config: host.Config{Name: fmt.Sprint("p", p)}}}
					if err := m.Load(t.Context(), spec, says(fmt.Sprint(p, " ", n))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		loading.Wait()
	})
	restarted(t, dir, func(m *manage.Manager, _ func() string) {
		for _, info := range m.List() {
			if info.State != host.Serving {
				t.Errorf("policy %s is %s: %s", info.Name, info.State, info.Error)
			}
		}
	})
}

// TestARemovedPolicyOfAFileStaysRemoved removes a policy whose name a file waits for, and restarts
// the server.
func TestARemovedPolicyOfAFileStaysRemoved(t *testing.T) {
	t.Parallel()
	r := newReplica(t, nil)
	if err := r.Load(t.Context(), policyNamed(t, "p"), says("api")); err != nil {
		t.Fatal(err)
	}
	declared := file(plugin("p", rules))
	if err := r.apply(declared); err == nil {
		t.Fatal("the file is not refused")
	}
	if err := r.Remove("p"); err != nil {
		t.Fatal(err)
	}
	r.until(t, "Pod", "p")
	r.restart()
	if err := r.apply(declared); err != nil {
		t.Error(err)
	}
	if got := r.ask("Pod"); got != "p" {
		t.Errorf("%q answers", got)
	}
}

// TestAnOverrideLastsAsLongAsItsPolicy declares a disabled policy again while the file that lacks it
// is being applied, so that the policy never left. A restart does not change its state.
func TestAnOverrideLastsAsLongAsItsPolicy(t *testing.T) {
	t.Parallel()
	a, slow := &away{}, make(chan struct{})
	a.set(says("slow"), slow)
	defer close(slow)
	r := newReplica(t, with(a))
	declared := file(plugin("p", rules))
	if err := r.apply(declared); err != nil {
		t.Fatal(err)
	}
	if err := r.SetEnabled("p", false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	other, err := manage.ParseFile([]byte(file(inSource("s", podRules))))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(ctx, other); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if err := r.apply(declared); err != nil {
		t.Fatal(err)
	}
	before := r.state("p")
	r.restart()
	if err := r.apply(declared); err != nil {
		t.Fatal(err)
	}
	if after := r.state("p"); after != before || before != "Disabled disabled" {
		t.Errorf("the state is %q, and %q after a restart", before, after)
	}
}

// TestADisabledPolicyStaysDisabledWithoutItsPromotedVersion restarts a server whose directory has
// lost the promoted module of a policy that was disabled as well.
func TestADisabledPolicyStaysDisabledWithoutItsPromotedVersion(t *testing.T) {
	t.Parallel()
	r := newReplica(t, func(r *replica) { r.keeps = false })
	declared := file(plugin("p", rules))
	if err := r.apply(declared); err != nil {
		t.Fatal(err)
	}
	if err := shadowOf(t, r.fixture, shadow.Config{Module: host.ModuleConfig{Bytes: says("better")}}).Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.SetEnabled("p", false); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if err := os.RemoveAll(filepath.Join(r.dir, "state", "modules")); err != nil {
		t.Fatal(err)
	}
	r.start()
	if err := r.apply(declared); err != nil {
		t.Error(err)
	}
	if got, state := r.ask("Pod"), r.state("p"); got != "" || state != "Disabled disabled" {
		t.Errorf("%q answers, %s", got, state)
	}
}

// TestASlowModuleDoesNotDelayANewerFile starts with a file whose module does not come, and replaces
// the file.
func TestASlowModuleDoesNotDelayANewerFile(t *testing.T) {
	t.Parallel()
	a, slow := &away{}, make(chan struct{})
	a.set(says("slow"), slow)
	r := newReplica(t, with(a))
	declared := r.write(t, "policies.yaml", file(inSource("s", podRules)))
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { _ = r.FollowFile(ctx, declared) })
	defer following.Wait()
	defer stop()
	until(t, "the slow one is being loaded", func() bool { return r.state("s") == "Loading" })
	r.write(t, "policies.yaml", file(plugin("p", rules)))
	r.until(t, "Pod", "p")
	close(slow)
}

// TestDamagedOverridesAreNoErrorOfALoad loads a policy after the list of overrides was damaged.
func TestDamagedOverridesAreNoErrorOfALoad(t *testing.T) {
	t.Parallel()
	r := newReplica(t, nil)
	r.stop()
	if err := os.WriteFile(filepath.Join(r.dir, "state", "overrides.list"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start()
	if err := r.Load(t.Context(), policyNamed(t, "p"), says("p")); err != nil {
		t.Error(err)
	}
}
