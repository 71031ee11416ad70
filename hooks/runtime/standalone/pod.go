package standalone

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	componentresource "k8s.io/component-helpers/resource"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Discovery lists the running pods on the node.
type Discovery interface {
	// Pods returns the pods that have cgroups. The caller owns the slice. The maps, slices and
	// resources of a pod must not be changed, since lists share them.
	Pods(ctx context.Context) ([]Pod, error)
}

// Partial is a [Discovery] that lacks some fields of containers.
type Partial interface {
	Discovery
	// Unknown returns the name of the discovery, for messages, and the fields of a request that it
	// lacks: "container_annotations", "container_envs".
	Unknown() (name string, fields []string)
}

// Pod is a pod on the node.
type Pod struct {
	// Namespace, Name and UID are those of the object. The kubelet uses the UID in the name of the
	// cgroup.
	Namespace, Name, UID string
	Labels, Annotations  map[string]string
	QOSClass             abi.QOSClass
	// Cgroup is the pod's cgroup. If it is empty, it is the path in the layout for the class and
	// the UID. A reconciler checks it against the UID, and derives the class from it.
	Cgroup string
	// Resources are the resources requested by the kubelet; nil fields are unknown.
	Resources *hookmsg.Resources
	// Derived is set if Resources, and those of the containers, are computed from the spec as a
	// kubelet does by default. The period, and the use of quotas, are then taken from the cgroups.
	Derived bool
	// Hugepages are the limits of huge pages requested by the kubelet, in bytes, by the kernel's
	// name of their size, "2MB".
	Hugepages  map[string]int64
	Containers []Container
}

// Container is a container that runs or is about to run.
type Container struct {
	// Name is the name in the pod's spec, and ID the identifier of the runtime.
	Name, ID string
	// Annotations are the annotations kept by the runtime, and Envs the environment. A Discovery
	// that lacks some of either is [Partial].
	Annotations map[string]string
	Envs        []hookmsg.Env
	// Cgroup is the container's cgroup. If it is empty, it is the path in the layout. A reconciler
	// checks that it lies in the pod's cgroup.
	Cgroup string
	// Resources are the resources requested by the kubelet; nil fields are unknown.
	Resources *hookmsg.Resources
	// Inferred is set if Resources are derived from the runtime's current resources. Those of an
	// event then take precedence.
	Inferred bool
	// Hugepages are the limits of huge pages, as in [Pod].
	Hugepages map[string]int64
	// SwapRequest is the memory in bytes from which a kubelet with LimitedSwap derives the swap of
	// the container, 0 if it has none.
	SwapRequest int64
}

