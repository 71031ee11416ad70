package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// hook asks for decisions at the start of each Pod and of its containers, on the first Node.
func (t *trial) hook(ctx context.Context) error {
	if len(t.objects.Pods) == 0 {
		return errors.New("a hook needs Pods, and there are none")
	}
	// The decisions are not applied, so all are shown, with the grants that they need.
	var needs hooks.Grants
	var never []*hooks.GrantError
	engine, err := hooks.NewEngine(ctx, t.rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: t.cfg}}, Audit: func(_ context.Context, _ *hookmsg.Request, _ string, err *hooks.GrantError) {
		if err.Grants == nil {
			never = append(never, err)
			return
		}
		needs.Add(err.Grants)
	}})
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	t.loaded()
	var node *hookmsg.Node
	if len(t.objects.Nodes) != 0 {
		node = manifest.HookNode(t.objects.Nodes[0])
	}
	for _, pod := range t.objects.Pods {
		for _, request := range manifest.HookRequests(pod) {
			about := "Pod " + pod.Namespace + "/" + pod.Name
			if request.Container.Name != "" {
				about += " container " + request.Container.Name
			}
			never = nil
			request.Node = node
			decision, err := engine.Decide(ctx, request)
			for _, refused := range never {
				err = errors.Join(err, refused)
			}
			if trap := (*host.TrapError)(nil); errors.As(err, &trap) {
				t.failed(err, "")
			}
			if err != nil {
				t.refusals++
				t.verdicts.add(verdict{heads: hookHeads, Object: about, Verdict: "failed", Cost: t.cost(), Message: err.Error(), bad: true})
				continue
			}
			t.verdicts.add(verdict{heads: hookHeads, Object: about, Verdict: "decided", Cost: t.cost(), Message: decided(decision)})
		}
	}
	b, err := json.Marshal(needs)
	if err == nil && string(b) != "{}" {
		t.verdicts.Notes = append(t.verdicts.Notes, fmt.Sprintf("\nOn a node these decisions need:\n  decisionGrants: %s", b))
	}
	return err
}

// decided writes a decision in one line.
func decided(d *hookmsg.Decision) string {
	var parts []string
	number := func(name string, n *int64) {
		if n != nil {
			parts = append(parts, fmt.Sprintf("%s=%d", name, *n))
		}
	}
	text := func(name string, s *string) {
		if s != nil {
			parts = append(parts, fmt.Sprintf("%s=%q", name, *s))
		}
	}
	if r := d.Resources; r != nil {
		number("cpu_shares", r.CPUShares)
		number("cfs_quota_us", r.CFSQuotaUS)
		number("cfs_period_us", r.CFSPeriodUS)
		text("cpuset_cpus", r.CPUSetCPUs)
		text("cpuset_mems", r.CPUSetMems)
		number("cpu_bvt", r.CPUBvt)
		number("cpu_idle", r.CPUIdle)
		number("cpu_burst_us", r.CPUBurstUS)
		number("memory_limit_bytes", r.MemoryLimitBytes)
		number("memory_min_bytes", r.MemoryMinBytes)
		number("memory_low_bytes", r.MemoryLowBytes)
		number("memory_high_bytes", r.MemoryHighBytes)
		number("oom_score_adj", r.OOMScoreAdj)
		if len(r.Unified) != 0 {
			parts = append(parts, fmt.Sprint("unified=", r.Unified))
		}
		number("net_cls_classid", r.NetClsClassID)
		text("core_sched_group", r.CoreSchedGroup)
		text("resctrl_group", r.ResctrlGroup)
		text("resctrl_schemata", r.ResctrlSchemata)
	}
	if len(d.ContainerAnnotations) != 0 {
		parts = append(parts, fmt.Sprint("annotations=", d.ContainerAnnotations))
	}
	if len(d.ContainerEnvs) != 0 {
		parts = append(parts, fmt.Sprint("envs=", d.ContainerEnvs))
	}
	for _, m := range d.ContainerMounts {
		parts = append(parts, fmt.Sprintf("mount=%s:%s:%s(%s)", m.Type, m.Source, m.Destination, strings.Join(m.Options, ",")))
	}
	for _, v := range d.ContainerDevices {
		parts = append(parts, fmt.Sprintf("device=%s(%s %d:%d)", v.Path, v.Type, v.Major, v.Minor))
	}
	if len(parts) == 0 {
		return "nothing changes"
	}
	return strings.Join(parts, " ")
}
