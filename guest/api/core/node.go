package core

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/meta"
	"github.com/kubewasm/kubewasm/guest/internal/view"
)

// Node is a view of a Node. The zero value is a Node without any field.
type Node struct {
	d       *node
	version uint32
}

type node struct {
	view.Object
	fields   [4]view.Field
	metadata meta.ObjectMeta
	spec     nodeSpec
	status   nodeStatus
}

// NodeFromProto returns a view of the protobuf message in raw, without the
// "k8s\0" envelope of stored objects. raw must not be written to any more.
func NodeFromProto(raw []byte) Node {
	d := newNode()
	return Node{d, d.SetBytes(raw, false)}
}

// NodeFromJSON returns a view of the JSON object in raw, which must not be
// written to any more.
func NodeFromJSON(raw []byte) Node {
	d := newNode()
	return Node{d, d.SetBytes(raw, true)}
}

// NodeFromRef returns a view of the Node that the host knows by ref, whose bytes
// are fetched when a field is first read. It uses the memory of old, a view of
// an earlier version in the same slot, which goes stale. It is for the packages
// of this SDK.
func NodeFromRef(old Node, ref abi.Ref) Node {
	d := old.d
	if d == nil {
		d = newNode()
	}
	return Node{d, d.SetRef(ref)}
}

var nodeNames = view.Names{1: "metadata", 2: "spec", 3: "status"}

func newNode() *node {
	d := &node{}
	d.Init(d.read)
	d.metadata = meta.NewObjectMeta(&d.Object)
	d.spec.In(&d.Object)
	d.status.In(&d.Object)
	return d
}

func (d *node) read() {
	d.Read(d.ObjectVersion(), d.fields[:], nodeNames)
	d.metadata.Set(&d.Message, &d.fields[1])
	d.spec.Set(&d.Message, &d.fields[2])
	d.status.Set(&d.Message, &d.fields[3])
}

// Metadata returns the Node's metadata.
func (n Node) Metadata() meta.ObjectMeta {
	if n.d == nil {
		return meta.ObjectMeta{}
	}
	return n.d.metadata.Of(n.version)
}

// Spec returns the Node's spec.
func (n Node) Spec() NodeSpec {
	if n.d == nil {
		return NodeSpec{}
	}
	return NodeSpec{&n.d.spec, n.version}
}

// Status returns the Node's status.
func (n Node) Status() NodeStatus {
	if n.d == nil {
		return NodeStatus{}
	}
	return NodeStatus{&n.d.status, n.version}
}

// NodeSpec is a view of what an administrator says of a Node.
type NodeSpec struct {
	d       *nodeSpec
	version uint32
}

type nodeSpec struct {
	view.Message
	fields [6]view.Field
	taints view.List[taint, Taint]
}

var nodeSpecNames = view.Names{1: "podCIDR", 3: "providerID", 4: "unschedulable", 5: "taints"}

var noNodeSpec = nodeSpec{Message: view.Message{Version: view.None}}

func (s NodeSpec) data() *nodeSpec {
	if s.d != nil && s.d.Version == s.version {
		return s.d
	}
	return s.read()
}

func (s NodeSpec) read() *nodeSpec {
	d := s.d
	if d == nil {
		return &noNodeSpec
	}
	d.Read(s.version, d.fields[:], nodeSpecNames)
	d.taints.Reset()
	return d
}

// PodCIDR returns the range of addresses for the Pods of the Node.
func (s NodeSpec) PodCIDR() string {
	d := s.data()
	return d.Text(&d.fields[1])
}

// ProviderID returns the cloud provider's name of the Node.
func (s NodeSpec) ProviderID() string {
	d := s.data()
	return d.Text(&d.fields[3])
}

// Unschedulable reports whether the Node takes no new Pods (kubectl cordon).
func (s NodeSpec) Unschedulable() bool {
	d := s.data()
	return d.Bool(&d.fields[4])
}

// Taints returns the Node's taints.
func (s NodeSpec) Taints() []Taint {
	d := s.data()
	if d.taints.Views != nil {
		return d.taints.Views
	}
	return d.taints.Make(&d.Message, &d.fields[5], newTaint)
}

// NodeStatus is a view of what the kubelet says of a Node.
type NodeStatus struct {
	d       *nodeStatus
	version uint32
}

type nodeStatus struct {
	view.Message
	fields [9]view.Field
	images view.List[containerImage, ContainerImage]
}

var nodeStatusNames = view.Names{8: "images"}

var noNodeStatus = nodeStatus{Message: view.Message{Version: view.None}}

func (s NodeStatus) data() *nodeStatus {
	if s.d != nil && s.d.Version == s.version {
		return s.d
	}
	return s.read()
}

func (s NodeStatus) read() *nodeStatus {
	d := s.d
	if d == nil {
		return &noNodeStatus
	}
	d.Read(s.version, d.fields[:], nodeStatusNames)
	d.images.Reset()
	return d
}

// Images returns the images on the Node.
func (s NodeStatus) Images() []ContainerImage {
	d := s.data()
	if d.images.Views != nil {
		return d.images.Views
	}
	return d.images.Make(&d.Message, &d.fields[8], newContainerImage)
}

// ContainerImage is a view of an image on a Node.
type ContainerImage struct {
	d       *containerImage
	version uint32
}

type containerImage struct {
	view.Message
	fields [3]view.Field
	names  view.Strings
}

func newContainerImage(d *containerImage, parent *view.Message, raw []byte) ContainerImage {
	d.SetElement(parent, raw)
	return ContainerImage{d, parent.Version}
}

var containerImageNames = view.Names{1: "names", 2: "sizeBytes"}

var noContainerImage = containerImage{Message: view.Message{Version: view.None}}

func (i ContainerImage) data() *containerImage {
	if i.d != nil && i.d.Version == i.version {
		return i.d
	}
	return i.read()
}

func (i ContainerImage) read() *containerImage {
	d := i.d
	if d == nil {
		return &noContainerImage
	}
	d.Read(i.version, d.fields[:], containerImageNames)
	d.names.Reset()
	return d
}

// Names returns the names that the image is known by.
func (i ContainerImage) Names() []string {
	d := i.data()
	return d.names.Of(&d.Message, &d.fields[1])
}

// SizeBytes returns the size of the image in bytes.
func (i ContainerImage) SizeBytes() int64 {
	d := i.data()
	return d.Int64(&d.fields[2])
}
