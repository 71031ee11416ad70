package sched

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// nodeOf returns the information about the node with a ref: the argument of the running call, or a
// node that the guest looked up in it.
func nodeOf(inst *host.Instance, ref abi.Ref) NodeInfo {
	c := &inst.State().(*instance).call
	if c.info != nil && c.node != nil && c.node.Ref == ref {
		c.asksAbout(inst)
		return c.info
	}
	if l, ok := c.looked[ref]; ok {
		return l.info
	}
	inst.Abort(fmt.Errorf("slot %d, version %d is not a node passed to this call", ref.Slot(), ref.Version()))
	return nil
}

// nodeImports are the host functions about nodes.
func (p *Plugin) nodeImports() []host.Import {
	i32, i64 := abi.I32, abi.I64
	return []host.Import{
		scheduler("node_info_version", []abi.ValueType{i64}, []abi.ValueType{i64}, func(inst *host.Instance, stack []uint64) {
			stack[0] = uint64(nodeOf(inst, abi.Ref(stack[0])).GetGeneration())
		}),
		scheduler("node_info", []abi.ValueType{i64, i32, i32}, []abi.ValueType{i32}, func(inst *host.Instance, stack []uint64) {
			i, n := inst.State().(*instance), nodeOf(inst, abi.Ref(stack[0]))
			i.buffer = p.framework.Usage(n).Append(i.buffer[:0])
			stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), i.buffer))
		}),
		scheduler("node_images", []abi.ValueType{i64, i32, i32}, []abi.ValueType{i32}, func(inst *host.Instance, stack []uint64) {
			i, n := inst.State().(*instance), nodeOf(inst, abi.Ref(stack[0]))
			i.buffer = schedmsg.AppendNodeImages(i.buffer[:0], p.framework.Images(n))
			stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), i.buffer))
		}),
		scheduler("node_pods", []abi.ValueType{i64, i32, i32}, []abi.ValueType{i32}, func(inst *host.Instance, stack []uint64) {
			i := inst.State().(*instance)
			i.buffer = i.buffer[:0]
			for _, pod := range p.podsOn(inst, abi.Ref(stack[0])) {
				i.buffer = binary.LittleEndian.AppendUint64(i.buffer, uint64(pod.Ref))
			}
			stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), i.buffer))
		}),
		scheduler("nominated_pods", []abi.ValueType{i64, i32, i32}, []abi.ValueType{i32}, p.nominatedPods),
		scheduler("count_pods", []abi.ValueType{i32, i32, i32, i32, i32, i32, i32}, []abi.ValueType{i32}, p.countPods),
		scheduler("node_by_name", []abi.ValueType{i32, i32}, []abi.ValueType{i64}, p.nodeByName),
	}
}

// podsOn returns the Pods of the node with a ref, which are the same until the call ends.
func (p *Plugin) podsOn(inst *host.Instance, ref abi.Ref) []*objects.Object {
	i := inst.State().(*instance)
	c := &i.call
	info := nodeOf(inst, ref)
	l, ok := c.looked[ref]
	if l.pods != nil {
		return l.pods
	}
	if !ok { // It is the node that the call is about.
		l = lookedUp{object: c.node, info: info}
	}
	first := len(c.pods)
	i.podsOn = p.framework.AppendPods(i.podsOn[:0], info)
	inst.Keep(int(unsafe.Sizeof((*objects.Object)(nil)))*len(i.podsOn) + lookedUpBytes)
	for _, pod := range i.podsOn {
		c.pods = append(c.pods, p.objects.Pod(pod))
	}
	clear(i.podsOn)
	l.pods = c.pods[first:len(c.pods):len(c.pods)]
	if c.looked == nil {
		c.looked = map[abi.Ref]lookedUp{}
	}
	c.looked[ref] = l
	return l.pods
}

// nodeByName finds a node of the snapshot: its ref, 0 if there is none, or if the call may not read
// the snapshot.
func (p *Plugin) nodeByName(inst *host.Instance, stack []uint64) {
	name := string(inst.Read(uint32(stack[0]), uint32(stack[1])))
	c := &inst.State().(*instance).call
	stack[0] = 0
	info := p.findNode(inst, c, name)
	if info == nil || info.Node() == nil {
		return
	}
	object := p.objects.Node(info.Node())
	stack[0] = uint64(object.Ref)
	c.look(inst, object, info)
}

// findNode searches the nodes of the call, then the snapshot.
func (p *Plugin) findNode(inst *host.Instance, c *call, name string) NodeInfo {
	if c.info != nil && c.info.Node() != nil && c.info.Node().Name == name {
		return c.info
	}
	c.asks(inst)
	if c.snapshot && p.handle != nil {
		if info := p.handle.Node(name); info != nil {
			return info
		}
	}
	for n := range all(c.nodes) {
		if node := n.Node(); node != nil && node.Name == name {
			return n
		}
	}
	return nil
}
