package sched

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/host"
)

// instance is what the plugin knows of an instance of its guest.
type instance struct {
	// seen is the version of the cycle in each slot whose PreFilter ran here.
	seen [cycleSlots]uint32
	call call
	// scores and names are the buffers of NormalizeScore.
	scores, names []byte
}

// call is the call that runs: its arguments and what the guest answered by host
// calls.
type call struct {
	pod, node *codec.Object
	// replay says that the results of the call are of no interest.
	replay bool
	scores fwk.NodeScoreList

	nodeNames  []string
	normalized []int64
}

// imports are the host functions of a scheduler plugin.
func (p *plugin) imports() []host.Import {
	return []host.Import{
		{
			Module: abi.ModuleObjects, Name: abi.ImportObject,
			Params:  []abi.ValueType{abi.I64, abi.I32, abi.I32},
			Results: []abi.ValueType{abi.I32},
			Func: func(inst *host.Instance, stack []uint64) {
				object := p.object(inst, abi.Ref(stack[0]))
				n := inst.Write(uint32(stack[1]), uint32(stack[2]), object.Bytes())
				if n <= uint32(stack[2]) { // Otherwise nothing was written.
					p.crossings.Add(1)
				}
				stack[0] = uint64(n)
			},
		},
		host.GuestReads(abi.ModuleScheduler, abi.ImportNodeScores, nodeScores),
		host.GuestReads(abi.ModuleScheduler, abi.ImportNodeNames, nodeNames),
		host.GuestWrites(abi.ModuleScheduler, abi.ImportResultScores, resultScores),
		host.GuestWrites(abi.ModuleScheduler, abi.ImportResultNodeNames, resultNodeNames),
	}
}

// object finds what ref names: an argument of the call that runs, or the current
// version of an object that was an argument before.
func (p *plugin) object(inst *host.Instance, ref abi.Ref) *codec.Object {
	c := &inst.State().(*instance).call
	if c.pod != nil && c.pod.Ref == ref {
		return c.pod
	}
	if c.node != nil && c.node.Ref == ref {
		return c.node
	}
	object, ok := p.objects.Lookup(ref)
	if !ok {
		inst.Violate(fmt.Errorf("slot %d has no version %d: a view must be read during the call that it was passed to, or while its object stays as it is", ref.Slot(), ref.Version()))
	}
	return object
}

// normalizing returns the call if it is a NormalizeScore.
func normalizing(inst *host.Instance) *instance {
	if inst.Calling() != abi.NormalizeScore.String() {
		inst.Violate(fmt.Errorf("it belongs to %s, the guest is in %s", abi.NormalizeScore, inst.Calling()))
	}
	return inst.State().(*instance)
}

// nodeScores gives the scores as 64-bit little-endian numbers.
func nodeScores(inst *host.Instance) []byte {
	i := normalizing(inst)
	i.scores = i.scores[:0]
	for _, s := range i.call.scores {
		i.scores = binary.LittleEndian.AppendUint64(i.scores, uint64(s.Score))
	}
	return i.scores
}

// nodeNames gives the names of the scored nodes, a NUL after each.
func nodeNames(inst *host.Instance) []byte {
	i := normalizing(inst)
	i.names = i.names[:0]
	for _, s := range i.call.scores {
		i.names = append(append(i.names, s.Name...), 0)
	}
	return i.names
}

// resultScores takes the normalized scores.
func resultScores(inst *host.Instance, data []byte) {
	i := normalizing(inst)
	if len(data) != 8*len(i.call.scores) {
		inst.Violate(fmt.Errorf("%d bytes are not the scores of %d nodes", len(data), len(i.call.scores)))
	}
	i.call.normalized = make([]int64, 0, len(i.call.scores))
	for ; len(data) > 0; data = data[8:] {
		i.call.normalized = append(i.call.normalized, int64(binary.LittleEndian.Uint64(data)))
	}
}

// resultNodeNames takes the nodes that PreFilter narrows the cycle down to.
func resultNodeNames(inst *host.Instance, data []byte) {
	if inst.Calling() != abi.PreFilter.String() {
		inst.Violate(fmt.Errorf("it belongs to %s, the guest is in %s", abi.PreFilter, inst.Calling()))
	}
	c := &inst.State().(*instance).call
	if c.replay {
		return
	}
	if len(data) > 0 && data[len(data)-1] != 0 {
		inst.Violate(errors.New("the last name does not end with a NUL"))
	}
	c.nodeNames = []string{}
	if len(data) > 0 {
		c.nodeNames = strings.Split(string(data[:len(data)-1]), "\x00")
	}
}
