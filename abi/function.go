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
// change; the gaps belong to extension points that have no export yet.
const (
	PreFilter      Function = 4
	Filter         Function = 7
	Score          Function = 10
	NormalizeScore Function = 11

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
	PreFilter:      {"prefilter", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	Filter:         {"filter", KindScheduler, []ValueType{I64, I64, I64}, []ValueType{I32}},
	Score:          {"score", KindScheduler, []ValueType{I64, I64, I64}, []ValueType{I64}},
	NormalizeScore: {"normalizescore", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}},
	Validate:       {"validate", KindAdmission, nil, []ValueType{I64}},
	Mutate:         {"mutate", KindAdmission, nil, []ValueType{I64}},
	Hook:           {"hook", KindHook, nil, []ValueType{I32}},
	Configure:      {"configure", KindCommon, nil, []ValueType{I32}},
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

	// ImportNodeScores is k8s.io/scheduler.node_scores (buf, limit) -> len.
	ImportNodeScores = "node_scores"
	// ImportNodeNames is k8s.io/scheduler.node_names (buf, limit) -> len.
	ImportNodeNames = "node_names"
	// ImportResultNodeNames is k8s.io/scheduler.result_node_names (ptr, len).
	ImportResultNodeNames = "result_node_names"
	// ImportResultScores is k8s.io/scheduler.result_scores (ptr, len).
	ImportResultScores = "result_scores"

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
