package sched

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// NodeInfo is the scheduler's state of a node. It is valid during the call to which it was passed.
type NodeInfo struct{ d *nodeInfo }

// nodeInfo is a cache of a node, kept while the node stays the same. There is
// one for each node, so it is small.
type nodeInfo struct {
	node core.Node
	// ref is the host's reference of the node, 0 in native tests.
	ref abi.Ref
	// more is the state beside the Node object, nil before it is first read.
	more *moreInfo
	// filled is the last call in which the usage in more was known to be that of the node.
	filled uint64
}

// moreInfo is the state of a node beside the Node object.
type moreInfo struct {
	// checked is the call in which version was last compared with the host's.
	checked uint64
	version uint64
	// read and imagesRead are set once the usage and the images of this version
	// were read.
	read, imagesRead bool
	usage            NodeUsage
	podCount         int
	images           []ImageState
	// pods are those of the node in one call; they may be different in the next.
	pods   []core.Pod
	podsIn uint64
}

// NodeUsage is the resources that the Pods of a node use.
type NodeUsage struct {
	// Requested is the sum of their requests, NonZeroRequested the same with a
	// minimum for each container that requests nothing, Allocatable the
	// resources of the node.
	Requested, NonZeroRequested, Allocatable Resource
	// UsedPorts are the ports of the host that they use.
	UsedPorts []HostPort
	// PVCRefCounts is the number of Pods for each claim that they use.
	PVCRefCounts []PVCRefCount
}

// Resource is a set of amounts of resources.
type Resource struct {
	MilliCPU         int64
	Memory           int64 // Bytes.
	EphemeralStorage int64 // Bytes.
	AllowedPodNumber int64
	// ScalarResources are all others, sorted by name.
	ScalarResources []ScalarResource
}

// ScalarResource is the amount of a resource without a separate field.
type ScalarResource struct {
	Name  string
	Value int64
}

// Scalar returns the amount of one of ScalarResources, 0 if it is not there.
func (r *Resource) Scalar(name string) int64 {
	for i := range r.ScalarResources {
		if r.ScalarResources[i].Name == name {
			return r.ScalarResources[i].Value
		}
	}
	return 0
}

// HostPort is a port of a node that a Pod uses.
type HostPort struct {
	IP, Protocol string
	Port         int32
}

// PVCRefCount is the number of Pods of a node that use a claim.
type PVCRefCount struct {
	Name  string // namespace/name
	Count int32
}

// ImageState is an image that a node has.
type ImageState struct {
	Name string
	Size int64 // Bytes.
	// NumNodes is the number of nodes that have it.
	NumNodes int
}

// NewNodeInfo returns the NodeInfo of a node without Pods, for native tests.
func NewNodeInfo(node core.Node) NodeInfo { return NodeInfo{&nodeInfo{node: node}} }

// With returns n with the usage, images and Pods of the node, for native tests.
func (n NodeInfo) With(usage NodeUsage, images []ImageState, pods []core.Pod) NodeInfo {
	return NodeInfo{&nodeInfo{node: n.Node(), more: &moreInfo{usage: usage, images: images, pods: pods, podCount: len(pods)}}}
}

// Node returns the Node object.
func (n NodeInfo) Node() core.Node {
	if n.d == nil {
		return core.Node{}
	}
	return n.d.node
}

// Generation returns a number that changes whenever the Node object, its Pods or their use of
// resources change. A value that a plugin has computed from a NodeInfo is valid while the
// generation stays the same. It is never 0, and never that of another node. In native tests it
// differs in each call.
func (n NodeInfo) Generation() int64 {
	if n.d == nil {
		return 0
	}
	return generationOf(n.d)
}

// Usage returns the resources that the Pods of the node use. It is fetched when
// it is first read and after it has changed; the caller must not change it.
func (n NodeInfo) Usage() *NodeUsage {
	if n.d == nil || n.d.filled != calls {
		return &n.d.fill().usage
	}
	return &n.d.more.usage // Without a call: the compiler puts it in place of Usage.
}

// ImageStates returns the images that the node has, sorted by name.
func (n NodeInfo) ImageStates() []ImageState {
	if n.d == nil {
		return nil
	}
	m := n.d.check()
	if n.d.ref != 0 && !m.imagesRead {
		m.imagesRead = true
		m.images = readImages(m.images[:0], hostNodeImages(n.d.ref))
	}
	return m.images
}

// NumPods returns the number of Pods of the node.
func (n NodeInfo) NumPods() int {
	if n.d == nil || n.d.filled != calls {
		return n.d.fill().podCount
	}
	return n.d.more.podCount
}

