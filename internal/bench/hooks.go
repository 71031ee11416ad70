package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchHooks measures one decision about a container.
func benchHooks(b *bench) error {
	file, err := guestbuild.Build(b.ctx, source("../../examples/hooks/cpu-from-annotation"))
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	engine, err := hooks.NewEngine(b.ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{
		Module: host.Config{Name: "cpu-from-annotation", Source: host.File(file)},
	}}})
	if err != nil {
		return err
	}
	p := pod()
	request := &hookpb.Request{
		Stage: hookpb.PreStartContainer, Level: hookpb.LevelContainer, QOSClass: hookpb.QOSBurstable,
		Pod:       hookpb.PodMeta{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)},
		Container: hookpb.ContainerMeta{Name: "web", ID: strings.Repeat("4b1f", 16)},
		PodLabels: p.Labels, PodAnnotations: p.Annotations,
		CgroupParent:  "kubepods/burstable/pod" + string(p.UID),
		ContainerEnvs: map[string]string{},
	}
	for i := range 24 {
		request.ContainerEnvs[fmt.Sprintf("SHOP_FEATURE_%d_SETTING", i)] = "a value of the usual length " + strconv.Itoa(i)
	}
	var failed error
	check := func(d *hookpb.Decision, err error) {
		if err == nil && (d == nil || d.Resources == nil || *d.Resources.CPUShares != 1536) {
			err = fmt.Errorf("unexpected decision %+v", d)
		}
		if err != nil {
			failed = err
		}
	}
	what := fmt.Sprintf("decision on a %.1f KB request, Go guest", float64(len(hookpb.AppendRequest(nil, request)))/1e3)
	b.compare(what, target{time: 5 * time.Microsecond}, func(n int) {
		for range n {
			check(engine.Decide(b.ctx, request))
		}
	}, "native function", func(n int) {
		for range n {
			check(nativeDecide(request))
		}
	})
	return failed
}

// nativeDecide does what the guest does.
func nativeDecide(r *hookpb.Request) (*hookpb.Decision, error) {
	cpu, ok := r.PodAnnotations["kubewasm.dev/cpu"]
	if !ok {
		return nil, nil
	}
	digits, isMilli := strings.CutSuffix(cpu, "m")
	milli, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return nil, err
	}
	if !isMilli {
		milli *= 1000
	}
	shares, quota, period := milli*1024/1000, milli*100, int64(100_000)
	return &hookpb.Decision{Resources: &hookpb.Resources{CPUShares: &shares, CFSQuotaUS: &quota, CFSPeriodUS: &period}}, nil
}
