package wasmextension

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

type environment struct {
	Scheduler
	grants Grants
}

const moduleLog = "k8s.io/klog"

// imports are the host functions of one form of the ABI.
func (e *environment) imports(first bool) []host.Import {
	reads := func(name string, get func(inst *host.Instance, c *Call) []byte) host.Import {
		return host.ToGuest(abi.KindScheduler.Module(), name, func(inst *host.Instance) []byte { return get(inst, e.Call(inst)) })
	}
	writes := func(name string, put func(inst *host.Instance, c *Call, data []byte)) host.Import {
		return host.FromGuest(abi.KindScheduler.Module(), name, func(inst *host.Instance, data []byte) { put(inst, e.Call(inst), data) })
	}
	reason := func(inst *host.Instance, c *Call, data []byte) {
		c.Reason = cut.Text(data, inst.Limits().OutputBytes)
	}
	granted := func(grant string, im host.Import) host.Import {
		im.Grant = grant
		return im
	}
	list := []host.Import{
		host.ToGuest(abi.ModuleObjects, "nodeList", e.nodeList),
		{Module: moduleLog, Name: "log", Params: i32s(3), Memory: 0b110, Func: e.log(false)},
		{Module: moduleLog, Name: "logs", Params: i32s(5), Memory: 0b11110, Func: e.log(true)},
		{Module: moduleLog, Name: "severity", Results: i32s(1), Func: func(_ *host.Instance, stack []uint64) { stack[0] = uint64(uint32(e.Severity())) }},
		reads("get_config", func(*host.Instance, *Call) []byte { return e.Config() }),
		reads("currentPod", func(inst *host.Instance, c *Call) []byte { return bytesOf(inst, c.Pod) }),
		reads("targetPod", func(inst *host.Instance, c *Call) []byte { return bytesOf(inst, c.Target) }),
		reads("currentNodeName", func(_ *host.Instance, c *Call) []byte { return []byte(c.NodeName) }),
		reads("filteredNodeList", func(inst *host.Instance, c *Call) []byte {
			names := []string{}
			for _, n := range e.Passed(inst) {
				names = append(names, n.Name)
			}
			return marshal(inst, names)
		}),
		reads("nodeToStatusMap", func(inst *host.Instance, c *Call) []byte {
			codes := map[string]abi.Code{}
			for _, s := range c.Statuses {
				codes[s.NodeName] = s.Code
			}
			return marshal(inst, codes)
		}),
		reads("nodeScoreList", func(inst *host.Instance, c *Call) []byte {
			scores := map[string]int64{}
			for i := range length(c.Scores) {
				scores[c.Scores.Name(i)] = c.Scores.Score(i)
			}
			return marshal(inst, scores)
		}),
		{Module: abi.KindScheduler.Module(), Name: "nodeImageStates", Params: i32s(4), Results: i32s(1), Memory: 0b1111, Func: func(inst *host.Instance, stack []uint64) {
			var states map[string]imageState
			node := string(inst.Read(uint32(stack[0]), uint32(stack[1])))
			if e.Node(inst, node) != nil {
				states = map[string]imageState{}
				for _, image := range e.Images(inst, node) {
					states[image.Name] = imageState{Size: image.Size, NumNodes: image.NumNodes}
				}
			}
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), marshal(inst, states)))
		}},
		writes("result.cluster_events", func(inst *host.Instance, c *Call, data []byte) {
			var err error
			inst.Keep(len(data)) // An event has as many bytes here.
			if c.Events, err = parseEvents(data); err != nil {
				inst.Abort(err)
			}
		}),
		writes("result.node_names", func(inst *host.Instance, c *Call, data []byte) { c.NodeNames = texts(inst, data) }),
		writes("result.nominated_node_name", func(inst *host.Instance, c *Call, data []byte) {
			inst.Keep(len(data) - len(c.Nominated))
			c.Nominated = string(data)
		}),
		writes("result.status_reason", reason),
		writes("result.normalized_score_list", normalized),
		granted(e.grants.Events, writes("handle.eventrecorder.eventf", func(inst *host.Instance, _ *Call, data []byte) { e.eventf(inst, data) })),
		granted(e.grants.WaitingPods, host.Import{
			Module: abi.KindScheduler.Module(), Name: "handle.reject_waiting_pod", Params: i32s(4), Memory: 0b1111, Func: e.rejectWaitingPod,
		}),
		granted(e.grants.WaitingPods, host.Import{
			Module: abi.KindScheduler.Module(), Name: "handle.get_waiting_pod", Params: i32s(4), Memory: 0b1111, Func: e.getWaitingPod,
		}),
	}
	if first {
		return append(list,
			host.ToGuest(abi.ModuleObjects, "pod", func(inst *host.Instance) []byte { return bytesOf(inst, e.Call(inst).Pod) }),
			host.ToGuest(abi.ModuleObjects, "node", func(inst *host.Instance) []byte { return bytesOf(inst, e.Call(inst).Node) }),
			writes("status_reason", reason),
		)
	}
	return append(list, host.Import{
		Module: abi.ModuleObjects, Name: "node", Params: i32s(4), Results: i32s(1), Memory: 0b1111, Func: func(inst *host.Instance, stack []uint64) {
			var b []byte
			if n := e.Node(inst, string(inst.Read(uint32(stack[0]), uint32(stack[1])))); n != nil {
				b = e.EncodedNode(n)
			}
			stack[0] = uint64(inst.Write(uint32(stack[2]), uint32(stack[3]), b))
		},
	})
}

