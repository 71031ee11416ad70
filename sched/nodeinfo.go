package sched

import (
	"fmt"
	"sync"
	"sync/atomic"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedpb"
	"github.com/kubewasm/kubewasm/host"
)

// nodeInfos keeps what was encoded of a node's information, by the slot of the
// node, for as long as its generation stands.
type nodeInfos struct{ bySlot sync.Map }

// nodeInfo is the encoded information of one generation. The framework counts
// generations over all nodes, so a number is never used twice.
type nodeInfo struct {
	generation   int64
	info, images lazy
}

// lazy is bytes that are made when they are first asked for.
type lazy struct{ bytes atomic.Pointer[[]byte] }

// get returns the bytes. Two goroutines may make them; they are equal.
func (l *lazy) get(encode func() []byte) []byte {
	if b := l.bytes.Load(); b != nil {
		return *b
	}
	b := encode()
	l.bytes.Store(&b)
	return b
}

// of returns the information of the generation of n, whose node has the slot.
func (s *nodeInfos) of(slot uint32, n fwk.NodeInfo) *nodeInfo {
	generation := n.GetGeneration()
	if v, ok := s.bySlot.Load(slot); ok && v.(*nodeInfo).generation == generation {
		return v.(*nodeInfo)
	}
	fresh := &nodeInfo{generation: generation}
	s.bySlot.Store(slot, fresh)
	return fresh
}

// nodeOf returns the information about the node that ref names: the argument of
// the call that runs, or a node that the guest looked up in it.
func nodeOf(inst *host.Instance, ref abi.Ref) fwk.NodeInfo {
	c := &inst.State().(*instance).call
	if c.info != nil && c.node != nil && c.node.Ref == ref {
		return c.info
	}
	for _, l := range c.looked {
		if l.object.Ref == ref {
			return l.info
		}
	}
	inst.Violate(fmt.Errorf("slot %d, version %d is neither the node of this call nor one that was looked up in it", ref.Slot(), ref.Version()))
	return nil
}

// nodeImports are the host functions about nodes.
func (p *plugin) nodeImports() []host.Import {
	i32, i64 := abi.I32, abi.I64
	return []host.Import{
		scheduler(abi.ImportNodeInfoVersion, []abi.ValueType{i64}, []abi.ValueType{i64}, func(inst *host.Instance, stack []uint64) {
			stack[0] = uint64(nodeOf(inst, abi.Ref(stack[0])).GetGeneration())
		}),
		scheduler(abi.ImportNodeInfo, []abi.ValueType{i64, i32, i32}, []abi.ValueType{i32}, func(inst *host.Instance, stack []uint64) {
			ref := abi.Ref(stack[0])
			n := nodeOf(inst, ref)
			b := p.infos.of(ref.Slot(), n).info.get(func() []byte { return schedpb.AppendNodeInfo(nil, n) })
			stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), b))
		}),
		scheduler(abi.ImportNodeImages, []abi.ValueType{i64, i32, i32}, []abi.ValueType{i32}, func(inst *host.Instance, stack []uint64) {
			ref := abi.Ref(stack[0])
			n := nodeOf(inst, ref)
			b := p.infos.of(ref.Slot(), n).images.get(func() []byte { return schedpb.AppendNodeImages(nil, n.GetImageStates()) })
			stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), b))
		}),
		scheduler(abi.ImportNodePod, []abi.ValueType{i64, i32, i32, i32}, []abi.ValueType{i32}, func(inst *host.Instance, stack []uint64) {
			pods := nodeOf(inst, abi.Ref(stack[0])).GetPods()
			n := uint32(stack[1])
			if uint64(n) >= uint64(len(pods)) {
				inst.Violate(fmt.Errorf("the node has %d Pods, no number %d", len(pods), n))
			}
			object, err := p.objects.Pod(pods[n].GetPod())
			if err != nil {
				inst.Violate(err)
			}
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), object.Bytes()))
		}),
		scheduler(abi.ImportNodeByName, []abi.ValueType{i32, i32}, []abi.ValueType{i64}, p.nodeByName),
	}
}

// nodeByName finds a node of the snapshot: its ref, 0 if there is none, or if
// the call may not look at the snapshot.
func (p *plugin) nodeByName(inst *host.Instance, stack []uint64) {
	name := string(inst.Read(uint32(stack[0]), uint32(stack[1])))
	c := &inst.State().(*instance).call
	stack[0] = 0
	info := p.findNode(c, name)
	if info == nil || info.Node() == nil {
		return
	}
	object, err := p.objects.Node(info.Node())
	if err != nil {
		inst.Violate(err)
	}
	stack[0] = uint64(object.Ref)
	if nodeKnown(c, object.Ref) {
		return
	}
	c.looked = append(c.looked, lookedUp{object, info})
}

func nodeKnown(c *call, ref abi.Ref) bool {
	for _, l := range c.looked {
		if l.object.Ref == ref {
			return true
		}
	}
	return c.node != nil && c.info != nil && c.node.Ref == ref
}

// findNode looks among the nodes of the call, then in the snapshot.
func (p *plugin) findNode(c *call, name string) fwk.NodeInfo {
	if c.info != nil && c.info.Node() != nil && c.info.Node().Name == name {
		return c.info
	}
	if c.snapshot && p.handle != nil {
		if info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(name); err == nil {
			return info
		}
	}
	for _, n := range c.nodes {
		if node := n.Node(); node != nil && node.Name == name {
			return n
		}
	}
	return nil
}
