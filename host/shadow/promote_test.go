package shadow_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/testkit/logged"
)

// A shadow ends when its candidate serves, also if what comes after that fails, and goes on if the
// candidate does not serve.
func TestAPromotionThatFails(t *testing.T) {
	failed := errors.New("the disk is full")
	for name, test := range map[string]struct {
		promote func(*shadow.Promotion) error
		want    shadow.State
	}{
		"before the candidate serves": {func(*shadow.Promotion) error { return failed }, shadow.Running},
		"after it serves":             {func(p *shadow.Promotion) error { return errors.Join(p.Claim(), failed) }, shadow.Promoted},
	} {
		t.Run(name, func(t *testing.T) {
			rt, err := host.NewRuntime(host.RuntimeConfig{})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(t.Context())
			log := new(logged.Log)
			cfg, adapter := host.Config{Name: "noop", Module: host.ModuleConfig{File: "../testdata/noop.wasm"}}, host.Adapter{Kind: abi.KindScheduler}
			guest, err := rt.Load(t.Context(), cfg, adapter)
			if err != nil {
				t.Fatal(err)
			}
			s, err := shadow.Begin(shadow.Config{Module: host.ModuleConfig{File: "../testdata/noop.wasm"}, Rate: 1}, shadow.Options{
				Plugin: "noop", Serving: guest, Runtime: rt, Logger: log.Logger(),
				Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
					change(&cfg)
					candidate, err := rt.Load(ctx, cfg, adapter)
					return component{candidate}, err
				},
				Promote: func(_ context.Context, p *shadow.Promotion) error { return test.promote(p) },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(t.Context())
			for s.Status().State == shadow.Loading {
				<-time.After(time.Millisecond)
			}
			if err := s.Promote(t.Context()); !errors.Is(err, failed) {
				t.Errorf("error %v, want that of the step", err)
			}
			if got := s.Status().State; got != test.want {
				t.Errorf("the shadow is %s, want %s", got, test.want)
			}
			if test.want == shadow.Promoted {
				<-s.Done()
				if s.Sampled() {
					t.Error("a shadow that has ended samples")
				}
				log.Check(t, map[string]int{"promoted the candidate": 1})
			}
		})
	}
}
