package sched

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// scheduler returns an import of the module k8s.io/scheduler. Its last parameters of 32 bits are
// pairs of an address and a length.
func scheduler(name string, params, results []abi.ValueType, f func(inst *host.Instance, stack []uint64)) host.Import {
	var memory uint16
	for n := len(params) - 2; n >= 0 && params[n] == abi.I32 && params[n+1] == abi.I32; n -= 2 {
		memory |= 3 << n
	}
	return host.Import{Module: abi.KindScheduler.Module(), Name: name, Params: params, Results: results, Memory: memory, Func: ownAnswer(f)}
}

// ownAnswer returns a host function by which the guest asks for more than its arguments.
func ownAnswer(f func(inst *host.Instance, stack []uint64)) func(inst *host.Instance, stack []uint64) {
	return func(inst *host.Instance, stack []uint64) {
		inst.State().(*instance).call.own = true
		f(inst, stack)
	}
}

// reads returns an import (buf, limit) -> len that belongs to the functions of a
// mask. get may use the buffer of the instance.
func reads(name string, functions abi.Mask, get func(inst *host.Instance, i *instance, buf []byte) []byte) host.Import {
	return host.ToGuest(abi.KindScheduler.Module(), name, func(inst *host.Instance) []byte {
		i := during(inst, functions)
		i.call.own = true
		i.buffer = get(inst, i, i.buffer[:0])
		return i.buffer
	})
}

// writes returns an import (ptr, len) that belongs to the functions of a mask. put copies the data
// that it keeps, since data is lent.
func writes(name string, functions abi.Mask, put func(inst *host.Instance, c *call, data []byte)) host.Import {
	return host.FromGuest(abi.KindScheduler.Module(), name, func(inst *host.Instance, data []byte) {
		put(inst, &during(inst, functions).call, data)
	})
}

// during returns the instance if it runs one of the functions.
func during(inst *host.Instance, functions abi.Mask) *instance {
	for _, f := range functions.Functions() {
		if inst.Calling() == f.String() {
			return inst.State().(*instance)
		}
	}
	inst.Abort(fmt.Errorf("it belongs to %s, but the guest runs %s", functions, inst.Calling()))
	return nil
}

var (
	scores    = abi.MaskOf(abi.Score, abi.ScorePlacement)
	scored    = abi.MaskOf(abi.NormalizeScore, abi.NormalizePlacementScore)
	withRefs  = abi.MaskOf(abi.PreFilter, abi.PreScore, abi.PostFilter, abi.Reserve, abi.Permit, abi.PodGroupPostFilter, abi.GeneratePlacements)
	withNodes = scored | withRefs
	withName  = abi.MaskOf(abi.Reserve, abi.Unreserve, abi.Permit, abi.PreBindPreFlight, abi.PreBind, abi.Bind, abi.PostBind)
	withGroup = abi.MaskOf(abi.PodGroupPostFilter, abi.GeneratePlacements, abi.ScorePlacement, abi.NormalizePlacementScore)
)

