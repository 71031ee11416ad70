package framework

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	componentresource "k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/internal/manifest"
)

// NewCluster returns a Handle of a scheduler whose snapshot has the Nodes among
// the objects, with the Pods that are bound to them, and whose informers have all
// objects. Recorder is nil. resources are the names of all resources that there are
// informers of, as in "v1/persistentvolumeclaims".
//
// The error names a Pod whose Node is missing, and an object of a kind that a
// scheduler does not know.
func NewCluster(objects *manifest.Objects) (h *Handle, resources []string, err error) {
	h = &Handle{Informers: informers.NewSharedInformerFactory(nil, 0)} // Nobody starts them.
	for _, node := range objects.Nodes {
		h.Nodes = append(h.Nodes, NewNodeInfo(node))
	}
	for _, pod := range objects.Pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		i := slices.IndexFunc(h.Nodes, func(n *NodeInfo) bool { return n.node.Name == pod.Spec.NodeName })
		if i < 0 {
			return nil, nil, fmt.Errorf("the Node %q of the Pod %s/%s is not there", pod.Spec.NodeName, pod.Namespace, pod.Name)
		}
		h.Nodes[i].pods = append(h.Nodes[i].pods, PodInfo{Pod: pod})
	}
	images := map[string]int{}
	for _, n := range h.Nodes {
		n.count(images)
	}
	for _, n := range h.Nodes {
		for name, image := range n.ImageStates {
			image.NumNodes = images[name]
		}
	}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		if informer, err := h.Informers.ForResource(gvr); err == nil {
			informer.Informer()
			resources = append(resources, resourceName(gvr))
		}
	}
	slices.Sort(resources)
	for i := range objects.All {
		if err := h.add(&objects.All[i]); err != nil {
			return nil, nil, err
		}
	}
	return h, resources, nil
}

func resourceName(gvr schema.GroupVersionResource) string {
	return strings.TrimPrefix(gvr.GroupVersion().String()+"/"+gvr.Resource, "/")
}

// add gives an object to its informer.
func (h *Handle) add(o *manifest.Object) error {
	gvk := o.GroupVersionKind()
	object, err := scheme.Scheme.New(gvk)
	if err != nil {
		return fmt.Errorf("%s %s: a scheduler does not know the kind %s", o.Kind, o.Name, gvk)
	}
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDeserializer(), o.JSON, object); err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
	}
	gvr, _ := meta.UnsafeGuessKindToResource(gvk)
	informer, err := h.Informers.ForResource(gvr)
	if err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, o.Name, err)
	}
	accessor.SetNamespace(o.Namespace)
	return informer.Informer().GetStore().Add(object)
}

// What the scheduler reckons with for a container that requests none.
var leastRequests = corev1.ResourceList{
	corev1.ResourceCPU:    resource.MustParse("100m"),
	corev1.ResourceMemory: resource.MustParse("200Mi"),
}

// count works out what the Pods of a node use, as the scheduler does, and in images
// how many nodes have which.
func (n *NodeInfo) count(images map[string]int) {
	n.Allocatable = resourceOf(n.node.Status.Allocatable)
	requested, nonZero := corev1.ResourceList{}, corev1.ResourceList{}
	n.UsedPorts, n.PVCRefCounts = fwk.HostPortInfo{}, map[string]int{}
	for _, info := range n.pods {
		pod := info.GetPod()
		sum(requested, componentresource.PodRequests(pod, componentresource.PodResourcesOptions{}))
		sum(nonZero, componentresource.PodRequests(pod, componentresource.PodResourcesOptions{NonMissingContainerRequests: leastRequests}))
		for _, c := range pod.Spec.Containers {
			for _, port := range c.Ports {
				n.UsedPorts.Add(port.HostIP, string(port.Protocol), port.HostPort)
			}
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				n.PVCRefCounts[pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName]++
			}
		}
	}
	n.Requested, n.NonZeroRequested = resourceOf(requested), resourceOf(nonZero)
	n.ImageStates = map[string]*fwk.ImageStateSummary{}
	for _, image := range n.node.Status.Images {
		for _, name := range image.Names {
			n.ImageStates[name] = &fwk.ImageStateSummary{Size: image.SizeBytes}
			images[name]++
		}
	}
}

func sum(total, more corev1.ResourceList) {
	for name, quantity := range more {
		q := total[name]
		q.Add(quantity)
		total[name] = q
	}
}

func resourceOf(list corev1.ResourceList) (r Resource) {
	for name, quantity := range list {
		switch name {
		case corev1.ResourceCPU:
			r.MilliCPU = quantity.MilliValue()
		case corev1.ResourceMemory:
			r.Memory = quantity.Value()
		case corev1.ResourceEphemeralStorage:
			r.EphemeralStorage = quantity.Value()
		case corev1.ResourcePods:
			r.AllowedPodNumber = int(quantity.Value())
		default:
			if r.ScalarResources == nil {
				r.ScalarResources = map[corev1.ResourceName]int64{}
			}
			r.ScalarResources[name] = quantity.Value()
		}
	}
	return r
}
