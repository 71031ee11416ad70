package wasmbin

// FunctionNames returns the names of functions by their indexes, as far as the name section has
// them and is well-formed.
func (m *Module) FunctionNames() map[uint32]string {
	names := map[uint32]string{}
	for i := range m.Customs {
		if m.Customs[i].Name != nameSection {
			continue
		}
		r := &reader{buf: m.Customs[i].Data}
		for r.left() > 0 && r.err == nil {
			id := r.byte("a subsection")
			s := r.sized("a subsection")
			if id != namesFunctions || r.err != nil {
				continue
			}
			for n := s.count("functions", 2, maxNames); n > 0; n-- {
				index, name := s.u32("a function index"), s.name("the name of a function")
				if s.err != nil {
					break
				}
				names[index] = name
			}
		}
	}
	return names
}

// Image returns the initial memory of an instance, as far as its data segments fill it and up to a
// number of bytes. It leaves out segments whose offset is no constant.
func (m *Module) Image(most int) []byte {
	var image []byte
	for i := range m.Datas {
		d := &m.Datas[i]
		if d.Flags == 1 || len(d.Offset) < 3 || d.Offset[0] != OpI32Const {
			continue
		}
		offset, n := varint(d.Offset[1:], 5)
		if n == 0 || len(d.Offset) != 1+n+1 {
			continue
		}
		start := int64(uint32(offset))
		end := start + int64(len(d.Init))
		if end > int64(most) {
			continue
		}
		if grow := end - int64(len(image)); grow > 0 {
			image = append(image, make([]byte, grow)...)
		}
		copy(image[start:], d.Init)
	}
	return image
}

// CodeStart returns the beginning of the content of the code section in a well-formed binary, 0 if
// there is none. Debuggers count the addresses of code from there.
func CodeStart(bin []byte) int {
	for r := (reader{buf: bin, pos: len(preamble)}); r.left() > 0 && r.err == nil; {
		id := SectionID(r.byte("a section id"))
		s := r.sized("the section")
		if id == SectionCode {
			return r.pos - len(s.buf)
		}
	}
	return 0
}
