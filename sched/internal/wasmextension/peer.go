// Package wasmextension lets guests of kube-scheduler-wasm-extension
// (sigs.k8s.io/kube-scheduler-wasm-extension) run unmodified.
//
// Their functions take no parameters: a guest requests the arguments of a call by host functions,
// in protobuf and JSON, and handles one Pod at a time. There are two forms of the ABI, which the
// signatures of a guest's imports tell apart: the present one, and that of the first design, in
// which k8s.io/api.pod and k8s.io/api.node answer about the running call.
package wasmextension

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// The names of the dialects.
const (
	Name      = "kube-scheduler-wasm-extension"
	FirstName = "kube-scheduler-wasm-extension, first design"
)

// exports are the functions that such guests may have, and their names here.
var exports = []struct {
	name     string
	function abi.Function
	result   []abi.ValueType
}{
	{"enqueue", abi.EventsToRegister, nil},
	{"prefilter", abi.PreFilter, []abi.ValueType{abi.I32}},
	{"addpod", abi.AddPod, []abi.ValueType{abi.I32}},
	{"removepod", abi.RemovePod, []abi.ValueType{abi.I32}},
	{"filter", abi.Filter, []abi.ValueType{abi.I32}},
	{"postfilter", abi.PostFilter, []abi.ValueType{abi.I64}},
	{"prescore", abi.PreScore, []abi.ValueType{abi.I32}},
	{"score", abi.Score, []abi.ValueType{abi.I64}},
	{"normalizescore", abi.NormalizeScore, []abi.ValueType{abi.I32}},
	{"reserve", abi.Reserve, []abi.ValueType{abi.I32}},
	{"unreserve", abi.Unreserve, nil},
	{"permit", abi.Permit, []abi.ValueType{abi.I64}},
	{"prebind", abi.PreBind, []abi.ValueType{abi.I32}},
	{"bind", abi.Bind, []abi.ValueType{abi.I32}},
	{"postbind", abi.PostBind, nil},
}

// Functions returns the functions of a guest, given a function that reports its exports.
func Functions(has func(export host.ExportIndex) bool) (mask abi.Mask) {
	for n, e := range exports {
		if has(host.ExportIndex(n)) {
			mask |= abi.MaskOf(e.function)
		}
	}
	return mask
}

// Alone are the functions of which its own host requires at least one.
var Alone = abi.MaskOf(abi.PreFilter, abi.Filter, abi.Score, abi.Reserve, abi.Unreserve, abi.Permit, abi.Bind)

// companions are the functions that its own host calls only if the guest has another.
var companions = []struct{ functions, needed abi.Mask }{
	{abi.MaskOf(abi.PostFilter), abi.MaskOf(abi.Filter)},
	{abi.MaskOf(abi.PreScore, abi.NormalizeScore), abi.MaskOf(abi.Score)},
	{abi.MaskOf(abi.PreBind, abi.PostBind), abi.MaskOf(abi.Bind)},
}

// Called returns those of a guest's functions that its own host calls, and the functions that the
// others lack.
func Called(has abi.Mask) (called, missing abi.Mask) {
	called = has
	for _, c := range companions {
		if has&c.functions != 0 && has&c.needed == 0 {
			called &^= c.functions
			missing |= c.needed
		}
	}
	return called, missing
}

// Export returns the index of the export of a function, -1 if there is none.
func Export(f abi.Function) host.ExportIndex {
	for n, e := range exports {
		if e.function == f {
			return host.ExportIndex(n)
		}
	}
	return -1
}

// Result converts the result of a function to that of package abi.
func Result(f abi.Function, result uint64) uint64 {
	if f == abi.Permit {
		timeout, code := uint32(result), abi.Code(int32(result>>32))
		return abi.Pack(timeout, code)
	}
	return result
}

// Call is the data that a guest may ask about in the running call, and its answers by host calls,
// in copies.
type Call struct {
	// Pod is the Pod that is scheduled, Target the one that is added or removed,
	// Node the node of the call; nil if there is none.
	Pod, Target, Node *objects.Object
	NodeName          string
	Statuses          []schedmsg.NodeStatus
	Scores            Scores // nil if the call is not about scores.

	Reason    string
	NodeNames []string
	// Nominated is the name of a node.
	Nominated  string
	Events     []Event
	Normalized []int64
}

// Scores is a list of the scores of nodes.
type Scores interface {
	Len() int
	Name(i int) string
	Score(i int) int64
}

// Event is a cluster event.
type Event struct {
	Resource abi.EventResource
	Action   abi.ActionType
}

// Scheduler is the interface for guests beyond their call.
type Scheduler interface {
	// Config is the plugin's configuration.
	Config() []byte
	// Call returns the call that an instance runs.
	Call(inst *host.Instance) *Call
	// Passed returns the nodes that were passed to the call.
	Passed(inst *host.Instance) []*corev1.Node
	// Node returns a node by its name, nil if there is none.
	Node(inst *host.Instance, name string) *corev1.Node
	// Images returns the images on a node, nil if there is no such node.
	Images(inst *host.Instance, node string) []schedmsg.Image
	// Nodes returns all nodes.
	Nodes(inst *host.Instance) []*corev1.Node
	// EncodedNode returns a Node as protobuf.
	EncodedNode(node *corev1.Node) []byte
	// EncodedPod returns a Pod as protobuf.
	EncodedPod(pod *corev1.Pod) []byte
	// Severity is the minimum severity that guests log: 0 for information, 1 for warnings, 2 for
	// errors, 3 for nothing.
	Severity() int32
	// Logs reports whether a message of a severity, which may be any number, is logged.
	Logs(severity int32) bool
	// Log logs a message of a severity for which Logs is true, with texts, keys and
	// values in turn.
	Log(inst *host.Instance, severity int32, msg string, texts []string)
	// Report reports an event.
	Report(inst *host.Instance, e *schedmsg.Event)
	// WaitingPod returns a waiting Pod as protobuf, nil if none waits under the UID, and
	// RejectWaitingPod rejects it and reports whether it waited. They end the call if there is no
	// scheduler.
	WaitingPod(inst *host.Instance, uid types.UID) []byte
	RejectWaitingPod(inst *host.Instance, uid types.UID, reason string) bool
}

// Grants are the names of the grants that the host functions with an effect need.
type Grants struct{ Events, WaitingPods string }

// Dialects returns both forms of the ABI.
func Dialects(s Scheduler, grants Grants) []host.Dialect {
	var list []host.Export
	for _, e := range exports {
		list = append(list, host.Export{Name: e.name, Results: e.result, Optional: true})
	}
	e := &environment{s, grants}
	return []host.Dialect{
		{Name: FirstName, Detect: isFirst, Exports: list, Imports: e.imports(true)},
		{Name: Name, Detect: is, Exports: list, Imports: e.imports(false)},
	}
}

// is reports whether a module has a function of the dialect, in the form without
// parameters.
func is(m *host.Module) bool {
	for _, e := range exports {
		if strings.HasPrefix(m.Export(e.name), "() ->") {
			return true
		}
	}
	return false
}

func isFirst(m *host.Module) bool {
	return is(m) && (m.Import(abi.ModuleObjects, "pod") != "" ||
		m.Import(abi.ModuleObjects, "node") == "(i32, i32) -> i32" ||
		m.Import(abi.KindScheduler.Module(), "status_reason") != "")
}
