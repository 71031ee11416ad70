package abi

import (
	"strconv"
	"strings"
)

// Marker is the export that makes a module a guest of this ABI. Its signature
// is () -> i64 and its result the [Mask] of the functions that the plugin
// implements.
//
// Exports alone do not say that: a Go SDK exports a function for each extension
// point, since the linker keeps every go:wasmexport, whatever the plugin
// implements.
const Marker = "kubewasm_abi_v1"

// MetadataSection is the name of the custom section in which a module says of
// itself what a host may want to know before it runs.
const MetadataSection = "kubewasm"

// Memory is the name under which a guest exports its linear memory.
const Memory = "memory"

// ValueType is a WebAssembly number type, by its code in the binary format
// (WebAssembly Core Specification 2.0, section 5.3.1).
type ValueType = byte

// The value types that this ABI uses.
const (
	I32 ValueType = 0x7f
	I64 ValueType = 0x7e
)

// Kind is the kind of extension that a function belongs to.
type Kind uint8

// The kinds of extension.
const (
	KindCommon Kind = iota
	KindScheduler
	KindAdmission
	KindHook
)

// String returns the name of the kind as it stands in messages.
func (k Kind) String() string {
	switch k {
	case KindCommon:
		return "common"
	case KindScheduler:
		return "scheduler"
	case KindAdmission:
		return "admission"
	case KindHook:
		return "hook"
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Function is an index into the functions that a guest may implement: the bit
// of the function in a [Mask].
type Function uint8

// The functions of a guest. The numbers are part of the contract and never
// change; those in between are reserved.
const (
	PreEnqueue              Function = 0
	QueueSort               Function = 1
	EventsToRegister        Function = 2
	QueueingHint            Function = 3
	PreFilter               Function = 4
	AddPod                  Function = 5
	RemovePod               Function = 6
	Filter                  Function = 7
	PostFilter              Function = 8
	PreScore                Function = 9
	Score                   Function = 10
	NormalizeScore          Function = 11
	Reserve                 Function = 12
	Unreserve               Function = 13
	Permit                  Function = 14
	PreBindPreFlight        Function = 15
	PreBind                 Function = 16
	Bind                    Function = 17
	PostBind                Function = 18
	SignPod                 Function = 19
	PodGroupPostFilter      Function = 20
	GeneratePlacements      Function = 21
	ScorePlacement          Function = 22
	NormalizePlacementScore Function = 23
	CloneCycle              Function = 24

	Validate Function = 32
	Mutate   Function = 33

	Hook Function = 48

	Configure Function = 56
)

// Signature is what an export must look like.
type Signature struct {
	// Name is the name of the export.
	Name string
	// Kind is the kind of extension that the function belongs to.
	Kind            Kind
	Params, Results []ValueType
}

// functions is indexed by Function. An entry without a name is reserved.
var functions = [64]Signature{
	PreEnqueue:              {"preenqueue", KindScheduler, []ValueType{I64}, []ValueType{I32}},
	QueueSort:               {"queuesort", KindScheduler, []ValueType{I64, I64, I64, I64}, []ValueType{I32}},
	EventsToRegister:        {"eventstoregister", KindScheduler, nil, []ValueType{I32}},
	QueueingHint:            {"queueinghint", KindScheduler, []ValueType{I32, I64, I64, I64}, []ValueType{I64}},
	PreFilter:               {"prefilter", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	AddPod:                  {"addpod", KindScheduler, []ValueType{I64, I64, I64, I64}, []ValueType{I32}},
	RemovePod:               {"removepod", KindScheduler, []ValueType{I64, I64, I64, I64}, []ValueType{I32}},
	Filter:                  {"filter", KindScheduler, []ValueType{I64, I64, I64}, []ValueType{I32}},
	PostFilter:              {"postfilter", KindScheduler, []ValueType{I64, I64}, []ValueType{I64}},
	PreScore:                {"prescore", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	Score:                   {"score", KindScheduler, []ValueType{I64, I64, I64}, []ValueType{I64}},
	NormalizeScore:          {"normalizescore", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	Reserve:                 {"reserve", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	Unreserve:               {"unreserve", KindScheduler, []ValueType{I64, I64}, nil},
	Permit:                  {"permit", KindScheduler, []ValueType{I64, I64}, []ValueType{I64}},
	PreBindPreFlight:        {"prebindpreflight", KindScheduler, []ValueType{I64, I64}, []ValueType{I64}},
	PreBind:                 {"prebind", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	Bind:                    {"bind", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	PostBind:                {"postbind", KindScheduler, []ValueType{I64, I64}, nil},
	SignPod:                 {"signpod", KindScheduler, []ValueType{I64}, []ValueType{I32}},
	PodGroupPostFilter:      {"podgrouppostfilter", KindScheduler, []ValueType{I64}, []ValueType{I32}},
	GeneratePlacements:      {"generateplacements", KindScheduler, []ValueType{I64}, []ValueType{I32}},
	ScorePlacement:          {"scoreplacement", KindScheduler, []ValueType{I64}, []ValueType{I64}},
	NormalizePlacementScore: {"normalizeplacementscore", KindScheduler, []ValueType{I64}, []ValueType{I32}},
	CloneCycle:              {"clonecycle", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	Validate:                {"validate", KindAdmission, nil, []ValueType{I64}},
	Mutate:                  {"mutate", KindAdmission, nil, []ValueType{I64}},
	Hook:                    {"hook", KindHook, nil, []ValueType{I32}},
	Configure:               {"configure", KindCommon, nil, []ValueType{I32}},
}

// Signature returns the export of f. Its Name is empty when f is not a function
// of this version of the ABI.
func (f Function) Signature() Signature {
	if int(f) >= len(functions) {
		return Signature{}
	}
	return functions[f]
}

// String returns the name of f's export, or its number when it has none.
func (f Function) String() string {
	if name := f.Signature().Name; name != "" {
		return name
	}
	return "function(" + strconv.Itoa(int(f)) + ")"
}

// Mask is a set of functions, bit n for [Function] n.
type Mask uint64

// MaskOf returns the set of the given functions.
func MaskOf(fs ...Function) Mask {
	var m Mask
	for _, f := range fs {
		m |= 1 << f
	}
	return m
}

// Has reports whether f is in the set.
func (m Mask) Has(f Function) bool { return m&(1<<f) != 0 }

// Functions returns the members in ascending order.
func (m Mask) Functions() []Function {
	var fs []Function
	for f := Function(0); f < 64; f++ {
		if m.Has(f) {
			fs = append(fs, f)
		}
	}
	return fs
}

// Of returns the members that belong to the kind k.
func (m Mask) Of(k Kind) Mask {
	var of Mask
	for _, f := range m.Functions() {
		if sig := f.Signature(); sig.Name != "" && sig.Kind == k {
			of |= 1 << f
		}
	}
	return of
}

// Unknown returns the members that this version of the ABI does not define.
func (m Mask) Unknown() Mask {
	var unknown Mask
	for _, f := range m.Functions() {
		if f.Signature().Name == "" {
			unknown |= 1 << f
		}
	}
	return unknown
}

// String lists the names of the members: "filter, score".
func (m Mask) String() string {
	names := make([]string, 0, 4)
	for _, f := range m.Functions() {
		names = append(names, f.String())
	}
	return strings.Join(names, ", ")
}

// FormatSignature writes a function type the way messages show it:
// "(i32, i64) -> i32", with "()" for no results.
func FormatSignature(params, results []ValueType) string {
	var b strings.Builder
	b.WriteByte('(')
	writeTypes(&b, params)
	b.WriteString(") -> ")
	if len(results) == 1 {
		writeTypes(&b, results)
		return b.String()
	}
	b.WriteByte('(')
	writeTypes(&b, results)
	b.WriteByte(')')
	return b.String()
}

func writeTypes(b *strings.Builder, types []ValueType) {
	for i, t := range types {
		if i > 0 {
			b.WriteString(", ")
		}
		switch t {
		case I32:
			b.WriteString("i32")
		case I64:
			b.WriteString("i64")
		case 0x7d:
			b.WriteString("f32")
		case 0x7c:
			b.WriteString("f64")
		case 0x7b:
			b.WriteString("v128")
		case 0x70:
			b.WriteString("funcref")
		case 0x6f:
			b.WriteString("externref")
		default:
			b.WriteString("0x" + strconv.FormatUint(uint64(t), 16))
		}
	}
}

// The modules that a guest imports from. Each function below is named with its
// module in SPEC.md, section 6.
const (
	ModuleCommon    = "kubewasm"
	ModuleObjects   = "k8s.io/api"
	ModuleScheduler = "k8s.io/scheduler"
	ModuleAdmission = "k8s.io/admission"
	ModuleHooks     = "k8s.io/hooks"
)

// The functions that a guest may import.
const (
	// ImportConfig is kubewasm.config (buf, limit) -> len.
	ImportConfig = "config"
	// ImportStatusReason is kubewasm.status_reason (ptr, len).
	ImportStatusReason = "status_reason"
	// ImportLog is kubewasm.log (level, ptr, len).
	ImportLog = "log"

	// ImportObject is k8s.io/api.object (ref i64, buf, limit) -> len.
	ImportObject = "object"
	// ImportObjectPart is k8s.io/api.object_part
	// (ref i64, part, fields i64, buf, limit) -> len.
	ImportObjectPart = "object_part"
	// ImportObjectEntry is k8s.io/api.object_entry
	// (ref i64, field, ptr, len, buf, limit) -> len.
	ImportObjectEntry = "object_entry"
	// ImportGetObject is k8s.io/api.get_object (ptr, len, buf, limit) -> len.
	ImportGetObject = "get_object"
	// ImportListObjects is k8s.io/api.list_objects (ptr, len, buf, limit) -> len.
	ImportListObjects = "list_objects"

	// ImportNodeScores is k8s.io/scheduler.node_scores (buf, limit) -> len.
	ImportNodeScores = "node_scores"
	// ImportNodeNames is k8s.io/scheduler.node_names (buf, limit) -> len.
	ImportNodeNames = "node_names"
	// ImportNodeRefs is k8s.io/scheduler.node_refs (buf, limit) -> len.
	ImportNodeRefs = "node_refs"
	// ImportNodeName is k8s.io/scheduler.node_name (buf, limit) -> len.
	ImportNodeName = "node_name"
	// ImportNodeByName is k8s.io/scheduler.node_by_name (ptr, len) -> i64.
	ImportNodeByName = "node_by_name"
	// ImportNodeInfoVersion is k8s.io/scheduler.node_info_version (node i64) -> i64.
	ImportNodeInfoVersion = "node_info_version"
	// ImportNodeInfo is k8s.io/scheduler.node_info (node i64, buf, limit) -> len.
	ImportNodeInfo = "node_info"
	// ImportNodeImages is k8s.io/scheduler.node_images (node i64, buf, limit) -> len.
	ImportNodeImages = "node_images"
	// ImportNodePods is k8s.io/scheduler.node_pods (node i64, buf, limit) -> len.
	ImportNodePods = "node_pods"
	// ImportNodeStatuses is k8s.io/scheduler.node_statuses (buf, limit) -> len.
	ImportNodeStatuses = "node_statuses"
	// ImportPodGroup is k8s.io/scheduler.pod_group (buf, limit) -> len.
	ImportPodGroup = "pod_group"
	// ImportPodGroupPod is k8s.io/scheduler.pod_group_pod (index, buf, limit) -> len.
	ImportPodGroupPod = "pod_group_pod"
	// ImportTryPodGroup is k8s.io/scheduler.try_pod_group (ptr, len, buf, limit) -> len.
	ImportTryPodGroup = "try_pod_group"
	// ImportPlacement is k8s.io/scheduler.placement (buf, limit) -> len.
	ImportPlacement = "placement"
	// ImportResultNodeNames is k8s.io/scheduler.result_node_names (ptr, len).
	ImportResultNodeNames = "result_node_names"
	// ImportResultScores is k8s.io/scheduler.result_scores (ptr, len).
	ImportResultScores = "result_scores"
	// ImportResultClusterEvents is k8s.io/scheduler.result_cluster_events (ptr, len).
	ImportResultClusterEvents = "result_cluster_events"
	// ImportResultNominatedNodeName is k8s.io/scheduler.result_nominated_node_name (ptr, len).
	ImportResultNominatedNodeName = "result_nominated_node_name"
	// ImportResultSignFragments is k8s.io/scheduler.result_sign_fragments (ptr, len).
	ImportResultSignFragments = "result_sign_fragments"
	// ImportResultNominations is k8s.io/scheduler.result_nominations (ptr, len).
	ImportResultNominations = "result_nominations"
	// ImportResultPlacements is k8s.io/scheduler.result_placements (ptr, len).
	ImportResultPlacements = "result_placements"

	// ImportEvent is k8s.io/scheduler.event (ptr, len).
	ImportEvent = "event"
	// ImportWaitingPods is k8s.io/scheduler.waiting_pods (buf, limit) -> len.
	ImportWaitingPods = "waiting_pods"
	// ImportWaitingPod is k8s.io/scheduler.waiting_pod (ptr, len, buf, limit) -> len.
	ImportWaitingPod = "waiting_pod"
	// ImportAllowWaitingPod is k8s.io/scheduler.allow_waiting_pod (ptr, len) -> i32.
	ImportAllowWaitingPod = "allow_waiting_pod"
	// ImportRejectWaitingPod is k8s.io/scheduler.reject_waiting_pod (ptr, len) -> i32.
	ImportRejectWaitingPod = "reject_waiting_pod"

	// ImportRequest is k8s.io/admission.request and k8s.io/hooks.request
	// (buf, limit) -> len.
	ImportRequest = "request"
	// ImportAdmissionObject is k8s.io/admission.object (buf, limit) -> len.
	ImportAdmissionObject = "object"
	// ImportOldObject is k8s.io/admission.old_object (buf, limit) -> len.
	ImportOldObject = "old_object"
	// ImportOptions is k8s.io/admission.options (buf, limit) -> len.
	ImportOptions = "options"
	// ImportResult is k8s.io/admission.result (ptr, len).
	ImportResult = "result"
	// ImportObjectProto is k8s.io/admission.object_proto (buf, limit) -> len.
	ImportObjectProto = "object_proto"
	// ImportOldObjectProto is k8s.io/admission.old_object_proto (buf, limit) ->
	// len.
	ImportOldObjectProto = "old_object_proto"
	// ImportPatch is k8s.io/admission.patch (ptr, len).
	ImportPatch = "patch"
	// ImportMutatedObject is k8s.io/admission.mutated_object (ptr, len).
	ImportMutatedObject = "mutated_object"

	// ImportDecision is k8s.io/hooks.decision (ptr, len).
	ImportDecision = "decision"
)