func (p *Pod) meta() hookmsg.PodMeta {
	return hookmsg.PodMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func (c *Container) meta() hookmsg.ContainerMeta {
	return hookmsg.ContainerMeta{Name: c.Name, ID: c.ID}
}

// request returns the request about the pod, or about a container of it unless that is nil.
func (p *Pod) request(cgroup string, c *Container) *hookmsg.Request {
	req := &hookmsg.Request{
		Stage: abi.Reconcile, Level: abi.LevelPod, QOSClass: p.QOSClass,
		Pod:       p.meta(),
		PodLabels: p.Labels, PodAnnotations: p.Annotations,
		CgroupParent: cgroup, Resources: p.Resources,
	}
	if c != nil {
		req.Level = abi.LevelContainer
		req.Container = c.meta()
		req.ContainerAnnotations, req.ContainerEnvs, req.Resources = c.Annotations, c.Envs, c.Resources
	}
	return req
}

// PodOf converts a Pod object. Its containers are those with an identifier in the status that have
// not ended, including ephemeral ones. Their environment consists of the variables that the spec
// has in plain text.
//
// The UID is that of the object, which the kubelet uses in the name of the cgroup. The UID of a
// static pod is the hash of its configuration, as in the kubelet's list. Its mirror in the API
// server has a different UID. The mirror's annotation kubernetes.io/config.mirror is ignored, since
// any pod can be created with it.
//
// The resources are those that the kubelet derives from the spec: see ResourceConfigForPod and
// generateLinuxContainerResources in k8s.io/kubernetes. While a resize of the pod is pending they
// are unknown, since the kubelet does not yet request the resources in the spec. They are
// [Pod.Derived].
//
// They do not include resources of the node that a pod has through claims (DRA), which are missing
// in this module's version of the API. The resources of [Kubelet] and [File] include them.
func PodOf(pod *corev1.Pod) Pod { return podOf(pod, nil) }

// podOf is PodOf with the claims of a pod.
func podOf(pod *corev1.Pod, of claims) Pod {
	p := Pod{
		Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID), Labels: pod.Labels, Annotations: pod.Annotations,
		QOSClass: qosClass(pod), Derived: true,
	}
	// An in-place resize that is deferred or infeasible.
	pending := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizePending && c.Status == corev1.ConditionTrue
	})
	if !pending {
		p.Resources, p.Hugepages = podResources(pod, of)
	}
	statuses := map[string]*corev1.ContainerStatus{}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			statuses[list[i].Name] = &list[i]
		}
	}
	var ephemeral []corev1.Container
	for i := range pod.Spec.EphemeralContainers {
		ephemeral = append(ephemeral, corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers, ephemeral} {
		for i := range list {
			c := &list[i]
			status := statuses[c.Name]
			if status == nil || status.State.Terminated != nil {
				continue
			}
			// "containerd://4b1f".
			_, id, _ := strings.Cut(status.ContainerID, "://")
			if id == "" {
				continue
			}
			container := Container{Name: c.Name, ID: id}
			if !pending {
				container.Resources = containerResources(pod, c, of)
				container.Hugepages, container.SwapRequest = containerHugepages(pod, c, of), swapRequest(pod, c, p.QOSClass)
			}
			for _, env := range c.Env {
				if env.ValueFrom == nil {
					container.Envs = append(container.Envs, hookmsg.Env{Name: env.Name, Value: env.Value})
				}
			}
			p.Containers = append(p.Containers, container)
		}
	}
	return p
}

// finished reports whether a pod no longer has a cgroup.
func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// qosClass returns the class in the status or, before there is one, the class that the kubelet will
// derive from the spec.
func qosClass(pod *corev1.Pod) abi.QOSClass {
	switch pod.Status.QOSClass {
	case corev1.PodQOSGuaranteed:
		return abi.QOSGuaranteed
	case corev1.PodQOSBurstable:
		return abi.QOSBurstable
	case corev1.PodQOSBestEffort:
		return abi.QOSBestEffort
	}
	some, guaranteed := false, true
	lists := [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers}
	if r := pod.Spec.Resources; r != nil && len(r.Limits)+len(r.Requests) != 0 {
		lists = [][]corev1.Container{{{Resources: *r}}} // The pod's resources count instead.
	}
	for _, list := range lists {
		for i := range list {
			r := &list[i].Resources
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				limit, request := r.Limits[name], r.Requests[name]
				some = some || !limit.IsZero() || !request.IsZero()
				guaranteed = guaranteed && !limit.IsZero() && (request.IsZero() || request.Cmp(limit) == 0)
			}
		}
	}
	switch {
	case !some:
		return abi.QOSBestEffort
	case guaranteed:
		return abi.QOSGuaranteed
	}
	return abi.QOSBurstable
}

// Constants of the kubelet: k8s.io/kubernetes/pkg/kubelet/cm/helpers_linux.go.
const (
	minShares, maxShares = 2, 1 << 18
	period               = 100_000
	minQuota             = 1000
)

func shares(milli int64) *int64 { return new(min(max(milli*1024/1000, minShares), maxShares)) }

func quota(milli int64) *int64 {
	if milli == 0 {
		return nil
	}
	return new(max(milli*period/1000, minQuota))
}

