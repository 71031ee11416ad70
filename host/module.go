package host

import (
	"bytes"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Module is the description of a module, read without compiling it.
type Module struct {
	digest  string
	imports map[[2]string]wasmbin.Extern
	exports map[string]wasmbin.Extern
	customs map[string][]byte
	// inspected is the result of Dialect.Inspect.
	inspected any
}

// maxCustomBytes is the maximum number of bytes kept of the custom sections of a module in total.
// They hold a few lines of JSON; the sections for debuggers, of some megabytes, are not kept.
const maxCustomBytes = 1 << 20

// Inspect reads the descriptive sections of a module. The bytes are not kept. The error is that of
// [Runtime.Load] for a module that is malformed in these sections; code and data are not examined.
func Inspect(module []byte) (*Module, error) { return inspect(module, digestOf(module)) }

func inspect(module []byte, digest string) (*Module, error) {
	imports, exports, customs, err := wasmbin.Describe(module)
	if err != nil {
		return nil, err
	}
	m := &Module{
		digest: digest, imports: map[[2]string]wasmbin.Extern{}, exports: map[string]wasmbin.Extern{}, customs: map[string][]byte{},
	}
	for _, i := range imports {
		m.imports[[2]string{i.Module, i.Name}] = i
	}
	for _, e := range exports {
		m.exports[e.Name] = e
	}
	room := maxCustomBytes
	for _, c := range customs {
		if _, ok := m.customs[c.Name]; ok || c.Debug() || len(c.Data) > room {
			continue
		}
		room -= len(c.Data)
		m.customs[c.Name] = bytes.Clone(c.Data)
	}
	return m, nil
}

// signature formats the type of a function, or the kind of anything else; it is
// empty unless ok. It is formatted on demand, since many exports may share a type
// of a thousand parameters.
func signature(e wasmbin.Extern, ok bool) string {
	if !ok {
		return ""
	}
	if e.Kind != wasmbin.ExternFunc {
		return e.Kind.String()
	}
	params, results := valueTypes(e)
	return abi.Signature{Params: params, Results: results}.Type()
}

// valueTypes returns the types of a function.
func valueTypes(e wasmbin.Extern) (params, results []abi.ValueType) {
	types := func(list []wasmbin.ValType) []abi.ValueType {
		codes := make([]abi.ValueType, len(list))
		for i, t := range list {
			codes[i] = abi.ValueType(t & 0xff)
		}
		return codes
	}
	return types(e.Func.Params), types(e.Func.Results)
}

// Digest returns the SHA-256 of the module, in hexadecimal.
func (m *Module) Digest() string { return m.digest }

// Import returns the signature with which the module imports a function, as [abi.Signature.Type]
// writes it, or "memory", "table", "global" or "tag" for other imports; empty if there is no such
// import.
func (m *Module) Import(module, name string) string {
	e, ok := m.imports[[2]string{module, name}]
	return signature(e, ok)
}

// Export returns the signature or the kind of an export, in the form of
// [Module.Import].
func (m *Module) Export(name string) string {
	e, ok := m.exports[name]
	return signature(e, ok)
}

// params returns the number of parameters of an exported function.
func (m *Module) params(name string) int { return len(m.exports[name].Func.Params) }

// Custom returns the first custom section of that name, which must not be changed; nil if there is
// none. Sections for debuggers are left out, and sections that exceed a megabyte together with
// earlier ones.
func (m *Module) Custom(name string) []byte { return m.customs[name] }

// Inspected returns the result of [Dialect.Inspect] for the module, nil if its dialect
// has no Inspect.
func (m *Module) Inspected() any { return m.inspected }
