package abi

import (
	"strconv"
	"strings"
)

// Marker is the export that makes a module a guest of this ABI. Its signature
// is () -> i64 and its result the [Mask] of the functions that the plugin
// implements.
//
// The exports alone do not show which: a Go SDK exports a function for each
// extension point, since the linker keeps every go:wasmexport.
const Marker = "kubewasm_abi_v1"

// MetadataSection is the name of the custom section with a module's description
// of itself, which a host may read before the module runs.
const MetadataSection = "kubewasm"

// SchemaSection is the name of the custom section with the services of a module: a
// google.protobuf.FileDescriptorSet.
const SchemaSection = "kubewasm_schema"

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
	KindService
)

// Module returns the name of the module from which guests of the kind import functions.
// SPEC.md, section 6, names each of them with its module.
func (k Kind) Module() string {
	switch k {
	case KindCommon:
		return "kubewasm"
	case KindScheduler:
		return "k8s.io/scheduler"
	case KindAdmission:
		return "k8s.io/admission"
	case KindHook:
		return "k8s.io/hooks"
	case KindService:
		return "kubewasm/service"
	}
	return ""
}

// ModuleObjects is the module of the functions about objects, for guests of each kind.
const ModuleObjects = "k8s.io/api"

// String returns the name of the kind as messages write it.
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
	case KindService:
		return "service"
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
	PreQueueingHint         Function = 25
	PotentialVictims        Function = 26

	Validate Function = 32
	Mutate   Function = 33
	Convert  Function = 34

	Hook Function = 48

	Configure Function = 56

	Services Function = 60
)

// Signature is the name and the type that an export must have.
type Signature struct {
	// Name is the name of the export.
	Name string
	// Kind is the kind of extension that the function belongs to.
	Kind            Kind
	Params, Results []ValueType
	// Optional is the number of Params that an export may leave out, at the end.
	Optional int
}

// functions is indexed by Function. An entry without a name is reserved.
var functions = [64]Signature{
	PreEnqueue:              {"preenqueue", KindScheduler, []ValueType{I64}, []ValueType{I32}, 0},
	QueueSort:               {"queuesort", KindScheduler, []ValueType{I64, I64, I64, I64, I64, I64, I64, I64}, []ValueType{I32}, 4},
	EventsToRegister:        {"eventstoregister", KindScheduler, nil, []ValueType{I32}, 0},
	QueueingHint:            {"queueinghint", KindScheduler, []ValueType{I32, I64, I64, I64}, []ValueType{I64}, 0},
	PreFilter:               {"prefilter", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}, 0},
	AddPod:                  {"addpod", KindScheduler, []ValueType{I64, I64, I64, I64}, []ValueType{I32}, 0},
	RemovePod:               {"removepod", KindScheduler, []ValueType{I64, I64, I64, I64}, []ValueType{I32}, 0},
	Filter:                  {"filter", KindScheduler, []ValueType{I64, I64, I64, I64}, []ValueType{I32}, 1},
	PostFilter:              {"postfilter", KindScheduler, []ValueType{I64, I64}, []ValueType{I64}, 0},
	PreScore:                {"prescore", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}, 0},
	Score:                   {"score", KindScheduler, []ValueType{I64, I64, I64, I64}, []ValueType{I64}, 1},
	NormalizeScore:          {"normalizescore", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}, 0},
	Reserve:                 {"reserve", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}, 0},
	Unreserve:               {"unreserve", KindScheduler, []ValueType{I64, I64}, nil, 0},
	Permit:                  {"permit", KindScheduler, []ValueType{I64, I64}, []ValueType{I64}, 0},
	PreBindPreFlight:        {"prebindpreflight", KindScheduler, []ValueType{I64, I64}, []ValueType{I64}, 0},
	PreBind:                 {"prebind", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}, 0},
	Bind:                    {"bind", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}, 0},
	PostBind:                {"postbind", KindScheduler, []ValueType{I64, I64}, nil, 0},
	SignPod:                 {"signpod", KindScheduler, []ValueType{I64}, []ValueType{I32}, 0},
	PodGroupPostFilter:      {"podgrouppostfilter", KindScheduler, []ValueType{I64}, []ValueType{I32}, 0},
	GeneratePlacements:      {"generateplacements", KindScheduler, []ValueType{I64}, []ValueType{I32}, 0},
	ScorePlacement:          {"scoreplacement", KindScheduler, []ValueType{I64}, []ValueType{I64}, 0},
	NormalizePlacementScore: {"normalizeplacementscore", KindScheduler, []ValueType{I64}, []ValueType{I32}, 0},
	CloneCycle:              {"clonecycle", KindScheduler, []ValueType{I64, I64}, []ValueType{I32}, 0},
	PreQueueingHint:         {"prequeueinghint", KindScheduler, []ValueType{I32, I64, I64}, []ValueType{I32}, 0},
	PotentialVictims:        {"potentialvictims", KindScheduler, []ValueType{I64, I64, I64}, []ValueType{I32}, 0},
	Validate:                {"validate", KindAdmission, nil, []ValueType{I64}, 0},
	Mutate:                  {"mutate", KindAdmission, nil, []ValueType{I64}, 0},
	Convert:                 {"convert", KindAdmission, nil, []ValueType{I64}, 0},
	Hook:                    {"hook", KindHook, nil, []ValueType{I32}, 0},
	Configure:               {"configure", KindCommon, nil, []ValueType{I32}, 0},
	Services:                {"services", KindService, nil, nil, 0},
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

// Type returns the function type the way messages show it: "(i32, i64) -> i32", with
// "()" for no results and brackets around optional parameters.
func (s Signature) Type() string {
	var b strings.Builder
	b.WriteByte('(')
	required := len(s.Params) - s.Optional
	writeTypes(&b, s.Params[:required])
	for _, t := range s.Params[required:] {
		b.WriteString("[, ")
		writeTypes(&b, []ValueType{t})
		b.WriteByte(']')
	}
	b.WriteString(") -> ")
	if len(s.Results) == 1 {
		writeTypes(&b, s.Results)
		return b.String()
	}
	b.WriteByte('(')
	writeTypes(&b, s.Results)
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
