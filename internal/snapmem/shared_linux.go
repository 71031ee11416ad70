package snapmem

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shared is memory in a file, which another process maps as well. Behind a header the file has room
// for the maximum of the memory, and cannot be cut off, which would be a SIGBUS here.
type shared struct {
	file int
	// all is the mapping, header included, and bytes the memory.
	all, bytes []byte
	used       int // How much may not be zero.
}

// NewShared is [Allocator.New] for a memory in a file, behind a header. The file and the header belong
// to the memory. newFile makes a file of a fixed length. The error is [ErrBudget], or the system's.
func (a *Allocator) NewShared(min, max uint64, header int, newFile func(bytes int) (int, error)) (m *Memory, file int, head []byte, err error) {
	m = &Memory{budget: a.Budget, charged: min, guard: a.Guard}
	if !m.budget.take(min) {
		return nil, -1, nil, fmt.Errorf("%w: %d bytes wanted, %d of %d in use", ErrBudget, min, a.Budget.Used(), a.Budget.Limit())
	}
	if max > math.MaxInt32*2+2 {
		err = unix.EFBIG
	}
	if err == nil {
		file, err = newFile(header + int(max))
	}
	if err != nil {
		m.Free()
		return nil, -1, nil, fmt.Errorf("allocate %d bytes of memory: %w", min, err)
	}
	p, err := unix.MmapPtr(file, 0, nil, uintptr(header+int(max)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		unix.Close(file)
		m.Free()
		return nil, -1, nil, fmt.Errorf("allocate %d bytes of memory: %w", min, err)
	}
	all := unsafe.Slice((*byte)(p), header+int(max))
	s := &shared{file: file, all: all, bytes: all[header:]}
	s.resize(min)
	m.backing = s
	return m, file, all[:header:header], nil
}

func (s *shared) resize(size uint64) []byte {
	s.cut(int(size))
	s.used = int(size)
	return s.bytes[:size:size]
}

// cut makes the memory zero from size on.
func (s *shared) cut(size int) {
	if size >= s.used {
		return
	}
	at := len(s.all) - len(s.bytes) + size
	if unix.Fallocate(s.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(s.used-size)) != nil {
		clearPieces(s.bytes[size:s.used])
	}
}

func (s *shared) load(image *Image) error {
	if image.Size() > uint64(len(s.bytes)) {
		return fmt.Errorf("an image of %d bytes, in a memory of at most %d", image.Size(), len(s.bytes))
	}
	s.reset(image)
	return nil
}

// reset copies the pages that differ. Pages that the file does not have are not read: a read would
// make the kernel store them.
func (s *shared) reset(image *Image) {
	from, header, page := image.Bytes(), len(s.all)-len(s.bytes), os.Getpagesize()
	s.cut(len(from))
	for at := 0; at < len(from); {
		stored, end := len(from), len(from)
		if data, err := unix.Seek(s.file, int64(header+at), unix.SEEK_DATA); err == nil {
			stored = min(int(data)-header, len(from))
			if hole, err := unix.Seek(s.file, data, unix.SEEK_HOLE); err == nil {
				end = min(int(hole)-header, len(from))
			}
		}
		for ; at < stored; at += page {
			if piece := from[at:min(at+page, len(from))]; !zero(piece) {
				copy(s.bytes[at:], piece)
			}
		}
		for ; at < end; at += page {
			if piece := from[at:min(at+page, len(from))]; !bytes.Equal(piece, s.bytes[at:at+len(piece)]) {
				copy(s.bytes[at:], piece)
			}
		}
	}
	s.used = len(from)
}

func (s *shared) free() {
	// Both fail only for what is not open.
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(s.all)), uintptr(len(s.all)))
	_ = unix.Close(s.file)
	s.all, s.bytes = nil, nil
}

func (s *shared) hide() { s.protect(unix.PROT_NONE) }

func (s *shared) show() { s.protect(unix.PROT_READ | unix.PROT_WRITE) }

func (s *shared) protect(prot int) {
	if len(s.bytes) == 0 {
		return
	}
	if err := unix.Mprotect(s.bytes, prot); err != nil {
		panic(fmt.Sprintf("snapmem: protect memory: %v", err))
	}
}

func (s *shared) retire() {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(s.all)), uintptr(len(s.all)),
		unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|unix.MAP_FIXED)
	if err != nil {
		s.free()
		return
	}
	_ = unix.Close(s.file)
	s.all, s.bytes = nil, nil
}
