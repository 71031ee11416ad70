package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchShared measures the private memory of the process that Go policies share: after ten requests to each,
// and after 1,000. Each policy has a module of its own. It needs the right to read what the process maps.
func benchShared(b *bench) error {
	policy, err := guestbuild.Build(b.ctx, source("../../examples/admission/required-labels"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kubewasm-bench-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	const most = 10
	modules, err := different(policy, dir, most)
	if err != nil {
		return err
	}
	body, err := review(pod())
	if err != nil {
		return err
	}
	var one [2]float64
	for _, n := range []int{1, 5, most} {
		var mb [2]float64
		err := func() error {
			rt, err := host.NewRuntime(host.RuntimeConfig{MinimumIsolation: host.IsolationProcess})
			if err != nil {
				return err
			}
			defer rt.Close(b.ctx)
			var engines []*admission.Engine
			for i := range n {
				p, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{
					Name: fmt.Sprint("policy-", i), Module: host.ModuleConfig{File: fmt.Sprint(modules, ".", i)},
					GuestConfig: fmt.Appendf(nil, `{"labels": ["app", "team"], "registries": ["registry.example.com/", "registry-%d.example.com/"]}`, i),
				}})
				if err != nil {
					return err
				}
				engines = append(engines, admission.NewEngine(p))
			}
			ask := func(times int) error {
				for range times {
					for _, e := range engines {
						request, err := admission.DecodeReview(body)
						if err == nil && !e.Validate(b.ctx, request).Allowed {
							err = errors.New("the policy denied the Pod")
						}
						if err != nil {
							return err
						}
					}
				}
				return nil
			}
			for end := time.Now().Add(5 * time.Minute); n > 1; time.Sleep(time.Second / 10) {
				of, err := children()
				if err != nil {
					return err
				}
				if len(of) == 1 {
					break
				}
				if time.Now().After(end) {
					return fmt.Errorf("%d policies have %d processes", n, len(of))
				}
			}
			for i, times := range []int{10, 1000} {
				if err := ask(times); err != nil {
					return err
				}
				time.Sleep(3 * time.Second) // The process gives memory back a second after the last start.
				of, err := children()
				if err != nil {
					return err
				}
				if mb[i], err = privateOf(of[0]); err != nil {
					return err
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
		if n == 1 {
			one = mb
			b.add("private memory of the process of a Go policy", fmt.Sprintf("%.1f MB", mb[0]), "after 1,000 requests", fmt.Sprintf("%.1f MB", mb[1]), 0, "<= 12 MB", mb[0] <= 12)
			continue
		}
		more := [2]float64{(mb[0] - one[0]) / float64(n-1), (mb[1] - one[1]) / float64(n-1)}
		b.add(fmt.Sprintf("private memory of the process of %d Go policies, a further one", n), fmt.Sprintf("%.1f MB, %.2f MB", mb[0], more[0]),
			"after 1,000 requests to each", fmt.Sprintf("%.1f MB, %.2f MB", mb[1], more[1]), 0, "<= 3 MB", more[0] <= 3)
	}
	return nil
}

// privateOf returns the private resident memory of a process in megabytes.
func privateOf(process int) (mb float64, err error) {
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", process))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(smaps)) {
		if fields := strings.Fields(line); len(fields) == 3 && strings.HasPrefix(fields[0], "Private_") {
			kb, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return 0, err
			}
			mb += kb / 1024
		}
	}
	return mb, nil
}
