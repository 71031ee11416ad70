package nri

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/files"
)

// Supported are the fields that NRI carries when a container is created. An update carries the
// resources among them, except for the OOM score. On cgroup v1, runc creates no container with
// FieldUnified: NRI then carries only the files for which [SupportedFile] returns true.
const Supported = hookmsg.FieldCPUShares | hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod | hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUSetMems |
	hookmsg.FieldMemoryLimit | hookmsg.FieldOOMScoreAdj | hookmsg.FieldUnified | hookmsg.FieldContainerAnnotations | hookmsg.FieldContainerEnvs |
	hookmsg.FieldContainerMounts | hookmsg.FieldContainerDevices

// resources converts resources of the runtime; 0 means not specified.
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

// SupportedFile reports whether NRI has a field for a file of FieldUnified, of either version of
// cgroups: those of huge pages, and v1's limit of memory and swap. It is for
// [proxy.Config.SupportsFile].
func SupportedFile(name string) bool { return files.Supported(name) }

// Files returns the limits of huge pages and of swap in resources of the runtime as files of
// FieldUnified, with the names and units of a version of cgroups; nil for none. Files that the
// runtime has in Unified are not among them, since their texts take precedence.
func Files(v cgroup.Version, l *api.LinuxResources) map[string]string {
	limits := map[string]string{}
	for _, limit := range l.GetHugepageLimits() {
		name, text := files.Hugepages(v, limit.GetPageSize(), limit.GetLimit())
		limits[name] = text
	}
	if name, text, ok := files.Swap(v, l.GetMemory().GetLimit().GetValue(), l.GetMemory().GetSwap().GetValue()); ok {
		limits[name] = text
	}
	maps.DeleteFunc(limits, func(name, _ string) bool { _, ok := l.GetUnified()[name]; return ok })
	if len(limits) == 0 {
		return nil
	}
	return limits
}

// podResources returns the resources requested by the kubelet for the cgroup of a pod: those of its
// containers plus the overhead of the pod. The pod has no limit that its containers lack.
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

// PodRequest returns the request about a pod at a stage, with the resources at its creation. Its
// cgroup is the one named by the runtime. Its QoS class is set only if the layout has that cgroup
// for the pod, see [cgroup.Layout.CheckPod].
func PodRequest(l cgroup.Layout, stage abi.Stage, pod *api.PodSandbox) *hookmsg.Request {
	req := &hookmsg.Request{
		Stage: stage, Level: abi.LevelPod,
		Pod:       hookmsg.PodMeta{Namespace: pod.GetNamespace(), Name: pod.GetName(), UID: pod.GetUid()},
		PodLabels: pod.GetLabels(), PodAnnotations: pod.GetAnnotations(), CgroupParent: l.Parent(pod.GetLinux().GetCgroupParent()),
		Resources: podResources(pod.GetLinux().GetPodResources(), pod.GetLinux().GetPodOverhead()),
	}
	if class, err := l.CheckPod(req.Pod, req.CgroupParent); err == nil {
		req.QOSClass = class
	}
	return req
}

// PodUpdateRequest returns the request about a pod whose resources change in place. overhead and
// asked are the arguments of NRI's event UpdatePodSandbox.
func PodUpdateRequest(l cgroup.Layout, pod *api.PodSandbox, overhead, asked *api.LinuxResources) *hookmsg.Request {
	req := PodRequest(l, abi.PreUpdateContainerResources, pod)
	req.Resources = podResources(asked, overhead)
	return req
}

// ContainerRequest returns the request about a container at a stage. asked are the resources of
// NRI's event UpdateContainer; nil for other events, whose resources are those of the container.
func ContainerRequest(l cgroup.Layout, stage abi.Stage, pod *api.PodSandbox, c *api.Container, asked *api.LinuxResources) *hookmsg.Request {
	req := PodRequest(l, stage, pod)
	req.Level = abi.LevelContainer
	req.Container = hookmsg.ContainerMeta{Name: c.GetName(), ID: c.GetId()}
	req.ContainerAnnotations, req.ContainerEnvs = c.GetAnnotations(), envs(c.GetEnv())
	if asked == nil {
		asked = c.GetLinux().GetResources()
	}
	req.Resources = resources(asked)
	if score := c.GetLinux().GetOomScoreAdj(); score != nil {
		req.Resources.OOMScoreAdj = new(score.GetValue())
	}
	return req
}

// ContainerCgroup returns the path of a container's cgroup, for [proxy.Handler.Handle]. It is
// empty if the runtime names neither it nor the pod's. req is the container's request.
func ContainerCgroup(l cgroup.Layout, req *hookmsg.Request, c *api.Container) (string, error) {
	if path := l.Path(c.GetLinux().GetCgroupsPath()); path != "" || req.CgroupParent == "" {
		return path, nil
	}
	return l.Of(req)
}

// adjustable is the common interface of an adjustment and an update.
type adjustable interface {
	SetLinuxCPUShares(uint64)
	SetLinuxCPUQuota(int64)
	SetLinuxCPUPeriod(int64)
	SetLinuxCPUSetCPUs(string)
	SetLinuxCPUSetMems(string)
	SetLinuxMemoryLimit(int64)
	SetLinuxMemorySwap(int64)
	AddLinuxHugepageLimit(size string, bytes uint64)
	AddLinuxUnified(key, value string)
}

