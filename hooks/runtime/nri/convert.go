package nri

import (
	"os"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// supported are the fields that NRI has for the creation of a container. Those for
// an update are the resources among them, but for the OOM score.
const supported = hookmsg.FieldCPUShares | hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod | hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUSetMems |
	hookmsg.FieldMemoryLimit | hookmsg.FieldOOMScoreAdj | hookmsg.FieldUnified | hookmsg.FieldContainerAnnotations | hookmsg.FieldContainerEnvs |
	hookmsg.FieldContainerMounts | hookmsg.FieldContainerDevices

// resources converts what the runtime knows; 0 is not specified.
func resources(l *api.LinuxResources) *hookmsg.Resources {
	r := new(hookmsg.Resources)
	set := func(into **int64, v int64) {
		if v != 0 {
			*into = &v
		}
	}
	text := func(into **string, v string) {
		if v != "" {
			*into = &v
		}
	}
	cpu := l.GetCpu()
	set(&r.CPUShares, int64(cpu.GetShares().GetValue()))
	set(&r.CFSQuotaUS, cpu.GetQuota().GetValue())
	set(&r.CFSPeriodUS, int64(cpu.GetPeriod().GetValue()))
	text(&r.CPUSetCPUs, cpu.GetCpus())
	text(&r.CPUSetMems, cpu.GetMems())
	set(&r.MemoryLimitBytes, l.GetMemory().GetLimit().GetValue())
	if len(l.GetUnified()) != 0 {
		r.Unified = l.GetUnified()
	}
	return r
}

// podResources returns what the kubelet asks for the cgroup of a pod: the resources of
// its containers with the overhead of the pod. What the containers have no limit of,
// the pod has none of.
func podResources(containers, overhead *api.LinuxResources) *hookmsg.Resources {
	r, more := resources(containers), resources(overhead)
	for _, f := range []struct{ into, more *int64 }{
		{r.CPUShares, more.CPUShares}, {r.CFSQuotaUS, more.CFSQuotaUS}, {r.MemoryLimitBytes, more.MemoryLimitBytes},
	} {
		if f.into != nil && f.more != nil && *f.into > 0 && *f.more > 0 {
			*f.into += *f.more
		}
	}
	return r
}

func envs(list []string) []hookmsg.Env {
	envs := make([]hookmsg.Env, len(list))
	for i, env := range list {
		envs[i].Name, envs[i].Value, _ = strings.Cut(env, "=")
	}
	return envs
}

// adjustable is what an adjustment and an update have in common.
type adjustable interface {
	SetLinuxCPUShares(uint64)
	SetLinuxCPUQuota(int64)
	SetLinuxCPUPeriod(int64)
	SetLinuxCPUSetCPUs(string)
	SetLinuxCPUSetMems(string)
	SetLinuxMemoryLimit(int64)
	AddLinuxUnified(key, value string)
}

// adjust sets resources and reports whether there were any.
func adjust(a adjustable, r *hookmsg.Resources) (some bool) {
	if r == nil {
		return false
	}
	number := func(v *int64, set func(int64)) {
		if v != nil {
			set(*v)
			some = true
		}
	}
	// NRI knows no empty list; it is written to the cgroup.
	text := func(v *string, set func(string)) {
		if v != nil && *v != "" {
			set(*v)
			some = true
		}
	}
	number(r.CPUShares, func(v int64) { a.SetLinuxCPUShares(uint64(v)) })
	number(r.CFSQuotaUS, a.SetLinuxCPUQuota)
	number(r.CFSPeriodUS, a.SetLinuxCPUPeriod)
	number(r.MemoryLimitBytes, a.SetLinuxMemoryLimit)
	text(r.CPUSetCPUs, a.SetLinuxCPUSetCPUs)
	text(r.CPUSetMems, a.SetLinuxCPUSetMems)
	for key, value := range r.Unified {
		a.AddLinuxUnified(key, value)
		some = true
	}
	return some
}

// adjustment converts a decision on a container that is created, nil for none.
func adjustment(d *hookmsg.Decision) *api.ContainerAdjustment {
	if d.Fields() == 0 {
		return nil
	}
	a := &api.ContainerAdjustment{}
	adjust(a, d.Resources)
	if d.Resources != nil && d.Resources.OOMScoreAdj != nil {
		score := int(*d.Resources.OOMScoreAdj)
		a.SetLinuxOomScoreAdj(&score)
	}
	for key, value := range d.ContainerAnnotations {
		a.AddAnnotation(key, value)
	}
	for name, value := range d.ContainerEnvs {
		a.AddEnv(name, value)
	}
	for _, m := range d.ContainerMounts {
		a.AddMount(&api.Mount{Destination: m.Destination, Source: m.Source, Type: m.Type, Options: mountOptions(&m)})
	}
	for _, v := range d.ContainerDevices {
		device := &api.LinuxDevice{Path: v.Path, Type: v.Type, Major: v.Major, Minor: v.Minor}
		if v.FileMode != nil {
			device.FileMode = api.FileMode(os.FileMode(*v.FileMode))
		}
		if v.UID != nil {
			device.Uid = api.UInt32(uint32(*v.UID))
		}
		if v.GID != nil {
			device.Gid = api.UInt32(uint32(*v.GID))
		}
		a.AddDevice(device)
	}
	return a
}

// mountOptions returns those of a mount. To runc a bind mount is one by its
// options, whatever its type says.
func mountOptions(m *hookmsg.Mount) []string {
	if m.Type != "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind") {
		return m.Options
	}
	return append([]string{"bind"}, m.Options...)
}

// update converts a decision on a container that there is, nil for none. Without
// its identifier NRI would drop it without a word.
func update(id string, d *hookmsg.Decision) *api.ContainerUpdate {
	u := &api.ContainerUpdate{}
	if d == nil || !adjust(u, d.Resources) {
		return nil
	}
	u.SetContainerId(id)
	return u
}
