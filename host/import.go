package host

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// Import is a function that a guest may import.
type Import struct {
	// Module and Name are those of the guest's import.
	Module, Name    string
	Params, Results []abi.ValueType
	// Memory has bit n set if parameter n is an address, a length or a limit in the guest's memory,
	// which is no part of the guest's question.
	Memory uint16
	// Grant is the grant without which a plugin must not import the function;
	// empty if every plugin may.
	Grant string
	// Func runs the function. stack has the parameters, 32-bit numbers in the
	// low half; the result goes to stack[0].
	//
	// Func may use inst.Write, inst.Read and inst.Abort. It runs on the
	// goroutine that called the guest.
	Func func(inst *Instance, stack []uint64)
}

// ToGuest returns the import of a function by the buffer-limit rule, (buf, limit i32) -> len i32,
// which hands the guest a copy of the result of get. get must return the same bytes for as long as
// one call of the guest lasts.
func ToGuest(module, name string, get func(inst *Instance) []byte) Import {
	return Import{
		Module: module, Name: name,
		Params: []abi.ValueType{abi.I32, abi.I32}, Results: []abi.ValueType{abi.I32}, Memory: 0b11,
		Func: func(inst *Instance, stack []uint64) {
			stack[0] = uint64(inst.Write(uint32(stack[0]), uint32(stack[1]), get(inst)))
		},
	}
}

// FromGuest returns the import of a function (ptr, len i32) by which a guest hands bytes to the
// host. They are lent as those of [Instance.Read] are: put must copy bytes that it keeps. It is
// called with at most Limits.ResultBytes.
func FromGuest(module, name string, put func(inst *Instance, data []byte)) Import {
	return Import{
		Module: module, Name: name,
		Params: []abi.ValueType{abi.I32, abi.I32}, Memory: 0b11,
		Func: func(inst *Instance, stack []uint64) {
			put(inst, inst.Read(uint32(stack[0]), uint32(stack[1])))
		},
	}
}

func (im *Import) String() string { return im.Module + "." + im.Name }

// commonImports are the functions that every guest may import.
var commonImports = []Import{
	ToGuest(abi.KindCommon.Module(), "config", func(inst *Instance) []byte {
		return inst.plugin.cfg.GuestConfig
	}),
	FromGuest(abi.KindCommon.Module(), "status_reason", func(inst *Instance, reason []byte) {
		if inst.lastReason != string(reason) {
			inst.lastReason = cut.Text(reason, inst.version.limits.OutputBytes)
		}
		inst.reason = inst.lastReason
	}),
	{
		Module: abi.KindCommon.Module(), Name: "log",
		Params: []abi.ValueType{abi.I32, abi.I32, abi.I32}, Memory: 0b110,
		Func: func(inst *Instance, stack []uint64) {
			msg := inst.Read(uint32(stack[1]), uint32(stack[2]))
			inst.log(slog.Level(int32(uint32(stack[0]))), cut.Text(msg, inst.version.limits.OutputBytes))
		},
	},
	// The views of an SDK import it in every kind of plugin. A caller that has
	// objects offers its own.
	noObjects("object", abi.I64, abi.I32, abi.I32),
	noObjects("object_part", abi.I64, abi.I32, abi.I64, abi.I32, abi.I32),
	noObjects("object_entry", abi.I64, abi.I32, abi.I32, abi.I32, abi.I32, abi.I32),
}

func noObjects(name string, params ...abi.ValueType) Import {
	return Import{
		Module: abi.ModuleObjects, Name: name, Params: params, Results: []abi.ValueType{abi.I32},
		Func: func(inst *Instance, stack []uint64) {
			inst.Abort(fmt.Errorf("ref %#x names no object: this host has no objects", stack[0]))
		},
	}
}

// importTable is the set of functions that one plugin may import.
type importTable map[[2]string]*Import

