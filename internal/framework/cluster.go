package framework

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	componentresource "k8s.io/component-helpers/resource"
	kjson "sigs.k8s.io/json"

	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Cluster is the state that a scheduler knows.
type Cluster struct {
	// Handle has a snapshot of the Nodes, with the Pods that are bound to them, and
	// informers with all objects, which are not started. Its Recorder is nil.
	*Handle
	// Resources are the names of all resources that have an informer, such as
	// "v1/persistentvolumeclaims".
	Resources []string
	// Unknown are objects of kinds that a scheduler has no informer of.
	Unknown []manifest.Object
	// Warnings name unknown fields of the objects that informers have.
	Warnings []string
	// defined are the resources of kinds that a CustomResourceDefinition defines. The names of
	// others are guessed.
	defined map[schema.GroupVersionKind]schema.GroupVersionResource
}

// NewCluster returns a cluster of objects. The error names a Pod whose Node is missing.
func NewCluster(list *manifest.Objects) (*Cluster, error) {
	c := &Cluster{Handle: &Handle{Informers: NewInformers()}}
	for _, node := range list.Nodes {
		c.Snapshot = append(c.Snapshot, NewNodeInfo(node))
	}
	for _, pod := range list.Pods {
		if pod.Spec.NodeName == "" {
			continue
		}
		i := slices.IndexFunc(c.Snapshot, func(n *NodeInfo) bool { return n.node.Name == pod.Spec.NodeName })
		if i < 0 {
			return nil, fmt.Errorf("the Node %q of the Pod %s/%s is not there", pod.Spec.NodeName, pod.Namespace, pod.Name)
		}
		c.Snapshot[i].Pods = append(c.Snapshot[i].Pods, pod)
	}
	for _, pod := range list.Pods {
		if node := pod.Status.NominatedNodeName; pod.Spec.NodeName == "" && node != "" {
			if c.Nominations == nil {
				c.Nominations = map[string][]*corev1.Pod{}
			}
			c.Nominations[node] = append(c.Nominations[node], pod)
		}
	}
	images := map[string]int{}
	for _, n := range c.Snapshot {
		n.count(images)
	}
	for _, n := range c.Snapshot {
		for i := range n.Images {
			n.Images[i].NumNodes = images[n.Images[i].Name]
		}
	}
	for gvr := range c.Informers {
		c.Resources = append(c.Resources, resourceName(gvr))
	}
	for i := range list.All {
		if err := c.define(&list.All[i]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", list.All[i].Kind, list.All[i].Name, err)
		}
	}
	for i := range list.All {
		if isDefinition(&list.All[i]) {
			continue
		}
		if err := c.add(&list.All[i]); err != nil {
			return nil, fmt.Errorf("%s %s: %w", list.All[i].Kind, list.All[i].Name, err)
		}
	}
	slices.Sort(c.Resources)
	return c, nil
}

func resourceName(gvr schema.GroupVersionResource) string {
	return strings.TrimPrefix(gvr.GroupVersion().String()+"/"+gvr.Resource, "/")
}

func isDefinition(o *manifest.Object) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == "apiextensions.k8s.io" && gvk.Kind == "CustomResourceDefinition"
}