// Pods returns the Pods of the node, for the rest of the call. Only fields that are read
// are fetched.
func (n NodeInfo) Pods() []core.Pod {
	if n.d == nil {
		return nil
	}
	if n.d.more == nil {
		n.d.more = &moreInfo{}
	}
	// The refs have the host's present versions, so they are fetched in each call. The
	// cache of an unchanged version stays.
	m := n.d.more
	if n.d.ref != 0 && m.podsIn != calls {
		m.pods, m.podsIn = appendPods(m.pods[:0], n.d.ref), calls
	}
	return m.pods
}

// calls counts the calls of the host: within one call nothing changes. It begins with 1, since
// nothing is known in call 0.
var calls uint64 = 1

// take records the version of the state in this call. It drops the state of any other version.
func (m *moreInfo) take(version uint64) {
	m.checked = calls
	if version != m.version {
		m.version, m.read, m.imagesRead = version, false, false
	}
}

// check returns the state of the node, without the data of other versions of it.
func (d *nodeInfo) check() *moreInfo {
	if d.more == nil {
		d.more = &moreInfo{}
	}
	m := d.more
	if d.ref != 0 && m.checked != calls {
		m.take(hostNodeInfoVersion(d.ref))
	}
	return m
}

// fill is check for the data of node_info.
func (d *nodeInfo) fill() *moreInfo {
	if d == nil {
		return &moreInfo{}
	}
	m := d.check()
	d.filled = calls
	if d.ref == 0 || m.read {
		return m
	}
	m.read = true
	u := &m.usage
	ports, claims := u.UsedPorts[:0], u.PVCRefCounts[:0]
	m.podCount = 0
	for r := wire.NewReader(hostNodeInfo(d.ref)); r.Next(); {
		switch r.Field {
		case 1:
			u.Requested.parse(r.Bytes())
		case 2:
			u.NonZeroRequested.parse(r.Bytes())
		case 3:
			u.Allocatable.parse(r.Bytes())
		case 4:
			var p HostPort
			for f := wire.NewReader(r.Bytes()); f.Next(); {
				switch f.Field {
				case 1:
					p.IP = string(f.Bytes())
				case 2:
					p.Protocol = string(f.Bytes())
				case 3:
					p.Port = int32(f.Int64())
				}
			}
			ports = append(ports, p)
		case 5:
			name, count := entry(r.Bytes())
			claims = append(claims, PVCRefCount{string(name), int32(count)})
		case 6:
			m.podCount = int(r.Int64())
		}
	}
	u.UsedPorts, u.PVCRefCounts = ports, claims
	return m
}

// entry reads an entry of a map from strings to numbers.
func entry(b []byte) (key []byte, value int64) {
	for m := wire.NewReader(b); m.Next(); {
		switch m.Field {
		case 1:
			key = m.Bytes()
		case 2:
			value = m.Int64()
		}
	}
	return key, value
}

// parse reads the amounts. Fields 1 to 4 come first and are read here: in a Go guest a call takes as
// long as reading a number does.
func (r *Resource) parse(b []byte) {
	scalars := r.ScalarResources
	var cpu, memory, storage, pods uint64
	i := 0
	for i+1 < len(b) {
		key := b[i]
		if key&7 != 0 || key > 4<<3 {
			break
		}
		v, n, shift := uint64(b[i+1]), i+2, 7
		if v >= 0x80 {
			v &= 0x7f
			for ; n < len(b) && shift < 64; shift += 7 {
				c := b[n]
				n++
				if v |= uint64(c&0x7f) << shift; c < 0x80 {
					shift = 64
				}
			}
		}
		switch key >> 3 {
		case 1:
			cpu = v
		case 2:
			memory = v
		case 3:
			storage = v
		case 4:
			pods = v
		}
		i = n
	}
	*r = Resource{int64(cpu), int64(memory), int64(storage), int64(pods), scalars[:0]}
	if i < len(b) {
		r.parseRest(b[i:], scalars)
	}
}

// parseRest reads the fields that parse has left. before are the scalar resources of the version
// before.
func (r *Resource) parseRest(b []byte, before []ScalarResource) {
	for m := wire.NewReader(b); m.Next(); {
		switch m.Field {
		case 1:
			r.MilliCPU = m.Int64()
		case 2:
			r.Memory = m.Int64()
		case 3:
			r.EphemeralStorage = m.Int64()
		case 4:
			r.AllowedPodNumber = m.Int64()
		case 5:
			name, value := entry(m.Bytes())
			s := ScalarResource{Value: value}
			if n := len(r.ScalarResources); n < len(before) && before[n].Name == string(name) {
				s.Name = before[n].Name // Nearly always so.
			} else {
				s.Name = string(name)
			}
			r.ScalarResources = append(r.ScalarResources, s)
		}
	}
}

