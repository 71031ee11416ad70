// Package symbols reads the names and places of the functions of a module, for profiles.
package symbols

import (
	"bytes"
	"debug/dwarf"
	"debug/gosym"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/demangle"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// Table has the functions of a module, by their indexes, imports included.
type Table struct{ functions []*profile.Function }

// unnamed begins the name of a function without one; its index follows.
const unnamed = "function "

// Read reads the names of a module's functions and the places where they begin. Malformed
// data counts as missing: a guest chooses it.
func Read(module []byte) *Table {
	m, err := wasmbin.Decode(module)
	if err != nil {
		return &Table{}
	}
	s := &Table{}
	for i := range m.Imports {
		if im := &m.Imports[i]; im.Kind == wasmbin.ExternFunc {
			s.functions = append(s.functions, &profile.Function{Name: readable(im.Module + "." + im.Name)})
		}
	}
	imports := len(s.functions)
	for i := range m.Codes {
		s.functions = append(s.functions, &profile.Function{Name: fmt.Sprint(unnamed, imports+i)})
	}
	own := s.functions[imports:]
	for index, name := range m.FunctionNames() {
		if i := int64(index) - int64(imports); i >= 0 && i < int64(len(own)) && name != "" {
			own[i].Name = readable(demangle.Rust(name))
		}
	}
	for _, x := range m.Exports {
		// An exported function without a name is called by that of the export.
		if i := int64(x.Index) - int64(imports); x.Kind == wasmbin.ExternFunc && i >= 0 && i < int64(len(own)) && strings.HasPrefix(own[i].Name, unnamed) {
			own[i].Name = readable(x.Name)
		}
	}
	contain(func() {
		if !fromGo(m, own) {
			fromDWARF(m, module, own)
		}
	})
	return s
}

// Function returns the function with an index.
func (s *Table) Function(index uint32) *profile.Function {
	if int64(index) < int64(len(s.functions)) {
		return s.functions[index]
	}
	return &profile.Function{Name: fmt.Sprint(unnamed, index)}
}

// maxNameBytes is the maximum number of bytes kept of a name.
const maxNameBytes = 1 << 10

func readable(name string) string { return cut.Text(name, maxNameBytes) }

// contain runs f, which uses packages of the standard library on data chosen by a guest.
func contain(f func()) {
	defer func() { _ = recover() }()
	f()
}

// The program counter of Go's function n is (firstPC + n) << 16, by cmd/link/internal/wasm.
// From Go 1.26 on, the table has it without the 16 bits, which are those of a block.
const firstPC = 0x1000

// maxImageBytes is the size of the largest initial memory in which the table of a Go runtime is
// searched for.
const maxImageBytes = 64 << 20

// fromGo reads names and lines from the table of Go's runtime in the guest's memory, and reports
// whether there is one.
func fromGo(m *wasmbin.Module, own []*profile.Function) bool {
	image := m.Image(maxImageBytes)
	for at := 0; ; at++ {
		// The header: the magic number of Go 1.20, two zeros, quantum 1, pointers of 8 bytes.
		n := bytes.Index(image[at:], []byte("\xf1\xff\xff\xff\x00\x00\x01\x08"))
		if n < 0 {
			return false
		}
		at += n
		if named(image[at:], own) {
			return true
		}
	}
}

// named names functions by a table, and reports whether it is one of them.
func named(table []byte, own []*profile.Function) (ok bool) {
	contain(func() {
		// Package gosym allocates for as many functions as the header claims.
		if functions := binary.LittleEndian.Uint64(table[8:]); functions > uint64(len(own)) {
			return
		}
		symbols, err := gosym.NewTable(nil, gosym.NewLineTable(table, binary.LittleEndian.Uint64(table[24:])))
		if err != nil || len(symbols.Funcs) == 0 {
			return
		}
		found := map[int]*profile.Function{}
		for i := range symbols.Funcs {
			f := &symbols.Funcs[i]
			index := int64(f.Entry) - firstPC
			if f.Entry >= firstPC<<16 {
				index = int64(f.Entry>>16) - firstPC
			}
			if index < 0 || index >= int64(len(own)) || f.Sym == nil {
				continue
			}
			file, line, _ := symbols.PCToLine(f.Entry)
			found[int(index)] = &profile.Function{Name: readable(f.Name), File: readable(file), Line: line}
		}
		for index, f := range found {
			*own[index] = *f
		}
		ok = len(found) != 0
	})
	return ok
}

// fromDWARF takes lines, and names if there are no others, from the sections for debuggers.
func fromDWARF(m *wasmbin.Module, module []byte, own []*profile.Function) {
	sections := map[string][]byte{}
	for i := range m.Customs {
		sections[m.Customs[i].Name] = m.Customs[i].Data
	}
	data, err := dwarf.New(sections[".debug_abbrev"], nil, nil, sections[".debug_info"], sections[".debug_line"], nil, sections[".debug_ranges"], sections[".debug_str"])
	if err != nil || sections[".debug_info"] == nil {
		return
	}
	for _, name := range []string{".debug_addr", ".debug_line_str", ".debug_str_offsets", ".debug_rnglists"} {
		if section := sections[name]; section != nil {
			_ = data.AddSection(name, section)
		}
	}
	// Addresses count from the beginning of the code section.
	start := wasmbin.CodeStart(module)
	starts := make([]uint64, len(m.Codes))
	for i := range m.Codes {
		starts[i] = uint64(m.Codes[i].Offset - start)
	}
	r := data.Reader()
	var files []*dwarf.LineFile
	for {
		e, err := r.Next()
		if e == nil || err != nil {
			return
		}
		switch e.Tag {
		case dwarf.TagCompileUnit:
			files = nil
			if lines, err := data.LineReader(e); err == nil && lines != nil {
				files = lines.Files()
			}
		case dwarf.TagSubprogram:
			ranges, err := data.Ranges(e)
			if err != nil || len(ranges) != 1 {
				continue
			}
			index, ok := within(starts, ranges[0])
			if !ok {
				continue
			}
			d := described(data, e)
			if d.name != "" && strings.HasPrefix(own[index].Name, unnamed) {
				own[index].Name = readable(demangle.Rust(d.name))
			}
			if own[index].Line = d.line; d.file > 0 && d.file < len(files) && files[d.file] != nil {
				own[index].File = readable(files[d.file].Name)
			}
		}
	}
}

// within returns the function whose body begins in a range.
func within(starts []uint64, r [2]uint64) (index int, ok bool) {
	lo, hi := 0, len(starts)
	for lo < hi {
		if mid := (lo + hi) / 2; starts[mid] < r[0] {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(starts) && starts[lo] < r[1]
}

// description is the data about a function in an entry and those that it refers to.
type description struct {
	name string
	file int
	line int
}

// described follows the references of an entry: to the declaration of a method, or to a function
// inlined elsewhere.
func described(data *dwarf.Data, e *dwarf.Entry) (d description) {
	for range 4 {
		if name, ok := e.Val(dwarf.AttrLinkageName).(string); ok && d.name == "" {
			d.name = name
		}
		if name, ok := e.Val(dwarf.AttrName).(string); ok && d.name == "" {
			d.name = name
		}
		if file, ok := e.Val(dwarf.AttrDeclFile).(int64); ok && d.file == 0 {
			d.file = int(file)
		}
		if line, ok := e.Val(dwarf.AttrDeclLine).(int64); ok && d.line == 0 {
			d.line = int(line)
		}
		next, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			if next, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset); !ok {
				return d
			}
		}
		r := data.Reader()
		r.Seek(next)
		var err error
		if e, err = r.Next(); err != nil || e == nil {
			return d
		}
	}
	return d
}