// adjust sets resources, and returns their fields.
func adjust(a adjustable, r *hookmsg.Resources) (set hookmsg.Fields) {
	if r == nil {
		return 0
	}
	number := func(field hookmsg.Fields, v *int64, to func(int64)) {
		if v != nil {
			to(*v)
			set |= field
		}
	}
	// NRI has no empty list; an empty list is written to the cgroup.
	text := func(field hookmsg.Fields, v *string, to func(string)) {
		if v != nil && *v != "" {
			to(*v)
			set |= field
		}
	}
	number(hookmsg.FieldCPUShares, r.CPUShares, func(v int64) { a.SetLinuxCPUShares(uint64(v)) })
	number(hookmsg.FieldCFSQuota, r.CFSQuotaUS, a.SetLinuxCPUQuota)
	number(hookmsg.FieldCFSPeriod, r.CFSPeriodUS, a.SetLinuxCPUPeriod)
	number(hookmsg.FieldMemoryLimit, r.MemoryLimitBytes, a.SetLinuxMemoryLimit)
	text(hookmsg.FieldCPUSetCPUs, r.CPUSetCPUs, a.SetLinuxCPUSetCPUs)
	text(hookmsg.FieldCPUSetMems, r.CPUSetMems, a.SetLinuxCPUSetMems)
	for _, key := range slices.Sorted(maps.Keys(r.Unified)) {
		value := r.Unified[key]
		set |= hookmsg.FieldUnified
		if size := files.HugepageSize(key); size != "" {
			// "max" has no number.
			if n, err := strconv.ParseUint(value, 10, 63); err == nil {
				a.AddLinuxHugepageLimit(size, n)
				continue
			}
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && key == files.Memsw {
			a.SetLinuxMemorySwap(n)
			continue
		}
		a.AddLinuxUnified(key, value)
	}
	return set
}

// Adjust adds a decision on a container that is created to an adjustment, which may have other
// settings of the caller. It returns the fields of the decision that NRI does not carry: a
// [proxy.Handler] writes the resources among them to the cgroup, as [cgroup.Applier.Apply] does
// once the container has a cgroup. A nil decision has no fields.
func Adjust(a *api.ContainerAdjustment, d *hookmsg.Decision) (left hookmsg.Fields) {
	if d.Fields() == 0 {
		return 0
	}
	set := adjust(a, d.Resources)
	if d.Resources != nil && d.Resources.OOMScoreAdj != nil {
		score := int(*d.Resources.OOMScoreAdj)
		a.SetLinuxOomScoreAdj(&score)
		set |= hookmsg.FieldOOMScoreAdj
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
	set |= hookmsg.FieldContainerAnnotations | hookmsg.FieldContainerEnvs | hookmsg.FieldContainerMounts | hookmsg.FieldContainerDevices
	return d.Fields() &^ set
}

// AdjustUpdate adds a decision on a container that exists to an update, which must name the
// container: NRI drops an update without an identifier. It returns the remaining fields, as
// [Adjust] does.
func AdjustUpdate(u *api.ContainerUpdate, d *hookmsg.Decision) (left hookmsg.Fields) {
	if d == nil {
		return 0
	}
	return d.Fields() &^ adjust(u, d.Resources)
}

// mountOptions returns the options of a mount. For runc the options make a bind mount, regardless
// of the type.
func mountOptions(m *hookmsg.Mount) []string {
	if m.Type != "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind") {
		return m.Options
	}
	return append([]string{"bind"}, m.Options...)
}

// adjustment returns the adjustment for a decision on a container being created, nil for none.
func adjustment(c *api.Container, d *hookmsg.Decision) *api.ContainerAdjustment {
	if d.Fields() == 0 {
		return nil
	}
	a := &api.ContainerAdjustment{}
	Adjust(a, d)
	keepSwap(a, d, c.GetLinux().GetResources())
	replaceFiles(a, d, c.GetLinux().GetResources())
	return a
}

// update returns the update for a decision on an existing container, nil for none. asked are the
// resources of NRI's event UpdateContainer, nil for other events.
func update(c *api.Container, asked *api.LinuxResources, d *hookmsg.Decision) *api.ContainerUpdate {
	u := &api.ContainerUpdate{ContainerId: c.GetId()}
	if left := AdjustUpdate(u, d); d.Fields()&^left == 0 {
		return nil
	}
	keepSwap(u, d, asked, c.GetLinux().GetResources())
	replaceFiles(u, d, asked)
	return u
}

// replaceFiles sets the decided files that the runtime itself has in Unified, which take precedence
// over the fields for them.
func replaceFiles(a adjustable, d *hookmsg.Decision, l *api.LinuxResources) {
	if d.Resources == nil {
		return
	}
	for name := range l.GetUnified() {
		if text, ok := d.Resources.Unified[name]; ok && files.Supported(name) {
			a.AddLinuxUnified(name, text)
		}
	}
}

// keepSwap sets the sum of memory and swap for a decided limit of memory, so that the swap stays as
// in the first of the resources that limit it. Otherwise a limit above the sum would make the
// runtime refuse the container, and one below it would add swap.
func keepSwap(a adjustable, d *hookmsg.Decision, resources ...*api.LinuxResources) {
	if d.Resources == nil || d.Resources.MemoryLimitBytes == nil {
		return
	}
	if _, decided := d.Resources.Unified[files.Memsw]; decided {
		return
	}
	for _, l := range resources {
		limit, sum := l.GetMemory().GetLimit().GetValue(), l.GetMemory().GetSwap().GetValue()
		if limit <= 0 || sum < limit {
			continue
		}
		if memory := *d.Resources.MemoryLimitBytes; memory >= 0 {
			a.SetLinuxMemorySwap(memory + sum - limit)
		} else {
			a.SetLinuxMemorySwap(-1)
		}
		return
	}
}
