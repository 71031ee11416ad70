package manifest

import (
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Admission returns the request that the API server sends to a webhook when the
// object is created.
func (o *Object) Admission() *admissionv1.AdmissionRequest {
	gvk := o.GroupVersionKind()
	kind := metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	resource := metav1.GroupVersionResource{Group: plural.Group, Version: plural.Version, Resource: plural.Resource}
	return &admissionv1.AdmissionRequest{
		UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create,
		Kind: kind, RequestKind: &kind, Resource: resource, RequestResource: &resource,
		Namespace: o.Namespace, Name: o.Name,
		UserInfo: authenticationv1.UserInfo{Username: "kubernetes-admin", Groups: []string{"kubeadm:cluster-admins", "system:authenticated"}},
		Object:   runtime.RawExtension{Raw: o.JSON},
	}
}

// HookRequests returns the requests of a node agent when a Pod starts: one for the Pod,
// then one for each of its containers.
func HookRequests(pod *corev1.Pod) []*hookmsg.Request {
	qos := qosClass(pod)
	parent := "kubepods/pod" + string(pod.UID)
	if qos != abi.QOSGuaranteed {
		parent = "kubepods/" + strings.ToLower(qos.String()) + "/pod" + string(pod.UID)
	}
	base := hookmsg.Request{
		Stage: abi.PreRunPodSandbox, Level: abi.LevelPod,
		Pod:       hookmsg.PodMeta{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)},
		PodLabels: pod.Labels, PodAnnotations: pod.Annotations,
		QOSClass: qos, CgroupParent: parent,
	}
	requests := []*hookmsg.Request{&base}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		request := base
		request.Stage, request.Level = abi.PreCreateContainer, abi.LevelContainer
		request.Container = hookmsg.ContainerMeta{Name: c.Name}
		request.Resources = resourcesOf(c)
		for _, env := range c.Env {
			request.ContainerEnvs = append(request.ContainerEnvs, hookmsg.Env{Name: env.Name, Value: env.Value})
		}
		requests = append(requests, &request)
	}
	return requests
}

// HookNode returns a Node as hooks see it, without its topology; nil if there is none.
func HookNode(node *corev1.Node) *hookmsg.Node {
	if node == nil {
		return nil
	}
	quantities := func(list corev1.ResourceList) map[string]string {
		m := make(map[string]string, len(list))
		for name, quantity := range list {
			m[string(name)] = quantity.String()
		}
		return m
	}
	return &hookmsg.Node{
		Name: node.Name, Labels: node.Labels, Annotations: node.Annotations,
		Capacity: quantities(node.Status.Capacity), Allocatable: quantities(node.Status.Allocatable),
	}
}

// resourcesOf returns the resources that the kubelet asks the runtime for.
func resourcesOf(c *corev1.Container) *hookmsg.Resources {
	request, ok := c.Resources.Requests[corev1.ResourceCPU]
	if !ok {
		request = *c.Resources.Limits.Cpu() // The API server's default.
	}
	shares := max(request.MilliValue()*1024/1000, 2)
	period, quota, memory := int64(100_000), int64(-1), int64(-1)
	if limit := c.Resources.Limits.Cpu(); !limit.IsZero() {
		quota = max(limit.MilliValue()*100, 1000)
	}
	if limit := c.Resources.Limits.Memory(); !limit.IsZero() {
		memory = limit.Value()
	}
	return &hookmsg.Resources{CPUShares: &shares, CFSPeriodUS: &period, CFSQuotaUS: &quota, MemoryLimitBytes: &memory}
}

// qosClass is the class that the kubelet would put the Pod into.
func qosClass(pod *corev1.Pod) abi.QOSClass {
	some, guaranteed := false, true
	for _, c := range pod.Spec.Containers {
		some = some || len(c.Resources.Requests) != 0 || len(c.Resources.Limits) != 0
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name]
			guaranteed = guaranteed && limited && (!requested || request.Cmp(limit) == 0)
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
