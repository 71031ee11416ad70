package runtimehook

import (
	"maps"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/files"
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

// withFiles returns the resources of a request with the limits of huge pages and of swap as files of
// FieldUnified, of those that a plugin owns. Files that the request names take precedence.
func withFiles(v cgroup.Version, r *hookmsg.Resources, p *pb.LinuxContainerResources, owns func(file string) bool) *hookmsg.Resources {
	limits := map[string]string{}
	add := func(name, text string) {
		if _, ok := p.GetUnified()[name]; !ok && owns(name) {
			limits[name] = text
		}
	}
	for _, limit := range p.GetHugepageLimits() {
		add(files.Hugepages(v, limit.GetPageSize(), limit.GetLimit()))
	}
	if name, text, ok := files.Swap(v, p.GetMemoryLimitInBytes(), p.GetMemorySwapLimitInBytes()); ok {
		add(name, text)
	}
	if len(limits) == 0 {
		return r
	}
	return r.Overlay(&hookmsg.Resources{Unified: limits})
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
	rest := map[string]string{}
	for name, text := range d.Unified {
		if !carry(out, name, text) {
			rest[name] = text
		}
	}
	out.Unified = overlay(out.Unified, rest)
	return out
}

// carry sets the field that stands for a file of FieldUnified, and reports whether there is one.
func carry(out *pb.LinuxContainerResources, name, text string) bool {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && name == files.Memsw {
		out.MemorySwapLimitInBytes = n
		return true
	}
	size := files.HugepageSize(name)
	n, err := strconv.ParseUint(text, 10, 63) // "max" has no number.
	if _, named := out.Unified[name]; size == "" || err != nil || named {
		return false
	}
	for _, limit := range out.HugepageLimits {
		if limit.GetPageSize() == size {
			limit.Limit = n
			return true
		}
	}
	out.HugepageLimits = append(out.HugepageLimits, &pb.HugepageLimit{PageSize: size, Limit: n})
	return true
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
