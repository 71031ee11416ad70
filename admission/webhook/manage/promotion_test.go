package manage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// gated is a source whose fetches after the first wait, and tell that they do.
type gated struct {
	module         []byte
	fetches        atomic.Int32
	entered, leave chan struct{}
}

func (g *gated) String() string { return "gated" }

func (g *gated) Fetch(ctx context.Context) ([]byte, error) {
	if g.fetches.Add(1) == 1 {
		return g.module, nil
	}
	g.entered <- struct{}{}
	select {
	case <-g.leave:
		return g.module, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// shadowOf begins a shadow of policy p, and returns it when it compares.
func shadowOf(t *testing.T, f *fixture, cfg shadow.Config) *shadow.Shadow {
	t.Helper()
	cfg.Rate, cfg.CPU = 1, 1
	if err := f.BeginShadow(t.Context(), "p", cfg); err != nil {
		t.Fatal(err)
	}
	s, err := f.Shadow("p")
	if err != nil {
		t.Fatal(err)
	}
	for s.Status().State == shadow.Loading {
		<-time.After(time.Millisecond)
	}
	if got := s.Status(); got.State != shadow.Running {
		t.Fatalf("the shadow is %+v", got)
	}
	return s
}

// policyNamed returns the settings of a policy for all Pods, without a module.
func policyNamed(t *testing.T, name string) manage.PluginSpec {
	t.Helper()
	f, err := manage.ParseFile([]byte("plugins:\n- name: " + name + "\n  module: {file: x, follow: true}\n  " + podRules + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	spec := f.Plugins[0]
	spec.Module = host.ModuleConfig{}
	return spec
}

// What an operator does to a shadow while it is promoted, or before, decides what serves.
func TestPromotionIsOfTheShadowThatServesNext(t *testing.T) {
	for name, test := range map[string]struct {
		do   func(t *testing.T, f *fixture)
		want string
	}{
		"a shadow is ended before": {func(t *testing.T, f *fixture) {
			s := shadowOf(t, f, shadow.Config{Module: host.ModuleConfig{Bytes: says("A")}})
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := s.Promote(t.Context()); err == nil || !strings.Contains(err.Error(), "it is stopped: closed") {
				t.Errorf("error %v", err)
			}
		}, "one"},
		"a version is loaded before": {func(t *testing.T, f *fixture) {
			s := shadowOf(t, f, shadow.Config{Module: host.ModuleConfig{Bytes: says("A")}})
			if err := f.Load(t.Context(), policyNamed(t, "p"), says("three")); err != nil {
				t.Fatal(err)
			}
			shadowOf(t, f, shadow.Config{Module: host.ModuleConfig{Bytes: says("B")}})
			if err := s.Promote(t.Context()); err == nil {
				t.Error("the candidate of a version that is gone was promoted")
			}
		}, "three"},
		"another shadow begins meanwhile": {func(t *testing.T, f *fixture) {
			meanwhile(t, f, func(*shadow.Shadow) {
				if err := f.BeginShadow(t.Context(), "p", shadow.Config{Module: host.ModuleConfig{Bytes: says("B")}, GuestConfig: host.GuestConfig(`{"of":"B"}`)}); err != nil {
					t.Error(err)
				}
			})
			versions, err := f.Versions("p")
			if err != nil || string(versions[0].Spec.GuestConfig) != "" {
				t.Errorf("the policy has the configuration %s of the other shadow, error %v", versions[0].Spec.GuestConfig, err)
			}
		}, "one"},
		"the shadow is ended meanwhile": {func(t *testing.T, f *fixture) {
			meanwhile(t, f, func(s *shadow.Shadow) {
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}, "one"},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, nil)
			if err := f.Load(t.Context(), policyNamed(t, "p"), says("one")); err != nil {
				t.Fatal(err)
			}
			test.do(t, f)
			if got := f.ask("Pod"); got != test.want {
				t.Errorf("%q serves, want %q", got, test.want)
			}
		})
	}
}

// meanwhile promotes a shadow, and does something while its module is fetched. The promotion must
// fail.
func meanwhile(t *testing.T, f *fixture, do func(*shadow.Shadow)) {
	t.Helper()
	source := &gated{module: says("A"), entered: make(chan struct{}), leave: make(chan struct{})}
	s := shadowOf(t, f, shadow.Config{Module: host.ModuleConfig{Source: source}})
	promoted := make(chan error)
	go func() { promoted <- s.Promote(t.Context()) }()
	<-source.entered
	do(s)
	close(source.leave)
	if err := <-promoted; err == nil {
		t.Error("it was promoted")
	}
}

// One operator promotes a candidate while another ends its shadow, loads a version or begins another
// shadow. What serves is what the commands that succeeded say in some order.
func TestHistoriesOfPromotions(t *testing.T) {
	f := start(t, nil)
	const rounds = 120
	r := rand.New(rand.NewPCG(20261128, 47))
	for n := range rounds {
		before := fmt.Sprint("before-", n)
		if err := f.Load(t.Context(), policyNamed(t, "p"), says(before)); err != nil {
			t.Fatal(err)
		}
		s := shadowOf(t, f, shadow.Config{Module: host.ModuleConfig{Bytes: says("candidate")}})
		var wg sync.WaitGroup
		var promoteErr, otherErr error
		other := r.IntN(3)
		wg.Go(func() { promoteErr = s.Promote(t.Context()) })
		wg.Go(func() {
			switch other {
			case 0:
				otherErr = s.Close(t.Context())
			case 1:
				otherErr = f.Load(t.Context(), policyNamed(t, "p"), says("loaded"))
			case 2:
				otherErr = f.BeginShadow(t.Context(), "p", shadow.Config{Module: host.ModuleConfig{Bytes: says("other")}})
			}
		})
		wg.Wait()
		if otherErr != nil {
			t.Fatalf("round %d: command %d: %v", n, other, otherErr)
		}
		got, state := f.ask("Pod"), s.Status().State
		want := before
		switch {
		case other == 1: // After the load the candidate's version is gone.
			want = "loaded"
		case promoteErr == nil:
			want = "candidate"
		}
		if got != want {
			t.Fatalf("round %d: command %d: %q serves, want %q; promotion: %v", n, other, got, want, promoteErr)
		}
		if (state == shadow.Promoted) != (promoteErr == nil) {
			t.Fatalf("round %d: command %d: the shadow is %s, promotion: %v", n, other, state, promoteErr)
		}
	}
}
