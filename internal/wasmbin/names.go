package wasmbin

import "fmt"

// The name section is a custom section with subsections. Those that name
// functions, or what is inside of them, begin each entry with the index of a
// function.
const (
	nameSection = "name"

	namesModule    = 0
	namesFunctions = 1
	namesLocals    = 2
	namesLabels    = 3
)

// remapNames returns the name section with the indexes of functions passed
// through remap. Stack traces depend on it. It fails for what is malformed or has
// more than maxNames in a subsection: wazero allocates for each.
func remapNames(data []byte, remap func(uint32) uint32) ([]byte, error) {
	r := &reader{buf: data}
	out := make([]byte, 0, len(data)+len(data)/16)
	for r.left() > 0 {
		id := r.byte("a subsection")
		s := r.sized("a subsection")
		if r.err != nil {
			break
		}
		out = append(out, id)
		switch id {
		case namesFunctions, namesLocals, namesLabels:
			out = appendSized(out, func(b []byte) []byte { return appendRemapped(b, &s, id, remap) })
		case namesModule:
			out = appendName(out, string(s.buf))
			s.name("the name of the module")
		default:
			out = appendName(out, string(s.buf))
			s.pos = len(s.buf)
		}
		if s.left() > 0 {
			s.fail(s.pos, "%d bytes are left over", s.left())
		}
		if s.err != nil {
			r.err = s.err
		}
	}
	if r.err != nil {
		return nil, fmt.Errorf("remap the name section: %w", r.err)
	}
	return out, nil
}

// symbol steps over a name. Thirty of them stand in an error with a stack trace.
func (r *reader) symbol() {
	n := r.u32("the length of a name")
	if n > maxNameBytes {
		r.fail(r.pos, "%w: a name has %d bytes, possible are %d", ErrTooComplex, n, maxNameBytes)
	}
	r.bytes(n, "a name")
}

// appendRemapped copies a map of names of functions, or of names within
// functions.
func appendRemapped(b []byte, r *reader, id byte, remap func(uint32) uint32) []byte {
	n := r.count("functions", 2, maxNames)
	b = appendUvarint(b, uint64(n))
	for ; n > 0 && r.err == nil; n-- {
		b = appendUvarint(b, uint64(remap(r.u32("a function index"))))
		start := r.pos
		if id == namesFunctions {
			r.symbol()
		} else {
			k := r.count("names", 2, maxNames)
			r.total(&r.values, k, maxNames, "names of functions, locals and labels")
			for ; k > 0 && r.err == nil; k-- {
				r.u32("an index")
				r.symbol()
			}
		}
		b = append(b, r.buf[start:r.pos]...)
	}
	return b
}