func readImages(images []ImageState, b []byte) []ImageState {
	for r := wire.NewReader(b); r.Next(); {
		if r.Field != 1 {
			continue
		}
		var s ImageState
		for m := wire.NewReader(r.Bytes()); m.Next(); {
			switch m.Field {
			case 1:
				s.Name = string(m.Bytes())
			case 2:
				s.Size = m.Int64()
			case 3:
				s.NumNodes = int(m.Int64())
			}
		}
		images = append(images, s)
	}
	return images
}

// NodeInfos are nodes that were passed to a function. The nodes and their names are
// fetched when they are first read in the call, all nodes at once.
type NodeInfos struct{ d *nodeInfos }

type nodeInfos struct {
	// call is the call to which the nodes were passed, 0 in native tests, which set names and
	// infos.
	call  uint64
	names []string
	infos []NodeInfo
}

// NewNodeInfos returns a list of nodes, for native tests.
func NewNodeInfos(infos ...NodeInfo) NodeInfos {
	names := make([]string, len(infos))
	for i, n := range infos {
		names[i] = n.Node().Metadata().Name()
	}
	return NodeInfos{&nodeInfos{names: names, infos: infos}}
}

// list returns the names.
func (l NodeInfos) list() []string {
	if l.d == nil {
		return nil
	}
	if l.d.call != 0 {
		return namesOf(uint32(l.d.call))
	}
	return l.d.names
}

// Len returns the number of nodes.
func (l NodeInfos) Len() int {
	if l.d != nil && l.d.call != 0 {
		return countOf(uint32(l.d.call))
	}
	return len(l.list())
}

// Name returns the name of a node.
func (l NodeInfos) Name(i int) string { return l.list()[i] }

// At returns a node.
func (l NodeInfos) At(i int) NodeInfo {
	if l.d != nil && l.d.infos != nil {
		return l.d.infos[i]
	}
	ref := refsOf(uint32(l.d.call))[i]
	return nodeOf(ref, uint32(ref))
}

// All calls yield with each node and its number, in their order, until it returns false.
func (l NodeInfos) All(yield func(int, NodeInfo) bool) {
	if l.d == nil {
		return
	}
	n := len(l.d.infos)
	if l.d.call != 0 {
		n = len(refsOf(uint32(l.d.call)))
	}
	for i := range n {
		if !yield(i, l.At(i)) {
			return
		}
	}
}

// Slice returns the nodes in their order, as the arguments of PodSelector.Count.
func (l NodeInfos) Slice() []NodeInfo {
	list := make([]NodeInfo, 0, l.Len())
	for _, n := range l.All {
		list = append(list, n)
	}
	return list
}

// NodeToStatus is the reasons why a Pod does not fit, by node.
type NodeToStatus struct{ list []NodeStatus }

// NodeStatus is the reason why a Pod does not fit on a node.
type NodeStatus struct {
	NodeName string
	Status   *Status
}

// NewNodeToStatus returns the statuses of nodes, for native tests.
func NewNodeToStatus(list ...NodeStatus) NodeToStatus { return NodeToStatus{list} }

// All returns the nodes with an explicit status, sorted by name. The others were not examined:
// preemption cannot help there.
func (m NodeToStatus) All() []NodeStatus { return m.list }

// Get returns the status of a node: UnschedulableAndUnresolvable if it has no explicit one.
func (m NodeToStatus) Get(nodeName string) *Status {
	for i := range m.list {
		if m.list[i].NodeName == nodeName {
			return m.list[i].Status
		}
	}
	return &Status{code: abi.UnschedulableAndUnresolvable}
}

func readStatuses(b []byte) (m NodeToStatus) {
	for r := wire.NewReader(b); r.Next(); {
		if r.Field != 1 {
			continue
		}
		s := NodeStatus{Status: &Status{}}
		for f := wire.NewReader(r.Bytes()); f.Next(); {
			switch f.Field {
			case 1:
				s.NodeName = string(f.Bytes())
			case 2:
				s.Status.code = abi.Code(f.Int64())
			case 3:
				s.Status.reason = string(f.Bytes())
			}
		}
		m.list = append(m.list, s)
	}
	return m
}
