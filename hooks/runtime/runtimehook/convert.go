package runtimehook

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	pb "github.com/kubewasm/kubewasm/hooks/runtime/runtimehook/runtimehookpb"
)

// supported are the fields in the protocol.
const supported = hookmsg.FieldCPUShares | hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod | hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUSetMems |
	hookmsg.FieldMemoryLimit | hookmsg.FieldOOMScoreAdj | hookmsg.FieldUnified | hookmsg.FieldContainerAnnotations | hookmsg.FieldContainerEnvs

// fields pairs the numbers of both messages.
func fields(r *hookmsg.Resources, p *pb.LinuxContainerResources) []struct {
	ours   **int64
	theirs *int64
} {
	return []struct {
		ours   **int64
		theirs *int64
	}{
		{&r.CFSPeriodUS, &p.CpuPeriod}, {&r.CFSQuotaUS, &p.CpuQuota}, {&r.CPUShares, &p.CpuShares},
		{&r.MemoryLimitBytes, &p.MemoryLimitInBytes}, {&r.OOMScoreAdj, &p.OomScoreAdj},
	}
}

// resources converts the resources of a request: 0 means not specified.
func resources(p *pb.LinuxContainerResources) *hookmsg.Resources {
	if p == nil {
		return nil
	}
	r := &hookmsg.Resources{Unified: p.Unified}
	for _, f := range fields(r, p) {
		if *f.theirs != 0 {
			*f.ours = new(*f.theirs)
		}
	}
	if p.CpusetCpus != "" {
		r.CPUSetCPUs = &p.CpusetCpus
	}
	if p.CpusetMems != "" {
		r.CPUSetMems = &p.CpusetMems
	}
	return r
}

// envs converts an environment. The protocol does not keep its order, so the result is sorted by
// name.
func envs(m map[string]string) []hookmsg.Env {
	envs := make([]hookmsg.Env, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		envs = append(envs, hookmsg.Env{Name: name, Value: m[name]})
	}
	return envs
}

// echo returns the resources of a request overlaid with the decision.
func echo(p *pb.LinuxContainerResources, d *hookmsg.Resources) *pb.LinuxContainerResources {
	if d == nil {
		return p
	}
	out := new(pb.LinuxContainerResources)
	if p != nil {
		out = proto.Clone(p).(*pb.LinuxContainerResources)
	}
	for _, f := range fields(d, out) {
		if *f.ours != nil {
			*f.theirs = **f.ours
		}
	}
	// For an empty list, the runtime creates a cgroup with the parent's list.
	if d.CPUSetCPUs != nil {
		out.CpusetCpus = *d.CPUSetCPUs
	}
	if d.CPUSetMems != nil {
		out.CpusetMems = *d.CPUSetMems
	}
	out.Unified = overlay(out.Unified, d.Unified)
	return out
}

// overlay returns base with the entries of top.
func overlay(base, top map[string]string) map[string]string {
	if len(top) == 0 {
		return base
	}
	merged := maps.Clone(base)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, top)
	return merged
}