// containerResources returns the resources requested by the kubelet for a container. If it has no
// limits, those of the pod apply.
func containerResources(pod *corev1.Pod, c *corev1.Container, of claims) *hookmsg.Resources {
	limit := func(name corev1.ResourceName, of claims) *resource.Quantity {
		if l, ok := c.Resources.Limits[name]; ok && !l.IsZero() {
			l = l.DeepCopy()
			l.Add(of.ofContainer(c.Name, name))
			return &l
		}
		if pod.Spec.Resources == nil {
			return new(resource.Quantity)
		}
		return new(pod.Spec.Resources.Limits[name])
	}
	cpuLimit := limit(corev1.ResourceCPU, of).MilliValue()
	cpuRequest := limit(corev1.ResourceCPU, nil).MilliValue() // The API server's default.
	if request, ok := c.Resources.Requests[corev1.ResourceCPU]; ok {
		cpuRequest = request.MilliValue()
	}
	r := &hookmsg.Resources{CPUShares: shares(cpuRequest), CFSQuotaUS: quota(cpuLimit), CFSPeriodUS: new(int64(period))}
	if memory := limit(corev1.ResourceMemory, of).Value(); memory > 0 {
		r.MemoryLimitBytes = &memory
	}
	return r
}

// podResources returns the resources requested by the kubelet for the cgroup of a pod: the sums of
// its containers, or the resources of the pod itself, plus its overhead. If a container lacks a
// limit and the pod sets none itself, the pod has no such limit.
func podResources(pod *corev1.Pod, of claims) (*hookmsg.Resources, map[string]int64) {
	// The API server sets missing requests to the limits.
	requested := *pod
	for _, list := range []*[]corev1.Container{&requested.Spec.InitContainers, &requested.Spec.Containers} {
		*list = slices.Clone(*list)
		for i := range *list {
			r := &(*list)[i].Resources
			if _, ok := r.Requests[corev1.ResourceCPU]; !ok {
				r.Requests = corev1.ResourceList{corev1.ResourceCPU: r.Limits[corev1.ResourceCPU]}
			}
		}
	}
	requests := componentresource.PodRequests(&requested, componentresource.PodResourcesOptions{})
	limits := componentresource.PodLimits(pod, componentresource.PodResourcesOptions{})
	limited := func(name corev1.ResourceName) bool {
		if pod.Spec.Resources != nil {
			if l, ok := pod.Spec.Resources.Limits[name]; ok && !l.IsZero() {
				return true
			}
		}
		for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
			for i := range list {
				if l, ok := list[i].Resources.Limits[name]; !ok || l.IsZero() {
					return false
				}
			}
		}
		return true
	}
	// with returns an amount plus that of the claims.
	with := func(q *resource.Quantity, name corev1.ResourceName) *resource.Quantity {
		sum := q.DeepCopy()
		sum.Add(of.ofPod(name))
		return &sum
	}
	r := &hookmsg.Resources{
		CPUShares:   shares(with(requests.Cpu(), corev1.ResourceCPU).MilliValue()),
		CFSPeriodUS: new(int64(period)),
	}
	if limited(corev1.ResourceCPU) {
		r.CFSQuotaUS = quota(with(limits.Cpu(), corev1.ResourceCPU).MilliValue())
	}
	if memory := with(limits.Memory(), corev1.ResourceMemory).Value(); limited(corev1.ResourceMemory) && memory > 0 {
		r.MemoryLimitBytes = &memory
	}
	if qosClass(pod) == abi.QOSBestEffort {
		r.CPUShares = shares(0) // Regardless of claims.
	}
	return r, podHugepages(requests, of)
}

// limitFields are the fields whose values depend on the kubelet's cpuCFSQuotaPeriod and
// cpuCFSQuota, and on its CPU manager.
const limitFields = hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod

// inForce returns derived resources with the period of the cgroup, and without the quota if the
// cgroup has none. The quota is scaled to the period.
func inForce(derived, found *hookmsg.Resources) *hookmsg.Resources {
	if derived == nil || found == nil || derived.CFSPeriodUS == nil {
		return derived
	}
	r := *derived
	if p := found.CFSPeriodUS; p != nil && *p > 0 && *p != *r.CFSPeriodUS {
		if q := r.CFSQuotaUS; q != nil && *q > 0 {
			r.CFSQuotaUS = new(max(*q/(*r.CFSPeriodUS)*(*p)+*q%(*r.CFSPeriodUS)*(*p)/(*r.CFSPeriodUS), minQuota))
		}
		r.CFSPeriodUS = p
	}
	// cpuCFSQuota is off, or the container has exclusive CPUs.
	if q := found.CFSQuotaUS; q != nil && *q < 0 && r.CFSQuotaUS != nil {
		r.CFSQuotaUS = q
	}
	return &r
}
