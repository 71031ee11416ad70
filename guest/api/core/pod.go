package core

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/guest/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/view"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Pod is a view of a Pod. The zero value is a Pod without any field.
type Pod struct{ d *pod }

type pod struct {
	view.Message
	// ref names the bytes while they have not been fetched from the host.
	ref      abi.Ref
	metadata meta.ObjectMeta
	spec     podSpec
}

// PodFromProto returns a view of the protobuf message in raw, without the
// "k8s\0" envelope of stored objects. raw must not be written to any more.
func PodFromProto(raw []byte) Pod { return Pod{&pod{Message: view.Message{Raw: raw}}} }

// PodFromJSON returns a view of the JSON object in raw, which must not be
// written to any more.
func PodFromJSON(raw []byte) Pod { return Pod{&pod{Message: view.Message{Raw: raw, JSON: true}}} }

// PodFromRef returns a view of the Pod that the host knows by ref, whose bytes are
// fetched when a field is first read. It is for the packages of this SDK.
func PodFromRef(ref abi.Ref) Pod { return Pod{&pod{ref: ref}} }

var noPod pod

func (p Pod) data() *pod {
	if p.d == nil {
		return &noPod
	}
	if p.d.Unread() {
		p.d.read()
	}
	return p.d
}

func (d *pod) read() {
	if d.ref != 0 {
		d.Raw = hostcall.Object(d.ref)
	}
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "metadata":
				d.metadata = meta.NewObjectMeta(d.Child(it.Value()))
			case "spec":
				d.spec.Message = d.Child(it.Value())
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 1:
			d.metadata = meta.NewObjectMeta(d.Child(r.Bytes()))
		case 2:
			d.spec.Message = d.Child(r.Bytes())
		}
	}
}

// Metadata returns the Pod's metadata.
func (p Pod) Metadata() meta.ObjectMeta { return p.data().metadata }

// Spec returns the Pod's spec.
func (p Pod) Spec() PodSpec { return PodSpec{&p.data().spec} }

// PodSpec is a view of what a Pod asks for.
type PodSpec struct{ d *podSpec }

type podSpec struct {
	view.Message
	nodeName, schedulerName, priorityClassName, runtimeClassName string
	hostNetwork                                                  bool
	priority                                                     int32
	hasPriority                                                  bool
	nodeSelector                                                 view.StringMap

	containerList, initContainerList, tolerationList view.List
	containers, initContainers                       []Container
	tolerations                                      []Toleration
}

var noPodSpec podSpec

func (s PodSpec) data() *podSpec {
	if s.d == nil {
		return &noPodSpec
	}
	if s.d.Unread() {
		s.d.read()
	}
	return s.d
}

func (d *podSpec) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "containers":
				d.containerList.SetJSON(it.Value())
			case "initContainers":
				d.initContainerList.SetJSON(it.Value())
			case "nodeSelector":
				d.nodeSelector.SetJSON(it.Value())
			case "nodeName":
				d.nodeName = it.Value().String()
			case "hostNetwork":
				d.hostNetwork, _ = it.Value().Bool()
			case "schedulerName":
				d.schedulerName = it.Value().String()
			case "tolerations":
				d.tolerationList.SetJSON(it.Value())
			case "priorityClassName":
				d.priorityClassName = it.Value().String()
			case "priority":
				n, ok := it.Value().Int64()
				d.priority, d.hasPriority = int32(n), ok
			case "runtimeClassName":
				d.runtimeClassName = it.Value().String()
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 2:
			d.containerList.Add(&r)
		case 7:
			d.nodeSelector.Add(&r)
		case 10:
			d.nodeName = r.String()
		case 11:
			d.hostNetwork = r.Bool()
		case 19:
			d.schedulerName = r.String()
		case 20:
			d.initContainerList.Add(&r)
		case 22:
			d.tolerationList.Add(&r)
		case 24:
			d.priorityClassName = r.String()
		case 25:
			d.priority, d.hasPriority = int32(r.Int64()), true
		case 29:
			d.runtimeClassName = r.String()
		}
	}
}

// NodeName returns the node that the Pod is bound to, empty while it is not.
func (s PodSpec) NodeName() string { return s.data().nodeName }

// SchedulerName returns the name of the scheduler profile for the Pod.
func (s PodSpec) SchedulerName() string { return s.data().schedulerName }

// PriorityClassName returns the name of the Pod's PriorityClass.
func (s PodSpec) PriorityClassName() string { return s.data().priorityClassName }

// RuntimeClassName returns the name of the Pod's RuntimeClass.
func (s PodSpec) RuntimeClassName() string { return s.data().runtimeClassName }

// HostNetwork reports whether the Pod uses the network of its node.
func (s PodSpec) HostNetwork() bool { return s.data().hostNetwork }

// Priority returns the Pod's priority, and whether it has one.
func (s PodSpec) Priority() (int32, bool) {
	d := s.data()
	return d.priority, d.hasPriority
}

// NodeSelector returns the labels that a node must have.
func (s PodSpec) NodeSelector() meta.StringMap { return meta.NewStringMap(&s.data().nodeSelector) }

// Containers returns the containers, in their order.
func (s PodSpec) Containers() []Container {
	d := s.data()
	if d.containers == nil {
		d.containers = containersOf(&d.Message, &d.containerList)
	}
	return d.containers
}

// InitContainers returns the init containers, in the order in which they run.
func (s PodSpec) InitContainers() []Container {
	d := s.data()
	if d.initContainers == nil {
		d.initContainers = containersOf(&d.Message, &d.initContainerList)
	}
	return d.initContainers
}

// Tolerations returns the Pod's tolerations.
func (s PodSpec) Tolerations() []Toleration {
	d := s.data()
	if d.tolerations == nil {
		d.tolerations = view.Messages(&d.tolerationList,
			func(t *toleration, raw []byte) { t.Message = d.Child(raw) },
			func(t *toleration) Toleration { return Toleration{t} })
	}
	return d.tolerations
}

// Container is a view of a container of a Pod.
type Container struct{ d *container }

type container struct {
	view.Message
	name, image, imagePullPolicy string
}

func containersOf(parent *view.Message, l *view.List) []Container {
	return view.Messages(l,
		func(c *container, raw []byte) { c.Message = parent.Child(raw) },
		func(c *container) Container { return Container{c} })
}

var noContainer container

func (c Container) data() *container {
	if c.d == nil {
		return &noContainer
	}
	if c.d.Unread() {
		c.d.read()
	}
	return c.d
}

func (d *container) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "name":
				d.name = it.Value().String()
			case "image":
				d.image = it.Value().String()
			case "imagePullPolicy":
				d.imagePullPolicy = it.Value().String()
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 1:
			d.name = r.String()
		case 2:
			d.image = r.String()
		case 14:
			d.imagePullPolicy = r.String()
		}
	}
}

// Name returns the container's name, unique in its Pod.
func (c Container) Name() string { return c.data().name }

// Image returns the name of the container's image.
func (c Container) Image() string { return c.data().image }

// ImagePullPolicy returns "Always", "IfNotPresent" or "Never", empty for the
// default.
func (c Container) ImagePullPolicy() string { return c.data().imagePullPolicy }
