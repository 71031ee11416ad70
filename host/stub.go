package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/tetratelabs/wazero/api"

	"github.com/kubewasm/kubewasm/internal/diskcache"
	"github.com/kubewasm/kubewasm/internal/private"
	"github.com/kubewasm/kubewasm/internal/snapmem"
	"github.com/kubewasm/kubewasm/internal/wasmbin"
)

// stubSection is the custom section that tells the stubs of two modules apart: it has the
// SHA-256 of the module.
const stubSection = "kubewasm.stub"

// stub is what wazero gets of a rewritten module whose machine code is in the cache: the module
// without its code, where each function traps, and without its data. wazero keeps both, and has
// a use for neither once there is a snapshot. To load a stub takes a third of the time and a
// fifth of the memory.
type stub struct {
	module []byte
	about  aboutStub
	data   []byte // What memories begin with, from about.Offset on.
}

// aboutStub is what the host needs to know about the module, and where in the memory its data
// go, at a multiple of pageSize.
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

// layOut returns what a memory has after the segments were written: whole pages of WebAssembly,
// from an offset on. It returns nil if that is not known, or if they lie far from one another.
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

// content is the initial content of a memory, in the file of a stub. It is nil for a module
// whose data wazero has.
type content struct {
	file   *os.File
	at     int64
	offset uint32
	size   uint32
	// image is a mapping of the file for images of memories, nil if it cannot be one.
	image *snapmem.Image
}

// newContent takes the file, and maps it if the content is that of the beginning of a memory.
func newContent(file *os.File, at int64, offset, size uint32) *content {
	c := &content{file: file, at: at, offset: offset, size: size}
	if offset == 0 && mappable(file.Name()) == nil {
		if image, err := snapmem.MapImage(file, at, int(size)); err == nil {
			c.image = image
		}
	}
	return c
}

// base returns the image that those of the module's memories share pages with, nil if there
// is none.
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

// stubCache keeps the stubs of rewritten modules in files beside their machine code, and
// trusts them as much. A file that is not exactly what was written counts as missing.
type stubCache struct {
	dir string
}

// stubsDir is the directory of the stubs within that of the compiled modules.
const stubsDir = "kubewasm-stubs"

// newStubCache makes the directory of the cache within that of the compiled modules.
func newStubCache(dir string) (stubCache, error) {
	c := stubCache{filepath.Join(dir, stubsDir)}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return c, err
	}
	return c, private.CheckDirectory(c.dir)
}

// stubKey names what a module of a digest was rewritten to.
type stubKey [sha256.Size]byte

func stubKeyOf(digest string, opts wasmbin.Options, goPass bool) stubKey {
	opts.CompileTime = 0 // It changes nothing in a module that is compiled already.
	return sha256.Sum256(fmt.Appendf(nil, "%d %s %+v %v", rewritingVersion, digest, opts, goPass))
}

// A file holds the SHA-256 of its key and all that follows, the lengths of the next two in 4
// bytes each, what is known about the stub as JSON, the stub's module, and the data, which
// begin at a multiple of pageSize, so that they can be mapped.
const stubHeader = sha256.Size + 8

var errStubFile = errors.New("not a file of the cache")

func (c stubCache) path(key stubKey) string { return filepath.Join(c.dir, hex.EncodeToString(key[:])) }

func sumOf(key stubKey, parts ...[]byte) []byte {
	h := sha256.New()
	h.Write(key[:])
	for _, part := range parts {
		writePieces(h, part)
	}
	return h.Sum(nil)
}

// read returns a stub, and where its data are, whose file is open.
func (c stubCache) read(key stubKey) (*stub, *content, error) {
	f, err := os.Open(c.path(key))
	if err != nil {
		return nil, nil, err
	}
	s, at, err := readStub(f, key)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	if len(s.data) == 0 {
		return s, nil, f.Close()
	}
	return s, newContent(f, at, s.about.Offset, uint32(len(s.data))), nil
}

// readStub reads the file of a stub, and returns where its data begin.
func readStub(f *os.File, key stubKey) (s *stub, at int64, err error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	// A stub is smaller than its module, whose rewriting made it larger by a sixth.
	if !stat.Mode().IsRegular() || stat.Size() < stubHeader || stat.Size() > 4*MaxModuleBytes {
		return nil, 0, errStubFile
	}
	all := make([]byte, stat.Size())
	if _, err := io.ReadFull(f, all); err != nil {
		return nil, 0, err
	}
	if !bytes.Equal(all[:sha256.Size], sumOf(key, all[sha256.Size:])) {
		return nil, 0, errStubFile
	}
	about := uint64(binary.LittleEndian.Uint32(all[sha256.Size:]))
	module := uint64(binary.LittleEndian.Uint32(all[sha256.Size+4:]))
	rest := all[stubHeader:]
	if about+module > uint64(len(rest)) {
		return nil, 0, errStubFile
	}
	s = &stub{module: rest[about : about+module]}
	padding := paddingOf(about + module)
	if n := uint64(len(rest)) - about - module; n != 0 && n <= padding {
		return nil, 0, errStubFile
	} else if n != 0 {
		s.data = rest[about+module+padding:]
	}
	if err := json.Unmarshal(rest[:about], &s.about); err != nil {
		return nil, 0, err
	}
	if s.about.Info == nil || len(s.data)%pageSize != 0 || s.about.Offset%pageSize != 0 {
		return nil, 0, errStubFile
	}
	diskcache.Use(f.Name(), stat)
	return s, int64(stubHeader + about + module + padding), nil
}

// paddingOf returns the number of bytes between a stub and its data. length is that of the
// stub with what is known about it.
func paddingOf(length uint64) uint64 { return -(stubHeader + length) % pageSize }

// write makes the file, whole or not at all.
func (c stubCache) write(key stubKey, s *stub) error {
	about, err := json.Marshal(s.about)
	if err != nil {
		return err
	}
	lengths := binary.LittleEndian.AppendUint32(nil, uint32(len(about)))
	lengths = binary.LittleEndian.AppendUint32(lengths, uint32(len(s.module)))
	var padding []byte
	if len(s.data) != 0 {
		padding = make([]byte, paddingOf(uint64(len(about)+len(s.module))))
	}
	return diskcache.Write(c.path(key), sumOf(key, lengths, about, s.module, padding, s.data), lengths, about, s.module, padding, s.data)
}
