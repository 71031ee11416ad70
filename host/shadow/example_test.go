package shadow_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// component is an adapter of its own: it asks a plugin about numbers.
type component struct{ guest *host.Plugin }

func (c component) Guest() *host.Plugin             { return c.guest }
func (c component) Close(ctx context.Context) error { return c.guest.Close(ctx) }

func (c component) ask(ctx context.Context, n uint64) (uint64, error) {
	inst, err := c.guest.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer inst.Release()
	return inst.Call(ctx, abi.Filter, 0, n, 0)
}

// A component asks a plugin, and a candidate the same in the background.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	cfg, adapter := host.Config{Name: "noop", Module: host.ModuleConfig{File: "../testdata/noop.wasm"}}, host.Adapter{Kind: abi.KindScheduler}
	guest, err := rt.Load(ctx, cfg, adapter)
	if err != nil {
		log.Fatal(err)
	}
	serving := component{guest}
	s, err := shadow.Begin(shadow.Config{Module: host.ModuleConfig{File: "../testdata/noop.wasm"}, Rate: 1}, shadow.Options{
		Plugin: "noop", Serving: guest, Runtime: rt,
		Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
			cfg := cfg
			change(&cfg)
			candidate, err := rt.Load(ctx, cfg, adapter)
			return component{candidate}, err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	for s.Status().Compared == 0 {
		was, err := serving.ask(ctx, 0)
		if err != nil {
			log.Fatal(err)
		}
		if s.Sampled() && s.Room(8) {
			s.Offer(func(ctx context.Context, c shadow.Candidate) shadow.Outcome {
				is, err := c.(component).ask(ctx, 0)
				return shadow.Outcome{Serving: fmt.Sprint(was), Candidate: fmt.Sprint(is), Err: err}
			}, 8, nil)
		}
		time.Sleep(time.Millisecond)
	}
	status := s.Status()
	fmt.Println(status.State, "same:", status.Same == status.Compared)
	if err := s.Close(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: running same: true
}
