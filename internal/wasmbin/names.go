package wasmbin

import "fmt"

// The name section is a custom section with subsections. Of these, stack traces have the
// names of the module and of its functions. The others, of locals, labels, globals and so on,
// are most of the section, and wazero would keep those of locals in memory.
const (
	nameSection = "name"

	namesModule    = 0
	namesFunctions = 1
)

// remapNames returns the name section with the indexes of functions passed through remap, and
// without the subsections that are never read. It fails for a malformed section and for more than
// maxNames: wazero allocates for each.
func remapNames(data []byte, remap func(uint32) uint32) ([]byte, error) {
	r := &reader{buf: data}
	out := make([]byte, 0, len(data)+len(data)/16)
	for r.left() > 0 {
		id := r.byte("a subsection")
		s := r.sized("a subsection")
		if r.err != nil {
			break
		}
		switch id {
		case namesFunctions:
			out = appendSized(append(out, id), func(b []byte) []byte { return appendRemapped(b, &s, remap) })
		case namesModule:
			out = appendName(append(out, id), string(s.buf))
			s.name("the name of the module")
		default:
			continue
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

// appendRemapped copies a map of names of functions.
func appendRemapped(b []byte, r *reader, remap func(uint32) uint32) []byte {
	n := r.count("functions", 2, maxNames)
	b = appendUvarint(b, uint64(n))
	for ; n > 0 && r.err == nil; n-- {
		b = appendUvarint(b, uint64(remap(r.u32("a function index"))))
		start := r.pos
		r.name("the name of a function")
		b = append(b, r.buf[start:r.pos]...)
	}
	return b
}
