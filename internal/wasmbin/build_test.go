package wasmbin

import (
	"slices"
	"testing"
)

// asm concatenates instructions: ints are opcodes or single bytes of
// immediates, byte slices are taken as they are.
func asm(parts ...any) []byte {
	var out []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			out = append(out, byte(p))
		case []byte:
			out = append(out, p...)
		}
	}
	return out
}

// i32c and i64c are constants, u an unsigned immediate.
func i32c(v int32) []byte { return appendVarint([]byte{OpI32Const}, int64(v)) }
func i64c(v int64) []byte { return appendVarint([]byte{OpI64Const}, v) }
func u(v uint32) []byte   { return appendUvarint(nil, uint64(v)) }

// added is an address with an offset, as Go's compiler adds it up.
func added(address []byte, offset int) []byte {
	return asm(address, OpI64ExtendI32U, i64c(int64(offset)), OpI64Add, OpI32WrapI64)
}

// memarg is a load or store with an offset.
func memarg(op byte, offset uint32) []byte { return asm(int(op), 0, u(offset)) }

func get(i int) []byte { return []byte{OpLocalGet, byte(i)} }
func set(i int) []byte { return []byte{OpLocalSet, byte(i)} }

// module assembles modules for tests.
type module struct{ Module }

// types is the list of types of one value type.
func types(t ...ValType) []ValType { return t }

// typ adds a type.
func (m *module) typ(params, results []ValType) uint32 {
	for i, g := range m.Types {
		if !g.Explicit && slices.Equal(g.Types[0].Params, params) && slices.Equal(g.Types[0].Results, results) {
			return uint32(i)
		}
	}
	m.Types = append(m.Types, RecGroup{Types: []FuncType{{params, results}}})
	return uint32(len(m.Types) - 1)
}

// fn adds a function, exported if it has a name, and returns its index. Locals
// are of one type each.
func (m *module) fn(name string, params, results, locals []ValType, body ...any) uint32 {
	var enc []byte
	for _, l := range locals {
		enc = appendValType(append(enc, 1), &l)
	}
	m.Functions = append(m.Functions, m.typ(params, results))
	m.Codes = append(m.Codes, Code{
		LocalGroups: uint32(len(locals)), Locals: enc, NumLocals: uint64(len(locals)), Body: append(asm(body...), OpEnd),
	})
	index := m.imported(ExternFunc) + uint32(len(m.Functions)) - 1
	if name != "" {
		m.Exports = append(m.Exports, Export{name, ExternFunc, index})
	}
	return index
}

// rewriteFor rewrites a module that must be accepted.
func rewriteFor(t testing.TB, bin []byte, opts Options) ([]byte, *Info) {
	t.Helper()
	out, info, err := Rewrite(bin, opts)
	if err != nil {
		t.Fatalf("Rewrite: %v", err)
	}
	return out, info
}