// imageState is the description of an image for a guest. Nodes is one of their host's fields, which
// a scheduler leaves empty.
type imageState struct {
	Size     int64
	NumNodes int
	Nodes    map[string]struct{}
}

func length(scores Scores) int {
	if scores == nil {
		return 0
	}
	return scores.Len()
}

// log returns the function that logs a message, with keys and values or without. Its text
// ends with a line break, as that of klog.Info does.
func (e *environment) log(values bool) func(*host.Instance, []uint64) {
	return func(inst *host.Instance, stack []uint64) {
		severity := int32(uint32(stack[0]))
		msg := inst.Read(uint32(stack[1]), uint32(stack[2]))
		var kvs []byte
		if values {
			kvs = inst.Read(uint32(stack[3]), uint32(stack[4]))
		}
		// A guest's log lines in a call are bounded, as in our own ABI.
		if e.Logs(severity) && inst.Dialect().MayLog(len(msg)+len(kvs)) {
			e.Log(inst, severity, strings.TrimSuffix(string(msg), "\n"), texts(inst, kvs))
		}
	}
}

func i32s(n int) []abi.ValueType {
	list := make([]abi.ValueType, n)
	for i := range list {
		list[i] = abi.I32
	}
	return list
}

func bytesOf(inst *host.Instance, o *objects.Object) []byte {
	if o == nil {
		return nil
	}
	inst.ConfidentialObject(o, 0)
	return o.Bytes()
}

// marshal writes JSON, with the keys of maps in their order.
func marshal(inst *host.Instance, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		inst.Abort(err)
	}
	return b
}

// texts splits texts with a NUL after each. They are copies.
func texts(inst *host.Instance, data []byte) []string {
	if len(data) == 0 {
		return nil
	}
	inst.Keep(len(data) + (1+bytes.Count(data, []byte{0}))*int(unsafe.Sizeof("")))
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
}

// nodeList gives a v1.NodeList: field 2 are the items.
func (e *environment) nodeList(inst *host.Instance) []byte {
	var b []byte
	for _, n := range e.Nodes(inst) {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendBytes(b, e.EncodedNode(n))
	}
	return b
}

// scoreBytes is the maximum number of bytes of a map for each byte of its JSON: an entry takes some
// 60 bytes, and "a":1, has six.
const scoreBytes = 10

// normalized takes the scores by the names of their nodes, and restores their order, which a map
// lacks.
func normalized(inst *host.Instance, c *Call, data []byte) {
	if len(data) == 0 {
		return
	}
	inst.Keep(len(data) * scoreBytes)
	var scores map[string]int64
	if err := json.Unmarshal(data, &scores); err != nil {
		inst.Abort(err)
	}
	if len(scores) == 0 {
		return
	}
	c.Normalized = make([]int64, length(c.Scores))
	for i := range c.Normalized {
		score, ok := scores[c.Scores.Name(i)]
		if !ok {
			inst.Abort(fmt.Errorf("the node %q has no score", c.Scores.Name(i)))
		}
		c.Normalized[i] = score
	}
}

// The numbers of resources in events.
var resources = []abi.EventResource{
	abi.EventPod, abi.EventNode, abi.EventPersistentVolume, abi.EventPersistentVolumeClaim,
	noResource, // PodSchedulingContext, which Kubernetes has dropped.
	abi.EventResourceClaim, abi.EventStorageClass, abi.EventCSINode, abi.EventCSIDriver, abi.EventCSIStorageCapacity, abi.EventWildCard,
}

