package core

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/internal/hostcall"
	"github.com/kubewasm/kubewasm/guest/internal/json"
	"github.com/kubewasm/kubewasm/guest/internal/view"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Node is a view of a Node. The zero value is a Node without any field.
type Node struct{ d *node }

type node struct {
	view.Message
	// ref names the bytes while they have not been fetched from the host.
	ref      abi.Ref
	metadata meta.ObjectMeta
	spec     nodeSpec
	status   nodeStatus
}

// NodeFromProto returns a view of the protobuf message in raw, without the
// "k8s\0" envelope of stored objects. raw must not be written to any more.
func NodeFromProto(raw []byte) Node { return Node{&node{Message: view.Message{Raw: raw}}} }

// NodeFromJSON returns a view of the JSON object in raw, which must not be
// written to any more.
func NodeFromJSON(raw []byte) Node { return Node{&node{Message: view.Message{Raw: raw, JSON: true}}} }

// NodeFromRef returns a view of the Node that the host knows by ref, whose bytes are
// fetched when a field is first read. It is for the packages of this SDK.
func NodeFromRef(ref abi.Ref) Node { return Node{&node{ref: ref}} }

var noNode node

func (n Node) data() *node {
	if n.d == nil {
		return &noNode
	}
	if n.d.Unread() {
		n.d.read()
	}
	return n.d
}

func (d *node) read() {
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
			case "status":
				d.status.Message = d.Child(it.Value())
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
		case 3:
			d.status.Message = d.Child(r.Bytes())
		}
	}
}

// Metadata returns the Node's metadata.
func (n Node) Metadata() meta.ObjectMeta { return n.data().metadata }

// Spec returns the Node's spec.
func (n Node) Spec() NodeSpec { return NodeSpec{&n.data().spec} }

// Status returns the Node's status.
func (n Node) Status() NodeStatus { return NodeStatus{&n.data().status} }

// NodeSpec is a view of what an administrator says of a Node.
type NodeSpec struct{ d *nodeSpec }

type nodeSpec struct {
	view.Message
	podCIDR, providerID string
	unschedulable       bool
	taintList           view.List
	taints              []Taint
}

var noNodeSpec nodeSpec

func (s NodeSpec) data() *nodeSpec {
	if s.d == nil {
		return &noNodeSpec
	}
	if s.d.Unread() {
		s.d.read()
	}
	return s.d
}

func (d *nodeSpec) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "podCIDR":
				d.podCIDR = it.Value().String()
			case "providerID":
				d.providerID = it.Value().String()
			case "unschedulable":
				d.unschedulable, _ = it.Value().Bool()
			case "taints":
				d.taintList.SetJSON(it.Value())
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 1:
			d.podCIDR = r.String()
		case 3:
			d.providerID = r.String()
		case 4:
			d.unschedulable = r.Bool()
		case 5:
			d.taintList.Add(&r)
		}
	}
}

// PodCIDR returns the range of addresses for the Pods of the Node.
func (s NodeSpec) PodCIDR() string { return s.data().podCIDR }

// ProviderID returns the cloud provider's name of the Node.
func (s NodeSpec) ProviderID() string { return s.data().providerID }

// Unschedulable reports whether the Node takes no new Pods (kubectl cordon).
func (s NodeSpec) Unschedulable() bool { return s.data().unschedulable }

// Taints returns the Node's taints.
func (s NodeSpec) Taints() []Taint {
	d := s.data()
	if d.taints == nil {
		d.taints = view.Messages(&d.taintList,
			func(t *taint, raw []byte) { t.Message = d.Child(raw) },
			func(t *taint) Taint { return Taint{t} })
	}
	return d.taints
}

// NodeStatus is a view of what the kubelet says of a Node.
type NodeStatus struct{ d *nodeStatus }

type nodeStatus struct {
	view.Message
	imageList view.List
	images    []ContainerImage
}

var noNodeStatus nodeStatus

func (s NodeStatus) data() *nodeStatus {
	if s.d == nil {
		return &noNodeStatus
	}
	if s.d.Unread() {
		s.d.read()
	}
	return s.d
}

func (d *nodeStatus) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			if it.Key() == "images" {
				d.imageList.SetJSON(it.Value())
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		if r.Field == 8 {
			d.imageList.Add(&r)
		}
	}
}

// Images returns the images on the Node.
func (s NodeStatus) Images() []ContainerImage {
	d := s.data()
	if d.images == nil {
		d.images = view.Messages(&d.imageList,
			func(i *containerImage, raw []byte) { i.Message = d.Child(raw) },
			func(i *containerImage) ContainerImage { return ContainerImage{i} })
	}
	return d.images
}

// ContainerImage is a view of an image on a Node.
type ContainerImage struct{ d *containerImage }

type containerImage struct {
	view.Message
	nameList  view.List
	names     []string
	sizeBytes int64
}

var noContainerImage containerImage

func (i ContainerImage) data() *containerImage {
	if i.d == nil {
		return &noContainerImage
	}
	if i.d.Unread() {
		i.d.read()
	}
	return i.d
}

func (d *containerImage) read() {
	if d.JSON {
		for it := json.Object(d.Raw); it.Next(); {
			switch it.Key() {
			case "names":
				d.nameList.SetJSON(it.Value())
			case "sizeBytes":
				d.sizeBytes, _ = it.Value().Int64()
			}
		}
		return
	}
	for r := wire.NewReader(d.Raw); r.Next(); {
		switch r.Field {
		case 1:
			d.nameList.Add(&r)
		case 2:
			d.sizeBytes = r.Int64()
		}
	}
}

// Names returns the names that the image is known by.
func (i ContainerImage) Names() []string {
	d := i.data()
	if d.names == nil {
		d.names = d.nameList.Strings()
	}
	return d.names
}

// SizeBytes returns the size of the image in bytes.
func (i ContainerImage) SizeBytes() int64 { return i.data().sizeBytes }