// newImportTable merges sets; of two functions with one name the later is used.
func newImportTable(sets ...[]Import) importTable {
	t := importTable{}
	for _, set := range sets {
		for i := range set {
			t[[2]string{set[i].Module, set[i].Name}] = &set[i]
		}
	}
	return t
}

// maxImportErrors is the maximum number of bad imports in a message.
const maxImportErrors = 50

// check returns an error for each import of the module that the table lacks, has with another
// signature, or has with a grant that is not in grants.
func (t importTable) check(plugin string, c *compiled, grants []string) []error {
	var errs []error
	modules, foreign := map[string]bool{}, map[string]bool{} // Those of the table, and those of other kinds.
	for name := range t {
		modules[name[0]] = true
	}
	for _, fn := range c.imports {
		if len(errs) == maxImportErrors {
			return append(errs, fmt.Errorf("plugin %q: more mistakes of imports", plugin))
		}
		module, name, got := fn.Module, fn.Name, signature(fn, true)
		im, ok := t[[2]string{module, name}]
		if !ok {
			if rewriters(module) {
				continue // Checked by the rewriter.
			}
			if kind := kindOf(module); kind != abi.KindCommon && !modules[module] {
				if !foreign[module] {
					foreign[module] = true
					errs = append(errs, &ImportError{Plugin: plugin, Module: module, Name: name, Got: got, kind: kind})
				}
				continue
			}
			errs = append(errs, &ImportError{Plugin: plugin, Module: module, Name: name, Got: got})
			continue
		}
		if want := (abi.Signature{Params: im.Params, Results: im.Results}).Type(); got != want {
			errs = append(errs, &ImportError{Plugin: plugin, Module: module, Name: name, Got: got, Want: want})
		} else if im.Grant != "" && !slices.Contains(grants, im.Grant) {
			errs = append(errs, &ImportError{Plugin: plugin, Module: module, Name: name, Got: got, Want: want, Grant: im.Grant})
		}
	}
	for _, mem := range c.memories {
		errs = append(errs, &ImportError{Plugin: plugin, Module: mem.Module, Name: mem.Name, Got: "memory"})
	}
	return errs
}

// kindOf returns the kind of plugins whose functions a module of imports has, KindCommon for others.
func kindOf(module string) abi.Kind {
	for _, kind := range []abi.Kind{abi.KindScheduler, abi.KindAdmission, abi.KindHook} {
		if kind.Module() == module {
			return kind
		}
	}
	return abi.KindCommon
}

// of returns the functions that a module imports, in the order of compiled.hosted.
func (t importTable) of(c *compiled) []*Import {
	list := make([]*Import, len(c.hosted))
	for n, fn := range c.hosted {
		list[n] = t[[2]string{fn.Module, fn.Name}]
	}
	return list
}

// hostFunction returns the function that wazero calls for an import. It calls the function of the
// plugin to which the instance belongs. The instance travels as the context itself: a context.Value
// would cost a walk for each host call.
func hostFunction(index int) api.GoModuleFunc {
	return func(ctx context.Context, module api.Module, stack []uint64) {
		inst := ctx.(*callContext).inst
		if inst.module == nil {
			inst.meet(module)
		}
		im := inst.version.imports[index]
		inst.hostCall = im
		if inst.tape != nil {
			inst.tape.Host(index, stack[:len(im.Params)], im.Params)
		}
		inst.pay(hostCallFuel)
		im.Func(inst, stack)
		if inst.tape != nil {
			inst.tape.Result(recording.HostReturned, stack, im.Results)
		}
	}
}

// profiledFunction is hostFunction for a guest with a profiler; function is the index of the
// import.
func profiledFunction(index int, function uint32) api.GoModuleFunc {
	run := hostFunction(index)
	return func(ctx context.Context, module api.Module, stack []uint64) {
		inst := ctx.(*callContext).inst
		inst.meet(module)
		inst.tree.hosted(inst, function, func() { run(ctx, module, stack) })
	}
}
