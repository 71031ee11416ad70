package wasmbin

import _ "embed" // For Profiler.

// Profiler is a module that keeps the call tree of a profile, see profiler.wat. The imports
// of a guest from [ProfilerModule] are functions of an instance of it, which belongs to that
// guest alone. It is not rewritten, and costs no fuel.
//
// The host moves its global "last" whenever it changes the guest's fuel, calls "spend" and
// sets "cur" to 0 when a call has ended, and reads the nodes from its memory.
//
//go:embed profiler.wasm
var Profiler []byte

// Coroutines describes the functions of a compiler that leaves functions in the middle, with a
// stack in memory that holds the places where they resume. A profile puts such a function into the
// call path of its call, not into that of its resumption.
type Coroutines struct {
	// Globals are the types of the first globals of a module of the compiler, in which all globals
	// are its own. Functions of other modules are not examined.
	Globals []GlobalType
	// Form returns the form of a function.
	Form func(t FuncType, c *Code) Form
	// Place appends code to a function () -> (i32, i32). It leaves the stack in use and its depth:
	// the number of bytes above the return address of the function that begins, or has been
	// resumed, if that has called nothing. It must not trap.
	Place func(code []byte) []byte
}

// Form is the role of a function in coroutines.
type Form byte

const (
	// Plain is a function that takes no part.
	Plain Form = iota
	// Resumed is a function (i32, ...) that resumes at the place given by its first parameter, and
	// begins if that is 0.
	Resumed
	// Resumes is a function that calls resumed functions.
	Resumes
)

// profileImports are the guest's imports from [ProfilerModule]. Indexes are the new ones.
type profileImports struct {
	imports                                                []Import
	enter, leave, grew, current, enterLoop, enterGo, place uint32
	// forms are those of the functions that the guest defines, nil if all are plain.
	forms []Form
}

const profileImportCount = 6

// planProfile adds the imports of a profile, and finds coroutines in the original code.
func (rw *rewriter) planProfile() error {
	if !rw.opts.Profile || !rw.opts.Meter {
		return nil
	}
	p := &profileImports{}
	for _, f := range []struct {
		name            string
		index           *uint32
		params, results []ValType
	}{
		{"enter", &p.enter, []ValType{I32, I64}, []ValType{I32}},
		{"leave", &p.leave, []ValType{I32, I64}, nil},
		{"grew", &p.grew, []ValType{I32, I32}, []ValType{I32}},
		{"current", &p.current, nil, []ValType{I32}},
		{"enter_loop", &p.enterLoop, []ValType{I32, I64}, []ValType{I32}},
		{"enter_go", &p.enterGo, []ValType{I32, I64, I32, I32, I32}, []ValType{I32}},
	} {
		*f.index = rw.yield + 1 + uint32(len(p.imports))
		typ := rw.addType(FuncType{Params: f.params, Results: f.results})
		p.imports = append(p.imports, Import{Module: ProfilerModule, Name: f.name, Kind: ExternFunc, Type: uint32(typ)})
	}
	rw.profile = p
	if c := rw.opts.Coroutines; c != nil && rw.info.Memory != nil && rw.has(c.Globals) {
		p.forms = make([]Form, len(rw.Codes))
		for i := range rw.Codes {
			if typ := rw.Functions[i]; uint64(typ) < uint64(len(rw.types)) {
				p.forms[i] = c.Form(rw.types[typ], &rw.Codes[i])
			}
		}
		p.place = rw.firstAdded()
	}
	return nil
}

// has reports whether the first globals have these types.
func (rw *rewriter) has(types []GlobalType) bool {
	globals := rw.spaces[ExternGlobal]
	if len(globals) < len(types) {
		return false
	}
	for i, t := range types {
		if globals[i].Global != t {
			return false
		}
	}
	return true
}

// firstAdded is the index of the first function after the guest's own.
func (rw *rewriter) firstAdded() uint32 { return uint32(len(rw.functions)) + rw.shift() }

// coroutineFunctions is the number of functions that are added for coroutines.
func (rw *rewriter) coroutineFunctions() uint32 {
	if rw.profile != nil && rw.profile.forms != nil {
		return 1
	}
	return 0
}

// addProfile adds the function with which resumed functions begin: (function, place) -> node.
func (rw *rewriter) addProfile() {
	if rw.coroutineFunctions() == 0 {
		return
	}
	code := appendUvarint([]byte{OpLocalGet, 0, OpGlobalGet}, uint64(rw.globals()))
	code = rw.opts.Coroutines.Place(append(code, OpLocalGet, 1))
	code = appendUvarint(append(code, OpCall), uint64(rw.profile.enterGo))
	rw.Functions = append(rw.Functions, uint32(rw.addType(FuncType{Params: []ValType{I32, I32}, Results: []ValType{I32}})))
	rw.Codes = append(rw.Codes, Code{Body: append(code, OpEnd)})
}

// tail records that the function is left by a tail call, for a profile.
func (b *bodyRewriter) tail() {
	if s := &b.scanner; b.profile != nil {
		b.edits = append(b.edits, edit{at: s.at, end: s.at, kind: editTail})
	}
}

// profiled writes the body of a function that tells the profiler when it begins and ends. Its own
// body becomes a block, with the same label as the function before, so that there is one end.
func (b *bodyRewriter) profiled(function int, c *Code, typ uint32, extra func(uint64, ValType) uint64, length uint64, size int) error {
	p, entry := b.profile, uint64(0)
	b.prev = extra(1, I32)
	if b.catches {
		b.self = extra(1, I32)
	}
	out := make([]byte, 0, size+96)
	if b.plan != nil && b.catches {
		entry = extra(1, I32)
		out = append(appendUvarint(append(out, OpGlobalGet), uint64(b.stack)), OpLocalSet)
		out = appendUvarint(out, entry)
	}
	out = appendVarint(append(out, OpI32Const), int64(int32(b.yield)+int32(function)))
	form := Plain
	if p.forms != nil {
		form = p.forms[function]
	}
	if form == Resumed {
		out = append(out, OpLocalGet, 0)
	} else {
		out = appendUvarint(append(out, OpGlobalGet), uint64(b.fuel))
	}
	out = appendUvarint(append(out, OpCall), uint64([]uint32{Plain: p.enter, Resumed: p.place, Resumes: p.enterLoop}[form]))
	out = appendUvarint(append(out, OpLocalSet), b.prev)
	if b.catches {
		out = appendUvarint(append(out, OpCall), uint64(p.current))
		out = appendUvarint(append(out, OpLocalSet), b.self)
	}
	out = append(append(out, OpBlock), b.blockType(b.types[typ].Results)...)
	out = b.emit(out, c.Body, length, entry)
	if b.plan != nil && b.catches {
		out = appendUvarint(append(out, OpLocalGet), entry)
		out = appendUvarint(append(out, OpGlobalSet), uint64(b.stack))
	}
	c.Body = append(b.appendLeave(out, b.prev), OpEnd)
	return nil
}

// appendLeave tells the profiler to continue with the node in a local.
func (b *bodyRewriter) appendLeave(out []byte, to uint64) []byte {
	out = appendUvarint(append(out, OpLocalGet), to)
	out = appendUvarint(append(out, OpGlobalGet), uint64(b.fuel))
	return appendUvarint(append(out, OpCall), uint64(b.profile.leave))
}
