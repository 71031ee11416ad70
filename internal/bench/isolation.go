package main

import (
	"fmt"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchIsolation compares isolation by process with none: a call that does nothing, a verdict and a
// decision of guests in Go.
func benchIsolation(b *bench) error {
	policy, err := guestbuild.Build(b.ctx, source("../../examples/admission/required-labels"))
	if err != nil {
		return err
	}
	hook, err := guestbuild.Build(b.ctx, source("../../examples/hooks/cpu-from-annotation"))
	if err != nil {
		return err
	}
	body, err := review(pod())
	if err != nil {
		return err
	}
	var failed error
	var runtimes []*host.Runtime
	defer func() {
		for _, rt := range runtimes {
			rt.Close(b.ctx)
		}
	}()
	// The operations at a level: a call, a verdict with each policy for resets, and a decision.
	operations := func(level host.Isolation) (list []func(n int), err error) {
		rt, err := host.NewRuntime(host.RuntimeConfig{MinimumIsolation: level})
		if err != nil {
			return nil, err
		}
		runtimes = append(runtimes, rt)
		p, err := rt.Load(b.ctx, host.Config{Name: "noop", Module: host.ModuleConfig{File: source("../../host/testdata/noop.wasm")}}, host.Adapter{Kind: abi.KindScheduler})
		if err != nil {
			return nil, err
		}
		list = append(list, func(n int) {
			for range n {
				inst, err := p.Acquire(b.ctx)
				if err == nil {
					_, err = inst.Call(b.ctx, abi.Filter, 0, 0, 0)
					inst.Release()
				}
				if err != nil {
					failed = err
				}
			}
		})
		for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetPerCall} {
			p, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{
				Name: "required-labels " + string(reset), Module: host.ModuleConfig{File: policy}, Reset: reset,
				GuestConfig: []byte(`{"labels": ["app", "team"], "registries": ["registry.example.com/"]}`),
			}})
			if err != nil {
				return nil, err
			}
			engine := admission.NewEngine(p)
			list = append(list, func(n int) {
				for range n {
					request, err := admission.DecodeReview(body)
					if err == nil && !engine.Validate(b.ctx, request).Allowed {
						err = fmt.Errorf("the policy denied the Pod")
					}
					if err != nil {
						failed = err
					}
				}
			})
		}
		engine, err := hooks.NewEngine(b.ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
			Config: host.Config{Name: "cpu-from-annotation", Module: host.ModuleConfig{File: hook}},
		}}})
		if err != nil {
			return nil, err
		}
		request := hookRequest()
		return append(list, func(n int) {
			for range n {
				if _, err := engine.Decide(b.ctx, request); err != nil {
					failed = err
				}
			}
		}), nil
	}
	none, err := operations(host.IsolationNone)
	if err != nil {
		return err
	}
	process, err := operations(host.IsolationProcess)
	if err != nil {
		return err
	}
	for n, row := range []struct {
		what   string
		target target
	}{
		{"a call that does nothing, in a process", target{time: 3 * time.Microsecond, noAllocs: true}},
		{"a verdict, in a process", target{beyond: 8 * time.Microsecond}},
		{"a verdict with reset: PerCall, in a process", target{beyond: 8 * time.Microsecond}},
		{"a hook's decision, in a process", target{beyond: 5 * time.Microsecond}},
	} {
		b.compare(row.what, row.target, process[n], "isolation: none", none[n])
	}
	return failed
}