// imports are the host functions of a scheduler plugin.
func (p *Plugin) imports() []host.Import {
	i32, i64 := abi.I32, abi.I64
	list := []host.Import{
		{
			Module: abi.ModuleObjects, Name: "object",
			Params:  []abi.ValueType{i64, i32, i32},
			Results: []abi.ValueType{i32},
			Memory:  0b110,
			Func: func(inst *host.Instance, stack []uint64) {
				object := p.object(inst, abi.Ref(stack[0]))
				inst.ConfidentialObject(object, 0)
				inst.ConfidentialObject(object, 0)
				stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), object.Bytes()))
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_part",
			Params:  []abi.ValueType{i64, i32, i64, i32, i32},
			Results: []abi.ValueType{i32},
			Memory:  0b11000,
			Func: func(inst *host.Instance, stack []uint64) {
				object := p.object(inst, abi.Ref(stack[0]))
				inst.ConfidentialObject(object, uint32(stack[1]))
				last := &inst.State().(*instance).part
				if number, fields := uint32(stack[1]), stack[2]; last.of != object || last.number != number || last.fields != fields {
					*last = lastPart{object, number, fields, object.AppendPart(last.bytes[:0], number, fields)}
				}
				stack[0] = uint64(inst.Write(uint32(stack[3]), uint32(stack[4]), last.bytes))
			},
		},
		{
			Module: abi.ModuleObjects, Name: "object_entry",
			Params:  []abi.ValueType{i64, i32, i32, i32, i32, i32},
			Results: []abi.ValueType{i32},
			Memory:  0b111100,
			Func: func(inst *host.Instance, stack []uint64) {
				object := p.object(inst, abi.Ref(stack[0]))
				b := inst.Read(uint32(stack[2]), uint32(stack[3]))
				inst.ConfidentialText(object)
				// The key is lent like b.
				value, ok := object.Entry(uint32(stack[1]), unsafe.String(unsafe.SliceData(b), len(b)))
				// The buffer is checked in any case.
				n := inst.Write(uint32(stack[4]), uint32(stack[5]), unsafe.Slice(unsafe.StringData(value), len(value)))
				if stack[0] = uint64(n); !ok {
					stack[0] = abi.NoEntry
				}
			},
		},
		reads("node_scores", scored, nodeScores),
		reads("node_names", withNodes, p.nodeNames),
		reads("node_refs", withRefs, p.nodeRefs),
		reads("node_name", withName, func(_ *host.Instance, i *instance, b []byte) []byte {
			return append(b, i.call.nodeName...)
		}),
		reads("node_statuses", abi.MaskOf(abi.PostFilter), func(_ *host.Instance, i *instance, b []byte) []byte {
			for _, s := range sortedStatuses(i.call.statuses) {
				b = s.Append(b)
			}
			return b
		}),
		reads("pod_group", withGroup, func(_ *host.Instance, i *instance, b []byte) []byte {
			return i.call.group.Append(b)
		}),
		reads("placement", abi.MaskOf(abi.ScorePlacement), func(_ *host.Instance, i *instance, b []byte) []byte {
			placement, assignments := i.call.placement()
			return placement.Append(b, assignments)
		}),
		scheduler("pod_group_pod", []abi.ValueType{i32, i32, i32}, []abi.ValueType{i32}, p.podGroupPod),
		scheduler(tryPodGroupImport, []abi.ValueType{i32, i32, i32, i32}, []abi.ValueType{i32}, p.tryPodGroup),
		{
			Module: abi.KindScheduler.Module(), Name: "result_score",
			Params: []abi.ValueType{i64},
			Func: func(inst *host.Instance, stack []uint64) {
				c := &during(inst, scores).call
				c.score, c.wide = int64(stack[0]), true
			},
		},
		writes("result_scores", scored, resultScores),
		writes("result_node_names", abi.MaskOf(abi.PreFilter), resultNodeNames),
		writes("result_cluster_events", abi.MaskOf(abi.EventsToRegister), func(inst *host.Instance, c *call, data []byte) {
			inst.Keep(len(data)) // An event has as many bytes here.
			var err error
			if c.events, err = parseEvents(data); err != nil {
				inst.Abort(err)
			}
		}),
		writes("result_nominated_node_name", abi.MaskOf(abi.PostFilter), func(inst *host.Instance, c *call, data []byte) {
			inst.Keep(len(data) - len(c.nominated))
			c.nominated = string(data)
		}),
		writes("result_sign_fragments", abi.MaskOf(abi.SignPod), resultSignFragments),
		writes("result_pods", abi.MaskOf(abi.PreQueueingHint), resultPods),
		writes("result_victims", abi.MaskOf(abi.PotentialVictims), p.resultVictims),
		writes("result_nominations", abi.MaskOf(abi.PodGroupPostFilter), func(inst *host.Instance, c *call, data []byte) {
			var err error
			if c.nominations, err = schedmsg.ParseNominations(data, inst.Keep); err != nil {
				inst.Abort(err)
			}
		}),
		writes("result_placements", abi.MaskOf(abi.GeneratePlacements), func(inst *host.Instance, c *call, data []byte) {
			var err error
			if c.placements, err = schedmsg.ParsePlacements(data, inst.Keep); err != nil {
				inst.Abort(err)
			}
		}),
	}
	return slices.Concat(list, p.nodeImports(), p.handleImports(), p.stateImports())
}

// object finds the object with a ref: an argument of the running call, or the current version of an
// object that was an argument before.
func (p *Plugin) object(inst *host.Instance, ref abi.Ref) *objects.Object {
	c := &inst.State().(*instance).call
	for _, o := range [...]*objects.Object{c.pod, c.node, c.other} {
		if o != nil && o.Ref == ref {
			return o
		}
	}
	c.own = true
	p.otherObject(inst, ref)
	if object, ok := p.objects.Lookup(ref); ok {
		return object
	}
	if l, ok := c.looked[ref]; ok {
		return l.object
	}
	n := slices.IndexFunc(c.pods, func(o *objects.Object) bool { return o.Ref == ref })
	if n < 0 {
		inst.Abort(fmt.Errorf("slot %d has no version %d: a view is valid during its call, or until its object changes", ref.Slot(), ref.Version()))
	}
	return c.pods[n]
}

// nodeScores gives the scores as 64-bit little-endian numbers.
func nodeScores(_ *host.Instance, i *instance, b []byte) []byte {
	for n := range i.call.scores.Len() {
		b = binary.LittleEndian.AppendUint64(b, uint64(i.call.scores.Score(n)))
	}
	return b
}

