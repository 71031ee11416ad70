package host

import (
	"crypto/sha256"
	"fmt"
	"math"
	"os"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/snapmem"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// stubSection is the custom section that tells the stubs of two modules apart: it holds the SHA-256
// of the module.
const stubSection = "kubewasm.stub"

// stub is the form of a rewritten module that wazero gets if the machine code is in the cache: the
// module without its code, where each function traps, and without its data. wazero keeps both, and
// has a use for neither once there is a snapshot. To load a stub takes a third of the time and a
// fifth of the memory.
type stub struct {
	module []byte
	about  aboutStub
	data   []byte // The initial content of memories, from about.Offset on.
}

// aboutStub is the host's description of the module. It includes the place of its data in the
// memory, at a multiple of pageSize.
type aboutStub struct {
	Info   *wasmbin.Info
	Offset uint32
}

// newStub makes the stub of a rewritten module.
func newStub(module []byte, info *wasmbin.Info) (*stub, error) {
	m, err := wasmbin.Decode(module)
	if err != nil {
		return nil, err
	}
	for i := range m.Codes {
		m.Codes[i] = wasmbin.Code{Body: []byte{0x00, 0x0b}} // unreachable, end
	}
	s := &stub{about: aboutStub{Info: info}}
	// A start section would run before the host has written the data, and instructions that
	// name a segment need it; they are valid with a data count only.
	if m.Start == nil && m.DataCount == nil {
		if offset, data := layOut(m.Datas); data != nil {
			s.about.Offset, s.data, m.Datas = offset, data, nil
		}
	}
	h := sha256.New()
	writePieces(h, module)
	m.Customs = append(m.Customs, wasmbin.Custom{Name: stubSection, Data: h.Sum(nil), After: wasmbin.SectionElement})
	s.module = m.Encode()
	return s, nil
}

// layOut returns the content of a memory after the segments were written: whole pages of
// WebAssembly, from an offset on. It returns nil if that is not known, or if the segments lie far
// from one another.
func layOut(segments []wasmbin.Data) (offset uint32, data []byte) {
	start, end, sum := uint64(math.MaxUint64), uint64(0), uint64(0)
	for _, d := range segments {
		at, ok := constant(d.Offset)
		if !ok || d.Flags != 0 {
			return 0, nil
		}
		start, end, sum = min(start, uint64(at)), max(end, uint64(at)+uint64(len(d.Init))), sum+uint64(len(d.Init))
	}
	if sum == 0 || end-start > 2*sum+pageSize {
		return 0, nil
	}
	start, end = start/pageSize*pageSize, (end+pageSize-1)/pageSize*pageSize
	data = make([]byte, end-start)
	for _, d := range segments {
		at, _ := constant(d.Offset)
		copy(data[uint64(at)-start:], d.Init)
	}
	return uint32(start), data
}

// constant returns the value of the expression (i32.const n).
func constant(expr []byte) (uint32, bool) {
	if len(expr) < 3 || expr[0] != 0x41 || expr[len(expr)-1] != 0x0b {
		return 0, false
	}
	var value uint64
	digits := expr[1 : len(expr)-1]
	for i, digit := range digits {
		if i == 5 || digit&0x80 == 0 && i != len(digits)-1 {
			return 0, false
		}
		value |= uint64(digit&0x7f) << (7 * i)
		if digit&0x80 == 0 {
			if digit&0x40 != 0 && i < 4 {
				value |= ^uint64(0) << (7 * (i + 1))
			}
			return uint32(value), true
		}
	}
	return 0, false
}

// content is the initial content of a memory, in the file of a module. It is nil if wazero has the
// module's data.
type content struct {
	file   *os.File
	at     int64
	offset uint32
	size   uint32
	// image is a mapping of the file for images of memories, nil if the file cannot be mapped.
	image *snapmem.Image
}

// takeContent returns the content of a module, which takes over its file, and maps it if it lies at
// the beginning of a memory.
func (m *cachedModule) takeContent() *content {
	if len(m.data) == 0 {
		_ = m.file.Close()
		return nil
	}
	c := &content{file: m.file, at: m.dataAt, offset: m.about.Offset, size: uint32(len(m.data))}
	if c.offset == 0 && mappable(m.file.Name()) == nil {
		if image, err := snapmem.MapImage(m.file, c.at, len(m.data)); err == nil {
			c.image = image
		}
	}
	return c
}

// base returns the image with which those of the module's memories share pages, nil if there is
// none.
func (c *content) base() *snapmem.Image {
	if c == nil {
		return nil
	}
	return c.image
}

// write writes the content into a new memory.
func (c *content) write(memory api.Memory) error {
	if c == nil {
		return nil
	}
	view, ok := memory.Read(c.offset, c.size)
	if !ok {
		return fmt.Errorf("data segments from %d to %d: out of bounds memory access", c.offset, uint64(c.offset)+uint64(c.size))
	}
	for at := c.at; len(view) > 0; {
		n, err := c.file.ReadAt(view[:min(len(view), 1<<20)], at)
		if err != nil {
			return fmt.Errorf("read data segments from the cache: %w", err)
		}
		view, at = view[n:], at+int64(n)
	}
	return nil
}

func (c *content) close() {
	if c == nil {
		return
	}
	if c.image != nil {
		c.image.Close()
	}
	_ = c.file.Close()
}
