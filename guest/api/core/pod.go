package core

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/internal/view"
)

// Pod is a view of a Pod. The zero value is a Pod without any field.
type Pod struct {
	d       *pod
	version uint32
}

type pod struct {
	view.Object
	fields   [3]view.Field
	metadata meta.ObjectMeta
	spec     podSpec
}

// PodFromProto returns a view of the protobuf message in raw, without the
// "k8s\0" envelope of stored objects. raw must not be written to any more.
func PodFromProto(raw []byte) Pod {
	d := newPod()
	return Pod{d, d.SetBytes(raw, false)}
}

// PodFromJSON returns a view of the JSON object in raw, which must not be
// written to any more.
func PodFromJSON(raw []byte) Pod {
	d := newPod()
	return Pod{d, d.SetBytes(raw, true)}
}

// PodFromRef returns a view of the Pod that the host knows by ref, whose bytes
// are fetched when a field is first read. It uses the memory of old, a view of
// an earlier version in the same slot, which goes stale. It is for the packages
// of this SDK.
func PodFromRef(old Pod, ref abi.Ref) Pod {
	d := old.d
	if d == nil {
		d = newPod()
	}
	return Pod{d, d.SetRef(ref)}
}

var podNames = view.Names{1: "metadata", 2: "spec"}

func newPod() *pod {
	d := &pod{}
	d.Init(d.read)
	d.metadata = meta.NewObjectMeta(&d.Object)
	d.spec.In(&d.Object)
	d.spec.nodeSelector.Set(&d.spec.Message, &d.spec.fields[7])
	return d
}

func (d *pod) read() {
	d.Read(d.ObjectVersion(), d.fields[:], podNames)
	d.metadata.Set(&d.Message, &d.fields[1])
	d.spec.Set(&d.Message, &d.fields[2])
}

// Metadata returns the Pod's metadata.
func (p Pod) Metadata() meta.ObjectMeta {
	if p.d == nil {
		return meta.ObjectMeta{}
	}
	return p.d.metadata.Of(p.version)
}

// Spec returns the Pod's spec.
func (p Pod) Spec() PodSpec {
	if p.d == nil {
		return PodSpec{}
	}
	return PodSpec{&p.d.spec, p.version}
}

// PodSpec is a view of what a Pod asks for.
type PodSpec struct {
	d       *podSpec
	version uint32
}

type podSpec struct {
	view.Message
	fields                     [30]view.Field
	containers, initContainers view.List[container, Container]
	tolerations                view.List[toleration, Toleration]
	nodeSelector               view.StringMap
}

var podSpecNames = view.Names{2: "containers", 7: "nodeSelector", 10: "nodeName", 11: "hostNetwork", 19: "schedulerName", 20: "initContainers", 22: "tolerations", 24: "priorityClassName", 25: "priority", 29: "runtimeClassName"}

var noPodSpec = podSpec{Message: view.Message{Version: view.None}}

func (s PodSpec) data() *podSpec {
	if s.d != nil && s.d.Version == s.version {
		return s.d
	}
	return s.read()
}

func (s PodSpec) read() *podSpec {
	d := s.d
	if d == nil {
		return &noPodSpec
	}
	d.Read(s.version, d.fields[:], podSpecNames)
	d.containers.Reset()
	d.initContainers.Reset()
	d.tolerations.Reset()
	return d
}

// NodeName returns the node that the Pod is bound to, empty while it is not.
func (s PodSpec) NodeName() string {
	d := s.data()
	return d.Text(&d.fields[10])
}

// SchedulerName returns the name of the scheduler profile for the Pod.
func (s PodSpec) SchedulerName() string {
	d := s.data()
	return d.Text(&d.fields[19])
}

// PriorityClassName returns the name of the Pod's PriorityClass.
func (s PodSpec) PriorityClassName() string {
	d := s.data()
	return d.Text(&d.fields[24])
}

// RuntimeClassName returns the name of the Pod's RuntimeClass.
func (s PodSpec) RuntimeClassName() string {
	d := s.data()
	return d.Text(&d.fields[29])
}

// HostNetwork reports whether the Pod uses the network of its node.
func (s PodSpec) HostNetwork() bool {
	d := s.data()
	return d.Bool(&d.fields[11])
}

// Priority returns the Pod's priority, and whether it has one.
func (s PodSpec) Priority() (int32, bool) {
	d := s.data()
	return int32(d.Int64(&d.fields[25])), d.Has(&d.fields[25])
}

// NodeSelector returns the labels that a node must have.
func (s PodSpec) NodeSelector() meta.StringMap {
	return meta.NewStringMap(&s.data().nodeSelector, s.version)
}

// Containers returns the containers, in their order.
func (s PodSpec) Containers() []Container {
	d := s.data()
	if d.containers.Views != nil {
		return d.containers.Views
	}
	return d.containers.Make(&d.Message, &d.fields[2], newContainer)
}

// InitContainers returns the init containers, in the order in which they run.
func (s PodSpec) InitContainers() []Container {
	d := s.data()
	if d.initContainers.Views != nil {
		return d.initContainers.Views
	}
	return d.initContainers.Make(&d.Message, &d.fields[20], newContainer)
}

// Tolerations returns the Pod's tolerations.
func (s PodSpec) Tolerations() []Toleration {
	d := s.data()
	if d.tolerations.Views != nil {
		return d.tolerations.Views
	}
	return d.tolerations.Make(&d.Message, &d.fields[22], newToleration)
}

// Container is a view of a container of a Pod.
type Container struct {
	d       *container
	version uint32
}

type container struct {
	view.Message
	fields [15]view.Field
}

func newContainer(d *container, parent *view.Message, raw []byte) Container {
	d.SetElement(parent, raw)
	return Container{d, parent.Version}
}

var containerNames = view.Names{1: "name", 2: "image", 14: "imagePullPolicy"}

var noContainer = container{Message: view.Message{Version: view.None}}

func (c Container) data() *container {
	if c.d != nil && c.d.Version == c.version {
		return c.d
	}
	return c.read()
}

func (c Container) read() *container {
	d := c.d
	if d == nil {
		return &noContainer
	}
	d.Read(c.version, d.fields[:], containerNames)
	return d
}

// Name returns the container's name, unique in its Pod.
func (c Container) Name() string {
	d := c.data()
	return d.Text(&d.fields[1])
}

// Image returns the name of the container's image.
func (c Container) Image() string {
	d := c.data()
	return d.Text(&d.fields[2])
}

// ImagePullPolicy returns "Always", "IfNotPresent" or "Never", empty for the
// default.
func (c Container) ImagePullPolicy() string {
	d := c.data()
	return d.Text(&d.fields[14])
}
