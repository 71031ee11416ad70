package main

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchChange measures what it costs to change a plugin without fear.
func benchChange(b *bench) error {
	if err := benchProfile(b); err != nil {
		return err
	}
	return benchShadow(b)
}

// benchProfile measures a guest with a profiler beside the same without one.
func benchProfile(b *bench) error {
	nodeBytes, err := codec.Encode(node(1, 41))
	if err != nil {
		return err
	}
	podBytes, err := codec.Encode(pod())
	if err != nil {
		return err
	}
	inGo, err := guestbuild.Build(b.ctx, source("guests/filter"))
	if err != nil {
		return err
	}
	decoder, err := buildPlain(b.ctx, "guests/decode")
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	for _, g := range []struct {
		name   string
		source host.Source
	}{
		{"Go guest", host.File(inGo)},
		{"Go guest that decodes the whole Node", host.Bytes(decoder)},
	} {
		var failed error
		version := uint32(1)
		var releases []func()
		run := func(profiler *host.Profiler) (func(int), error) {
			filter, release, err := loadProfiledFilter(b, rt, g.source, profiler, podBytes, nodeBytes)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", g.name, err)
			}
			releases = append(releases, release)
			return func(times int) {
				for range times {
					version++
					if err := filter(version); err != nil {
						failed = err
					}
				}
			}, nil
		}
		profiled, err := run(&host.Profiler{})
		if err != nil {
			return err
		}
		plain, err := run(nil)
		if err != nil {
			return err
		}
		b.compare("profile of a "+g.name, target{ratio: 3}, profiled, "without a profile", plain)
		for _, release := range releases {
			release()
		}
		if failed != nil {
			return fmt.Errorf("%s: %w", g.name, failed)
		}
	}
	return nil
}

// benchShadow measures what callers of a policy notice of a shadow that misbehaves.
func benchShadow(b *bench) error {
	serving, err := guestbuild.Build(b.ctx, source("../../examples/admission/required-labels"))
	if err != nil {
		return err
	}
	candidate, err := guestbuild.Build(b.ctx, source("guests/misbehaves"))
	if err != nil {
		return err
	}
	body, err := review(pod())
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	plugin, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{
		Name: "required-labels", Module: host.ModuleConfig{File: serving},
		GuestConfig: []byte(`{"labels": ["app", "team"], "registries": ["registry.example.com/"]}`),
	}})
	if err != nil {
		return err
	}
	defer plugin.Close(b.ctx)
	engine := admission.NewEngine(plugin)
	const calls, warm = 4000, 400
	took := make([]float64, calls)
	p99 := func() (float64, error) {
		runtime.GC() // What was loaded and closed before is no part of it.
		for i := range warm + calls {
			start := time.Now()
			request, err := admission.DecodeReview(body)
			if err != nil {
				return 0, err
			}
			if !engine.Validate(b.ctx, request).Allowed {
				return 0, errors.New("the policy denied the Pod")
			}
			if i >= warm {
				took[i-warm] = float64(time.Since(start))
			}
			runtime.Gosched() // As a server, which waits for its next request.
		}
		slices.Sort(took)
		return took[calls*99/100], nil
	}
	for _, how := range []string{"loop", "trap", "hog"} {
		var with, without, ratios []float64
		for range rounds {
			err := plugin.BeginShadow(b.ctx, shadow.Config{Module: host.ModuleConfig{File: candidate}, GuestConfig: fmt.Appendf(nil, `{"how": %q}`, how), Failures: 1 << 30})
			if err != nil {
				return err
			}
			s := plugin.Shadow()
			for s.Status().State == shadow.Loading {
				time.Sleep(time.Millisecond)
			}
			got, err := p99()
			if status := s.Status(); err == nil && status.State == shadow.Stopped {
				err = fmt.Errorf("the shadow has stopped: %s", status.Reason)
			}
			if err := errors.Join(err, s.Close(b.ctx)); err != nil {
				return err
			}
			with = append(with, got)
			if got, err = p99(); err != nil {
				return err
			}
			without = append(without, got)
			ratios = append(ratios, with[len(with)-1]/got)
		}
		ratio := median(ratios)
		b.add("p99 of a policy with a shadow at 10 % that "+map[string]string{"loop": "loops", "trap": "traps", "hog": "takes all memory"}[how],
			short(time.Duration(median(with))), "without a shadow", short(time.Duration(median(without))), ratio, "<= 1.05x", ratio <= 1.05)
	}
	return nil
}