// nodeNames gives the names of the nodes of the function: those that are scored, those that were
// handed over, or all of the snapshot.
func (p *Plugin) nodeNames(inst *host.Instance, i *instance, b []byte) []byte {
	c := &i.call
	if c.scores != nil {
		for n := range c.scores.Len() {
			b = append(append(b, c.scores.Name(n)...), 0)
		}
		return b
	}
	for n := range all(p.passed(inst, c)) {
		if node := n.Node(); node != nil {
			b = append(append(b, node.Name...), 0)
		}
	}
	return b
}

// passed returns the nodes that were handed over to the function, or all of the snapshot.
func (p *Plugin) passed(inst *host.Instance, c *call) Nodes {
	c.asks(inst)
	if c.nodes != nil || !c.snapshot || p.handle == nil {
		return c.nodes
	}
	return p.snapshot(inst)
}

// snapshot returns the nodes of the scheduler's snapshot. There must be a scheduler.
func (p *Plugin) snapshot(inst *host.Instance) Nodes {
	nodes, err := p.handle.Nodes()
	if err != nil {
		inst.Abort(err)
	}
	return nodes
}

// nodeRefs gives the refs of the same nodes, as 64-bit little-endian numbers.
func (p *Plugin) nodeRefs(inst *host.Instance, i *instance, b []byte) []byte {
	for info := range all(p.passed(inst, &i.call)) {
		node := info.Node()
		if node == nil {
			continue // It has no name either.
		}
		object := p.objects.Node(node)
		i.call.look(inst, object, info)
		b = binary.LittleEndian.AppendUint64(b, uint64(object.Ref))
	}
	return b
}

// resultScores takes the normalized scores.
func resultScores(inst *host.Instance, c *call, data []byte) {
	n := c.scores.Len()
	if len(data) != 8*n {
		inst.Abort(fmt.Errorf("%d bytes are not %d scores of nodes", len(data), n))
	}
	inst.Keep(len(data))
	c.normalized = make([]int64, 0, n)
	for ; len(data) > 0; data = data[8:] {
		c.normalized = append(c.normalized, int64(binary.LittleEndian.Uint64(data)))
	}
}

// texts splits a list of texts with a NUL after each. They are copies. each is the number of bytes
// that the caller keeps for a text beside its own.
func texts(inst *host.Instance, data []byte, what string, each uintptr) []string {
	if len(data) == 0 {
		return []string{}
	}
	inst.Keep(len(data) + bytes.Count(data, []byte{0})*int(each+unsafe.Sizeof("")))
	if data[len(data)-1] != 0 {
		inst.Abort(errors.New("the last " + what + " does not end with a NUL"))
	}
	return strings.Split(string(data[:len(data)-1]), "\x00")
}

// resultNodeNames takes the nodes to which PreFilter narrows the cycle.
func resultNodeNames(inst *host.Instance, c *call, data []byte) {
	if c.first == nil {
		c.nodeNames = texts(inst, data, "name", 0)
	}
}

// resultPods takes the namespaces and names of Pods in turn.
func resultPods(inst *host.Instance, c *call, data []byte) {
	list := texts(inst, data, "name", unsafe.Sizeof(types.NamespacedName{})/2)
	if len(list)%2 != 0 {
		inst.Abort(fmt.Errorf("%d texts are not pairs of a namespace and a name", len(list)))
	}
	c.hinted = make([]types.NamespacedName, 0, len(list)/2)
	for ; len(list) > 0; list = list[2:] {
		c.hinted = append(c.hinted, types.NamespacedName{Namespace: list[0], Name: list[1]})
	}
}

// resultSignFragments takes keys and JSON values in turn.
func resultSignFragments(inst *host.Instance, c *call, data []byte) {
	list := texts(inst, data, "value", unsafe.Sizeof(SignFragment{})/2)
	if len(list)%2 != 0 {
		inst.Abort(fmt.Errorf("%d texts are not pairs of a key and a value", len(list)))
	}
	c.fragments = make([]SignFragment, 0, len(list)/2)
	for ; len(list) > 0; list = list[2:] {
		value, err := jsonValue(list[1])
		if err != nil {
			inst.Abort(fmt.Errorf("the fragment %q: %w", list[0], err))
		}
		c.fragments = append(c.fragments, SignFragment{Key: list[0], Value: value})
	}
}

// podGroupPod gives a Pod of the group.
func (p *Plugin) podGroupPod(inst *host.Instance, stack []uint64) {
	pods := during(inst, withGroup).call.group.Pods
	n := uint32(stack[0])
	if uint64(n) >= uint64(len(pods)) {
		inst.Abort(fmt.Errorf("the group has %d Pods, but no Pod %d", len(pods), n))
	}
	object := p.objects.Pod(pods[n])
	inst.ConfidentialObject(object, 0)
	stack[0] = uint64(inst.Write(uint32(stack[1]), uint32(stack[2]), object.Bytes()))
}