// define gives the kind of a CustomResourceDefinition an informer.
func (c *Cluster) define(o *manifest.Object) error {
	if !isDefinition(o) {
		return nil
	}
	var definition struct {
		Spec struct {
			Group string `json:"group"`
			Names struct {
				Plural string `json:"plural"`
				Kind   string `json:"kind"`
			} `json:"names"`
			Versions []struct {
				Name   string `json:"name"`
				Served bool   `json:"served"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(o.JSON, &definition); err != nil {
		return err
	}
	spec := &definition.Spec
	for _, v := range spec.Versions {
		if !v.Served {
			continue
		}
		gv := schema.GroupVersion{Group: spec.Group, Version: v.Name}
		gvr := gv.WithResource(spec.Names.Plural)
		if c.defined == nil {
			c.defined = map[schema.GroupVersionKind]schema.GroupVersionResource{}
		}
		c.defined[gv.WithKind(spec.Names.Kind)] = gvr
		if c.Informers[gvr] == nil {
			c.Informers[gvr] = newStore()
			c.Resources = append(c.Resources, resourceName(gvr))
		}
	}
	return nil
}

// add gives an object to its informer.
func (c *Cluster) add(o *manifest.Object) error {
	gvr, ok := c.defined[o.GroupVersionKind()]
	if !ok {
		gvr, ok = lookup.UnlistedResource(o.GroupVersionKind())
	}
	if !ok {
		gvr, _ = meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	}
	store, ok := c.Informers[gvr]
	if !ok && scheme.Scheme.IsGroupRegistered(gvr.Group) {
		c.Unknown = append(c.Unknown, *o)
		return nil
	}
	if !ok {
		store = newStore()
		c.Informers[gvr] = store
		c.Resources = append(c.Resources, resourceName(gvr))
	}
	object, unknown, err := Decode(o)
	if err != nil {
		return err
	}
	if o.Kind != "Pod" && o.Kind != "Node" { // Package manifest has warned of those.
		for _, field := range unknown {
			c.Warnings = append(c.Warnings, fmt.Sprintf("the %s %s: %v", o.Kind, o.Name, field))
		}
	}
	return store.Add(object)
}

// Decode returns an object in the form in which a scheduler has it: that of client-go, or an
// [objects.Kept] of a custom resource. unknown are its unknown fields.
func Decode(o *manifest.Object) (object metav1.Object, unknown []error, err error) {
	gvk := o.GroupVersionKind()
	if !scheme.Scheme.IsGroupRegistered(gvk.Group) {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.JSON); err != nil {
			return nil, nil, err
		}
		u.SetNamespace(o.Namespace)
		u.SetManagedFields(nil)
		raw, err := json.Marshal(u)
		return objects.Keep(u, raw), nil, err
	}
	typed, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, nil, err
	}
	if unknown, err = kjson.UnmarshalStrict(o.JSON, typed); err != nil {
		return nil, nil, err
	}
	if object, err = meta.Accessor(typed); err != nil {
		return nil, nil, err
	}
	object.SetNamespace(o.Namespace)
	return object, unknown, nil
}

// leastRequests are the requests that the scheduler assumes for a container without any.
var leastRequests = corev1.ResourceList{
	corev1.ResourceCPU:    resource.MustParse("100m"),
	corev1.ResourceMemory: resource.MustParse("200Mi"),
}

// count computes what the Pods of a node use, as the scheduler does, and adds the node to
// the number of nodes that have an image.
func (n *NodeInfo) count(images map[string]int) {
	n.Allocatable = resourceOf(n.node.Status.Allocatable)
	requested, nonZero := corev1.ResourceList{}, corev1.ResourceList{}
	n.PVCRefCounts = map[string]int{}
	for _, pod := range n.Pods {
		sum(requested, componentresource.PodRequests(pod, componentresource.PodResourcesOptions{}))
		sum(nonZero, componentresource.PodRequests(pod, componentresource.PodResourcesOptions{NonMissingContainerRequests: leastRequests}))
		for _, c := range pod.Spec.Containers {
			for _, port := range c.Ports {
				n.use(port)
			}
		}
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim != nil {
				n.PVCRefCounts[pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName]++
			}
		}
	}
	n.Requested, n.NonZeroRequested = resourceOf(requested), resourceOf(nonZero)
	for _, image := range n.node.Status.Images {
		for _, name := range image.Names {
			n.Images = append(n.Images, schedmsg.Image{Name: name, Size: image.SizeBytes})
			images[name]++
		}
	}
}

// use notes a port of the node that a container uses, if it does, with the scheduler's
// defaults.
func (n *NodeInfo) use(port corev1.ContainerPort) {
	p := schedmsg.HostPort{IP: port.HostIP, Protocol: string(port.Protocol), Port: port.HostPort}
	if p.IP == "" {
		p.IP = "0.0.0.0"
	}
	if p.Protocol == "" {
		p.Protocol = string(corev1.ProtocolTCP)
	}
	if p.Port > 0 && !slices.Contains(n.UsedPorts, p) {
		n.UsedPorts = append(n.UsedPorts, p)
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