const noResource = abi.EventResource(1 << 31)

// The bits of actions, those of Kubernetes 1.27.
const (
	actionUpdates = 4 | 8 | 16 | 32 // Of a Node's allocatable resources, labels, taints, conditions.
	actionAll     = 1 | 2 | actionUpdates
)

// parseEvents reads events, u32 resource and u32 action each, and returns their present meaning.
func parseEvents(data []byte) ([]Event, error) {
	if len(data)%8 != 0 {
		return nil, fmt.Errorf("%d bytes are not a number of events of 8 bytes", len(data))
	}
	events := []Event{}
	for ; len(data) > 0; data = data[8:] {
		resource, action := binary.LittleEndian.Uint32(data), binary.LittleEndian.Uint32(data[4:])
		if resource >= uint32(len(resources)) {
			return nil, fmt.Errorf("the resource of an event is %d, which is unknown", resource)
		}
		if action == 0 || action&^actionAll != 0 {
			return nil, fmt.Errorf("the action of an event is %#x, which is unknown", action)
		}
		e := Event{resources[resource], meaning(resources[resource], action)}
		if e.Resource != noResource {
			events = append(events, e)
		}
	}
	return events, nil
}

// meaning maps the action of an event. The kinds of updates in 1.27 are those of Nodes, at the same
// bits as today; all of them are any update.
func meaning(resource abi.EventResource, action uint32) abi.ActionType {
	var a abi.ActionType
	if action&1 != 0 {
		a |= abi.ActionAdd
	}
	if action&2 != 0 {
		a |= abi.ActionDelete
	}
	switch updates := action & actionUpdates; {
	case updates == 0:
	case updates == actionUpdates || resource != abi.EventNode:
		a |= abi.ActionUpdate
	default:
		a |= abi.ActionType(updates)
	}
	return a
}

// Defaults are the events of a guest that has enqueue and names none.
var Defaults = []Event{
	{abi.EventPod, abi.ActionAll}, {abi.EventNode, abi.ActionAll}, {abi.EventCSINode, abi.ActionAll},
	{abi.EventPersistentVolume, abi.ActionAll}, {abi.EventPersistentVolumeClaim, abi.ActionAll}, {abi.EventStorageClass, abi.ActionAll},
}

// maxEventBytes is the length of the longest event. An API server accepts notes of 1 KiB.
const maxEventBytes = 16 << 10

// eventf reports an event.
func (e *environment) eventf(inst *host.Instance, data []byte) {
	type reference struct{ Kind, APIVersion, Name, Namespace, UID, ResourceVersion string }
	var m struct {
		RegardingReference, RelatedReference reference
		Eventtype, Reason, Action, Note      string
	}
	if len(data) > maxEventBytes {
		inst.Abort(fmt.Errorf("an event has %d bytes, more than %d", len(data), maxEventBytes))
	}
	if err := json.Unmarshal(data, &m); err != nil {
		inst.Abort(err)
	}
	object := func(r reference) *corev1.ObjectReference {
		if r == (reference{}) {
			return nil
		}
		return &corev1.ObjectReference{
			Kind: r.Kind, APIVersion: r.APIVersion, Name: r.Name, Namespace: r.Namespace, UID: types.UID(r.UID), ResourceVersion: r.ResourceVersion,
		}
	}
	e.Report(inst, &schedmsg.Event{
		Type: m.Eventtype, Reason: m.Reason, Action: m.Action, Note: m.Note,
		Regarding: object(m.RegardingReference), Related: object(m.RelatedReference),
	})
}

// rejectWaitingPod writes 1 if a Pod was waiting, 0 otherwise, in 64 bits.
func (e *environment) rejectWaitingPod(inst *host.Instance, stack []uint64) {
	var answer uint64
	if e.RejectWaitingPod(inst, types.UID(lookup.ReadQuestion(inst, stack[0], stack[1])), "rejected by a guest") {
		answer = 1
	}
	inst.Write(uint32(stack[2]), uint32(stack[3]), binary.LittleEndian.AppendUint64(nil, answer))
}

// getWaitingPod writes the Pod if it fits, and a 0 of 64 bits if there is none.
func (e *environment) getWaitingPod(inst *host.Instance, stack []uint64) {
	b := e.WaitingPod(inst, types.UID(lookup.ReadQuestion(inst, stack[0], stack[1])))
	if b == nil {
		b = make([]byte, 8)
	}
	inst.Write(uint32(stack[2]), uint32(stack[3]), b)
}
