package snapmem

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keepPages is how many of its written pages an instance keeps after a reset. To
// copy a page back takes a quarter of a microsecond. To return it to the kernel
// and fault it in again at the next write takes five on a virtual machine. But
// pages that are kept use memory in the meantime. They are those of a policy whose memory has
// grown by 1 MiB, and some more.
const keepPages = 384

// imageFile is a file in memory that is sealed against changes, or one of [MapImage]. It has
// the parts of an image that are the image's own; pages of zeros take no memory.
type imageFile struct {
	fd   int
	at   int64 // Where in the file the image begins.
	size int   // 0 if there is no file
	own  []span
	// base has the rest as far as it reaches, nil if there is none. After it are zeros.
	base *Image
	// ends is set if base ends with this file.
	ends bool
}

// create makes the file of the parts own of memory and maps the image for reading. The rest
// is that of base.
func (f *imageFile) create(memory []byte, own []span, base *Image, mapped *[]byte) bool {
	if len(memory) == 0 || len(memory)%os.Getpagesize() != 0 {
		return false
	}
	fd, err := unix.MemfdCreate("kubewasm-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err == unix.EINVAL { // Linux before 6.3 does not know the last flag.
		fd, err = unix.MemfdCreate("kubewasm-image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return false
	}
	made := imageFile{fd: fd, size: len(memory), own: own, base: base}
	if !made.fill(memory, mapped) {
		unix.Close(fd)
		return false
	}
	*f = made
	return true
}

// fill writes the file, seals it and maps the image.
func (f *imageFile) fill(memory []byte, mapped *[]byte) bool {
	if unix.Ftruncate(f.fd, int64(len(memory))) != nil {
		return false
	}
	for piece, at := range pages(memory, f.own) {
		if !writeAt(f.fd, piece, int64(at)) {
			return false
		}
	}
	// Nothing changes the pages under the instances, and no access to them
	// finds the file shorter than it was, which would be a SIGBUS.
	seals := unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(f.fd), unix.F_ADD_SEALS, seals); err != nil {
		return false
	}
	b, err := f.mapImage()
	if err != nil {
		return false
	}
	*mapped = b
	return true
}

// open makes the image a piece of a file of somebody else.
func (f *imageFile) open(file *os.File, at int64, size int, mapped *[]byte) error {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return err
	}
	p, err := unix.MmapPtr(fd, at, nil, uintptr(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return err
	}
	*f, *mapped = imageFile{fd: fd, at: at, size: size, own: []span{{0, size}}}, unsafe.Slice((*byte)(p), size)
	return nil
}

// rest gives back the resident pages of the image, until they are read again.
func (f *imageFile) rest(mapped []byte) {
	if f.mapped() {
		_ = unix.Madvise(mapped, unix.MADV_DONTNEED)
	}
}

func writeAt(fd int, b []byte, at int64) bool {
	for len(b) != 0 {
		n, err := unix.Pwrite(fd, b, at)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return false
		}
		b, at = b[n:], at+int64(n)
	}
	return true
}

// mapTo maps the image at an address that is reserved for it. After an error some of it
// may be mapped. The mappings are private also where they are only read: Linux before 6.7
// refuses shared ones of a sealed file.
func (f *imageFile) mapTo(at unsafe.Pointer, prot int) error {
	end := 0 // Of the base.
	if f.base != nil {
		if err := f.base.file.mapTo(at, prot); err != nil {
			return err
		}
		end = f.base.file.size
	}
	// Zeros lie in memory without a file: the kernel would store a page of the file for each
	// that is touched, beside the one that a guest writes.
	if end < f.size {
		_, err := unix.MmapPtr(-1, 0, unsafe.Add(at, end), uintptr(f.size-end), prot, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
	}
	for _, s := range f.own {
		_, err := unix.MmapPtr(f.fd, f.at+int64(s.start), unsafe.Add(at, s.start), uintptr(s.end-s.start), prot, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
		if err != nil {
			return err
		}
	}
	return nil
}

// Layers describes the files of the image, the lowest first. It returns nil if the image is not in
// files. They belong to the image.
func (i *Image) Layers() (layers []Layer, files []int) {
	if !i.file.mapped() {
		return nil, nil
	}
	if i.file.base != nil {
		layers, files = i.file.base.Layers()
	}
	l := Layer{Size: i.file.size, At: i.file.at}
	for _, s := range i.file.own {
		l.Own = append(l.Own, [2]int{s.start, s.end})
	}
	return append(layers, l), append(files, i.file.fd)
}

// OpenLayers makes an image of what [Image.Layers] has returned in another process. It takes the
// files.
func OpenLayers(layers []Layer, files []int) (*Image, error) {
	image := &Image{scratch: &sync.Pool{}}
	for n, l := range layers {
		f := imageFile{fd: files[n], at: l.At, size: l.Size}
		for _, own := range l.Own {
			f.own = append(f.own, span{own[0], own[1]})
		}
		if n > 0 {
			f.base, f.ends = &Image{file: image.file}, true
		}
		image.file = f
	}
	var err error
	if image.bytes, err = image.file.mapImage(); err != nil {
		image.Close()
		return nil, fmt.Errorf("map image: %w", err)
	}
	return image, nil
}

// mapImage maps the image for reading.
func (f *imageFile) mapImage() ([]byte, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(f.size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	if err := f.mapTo(p, unix.PROT_READ); err != nil {
		_ = unix.MunmapPtr(p, uintptr(f.size))
		return nil, err
	}
	return unsafe.Slice((*byte)(p), f.size), nil
}

// Prepare finds out how the system shows and drops written pages, for a process that cannot do that
// later. It opens a file.
func Prepare() {
	dropsWritten()
	openPagemap()
}

// mapped reports whether there is a file.
func (f *imageFile) mapped() bool { return f.size != 0 }

func (f *imageFile) close(mapped *[]byte) {
	if f.mapped() {
		// Both fail only for addresses that are not mapped.
		_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(*mapped)), uintptr(len(*mapped)))
		_ = unix.Close(f.fd)
		if f.ends {
			f.base.Close()
		}
		*f = imageFile{}
	}
	*mapped = nil
}

// mapping is memory in address space that is reserved up to its maximum.
type mapping struct {
	bytes []byte
	// open is how much of it may be read and written, and used how much may not be zero.
	open, used uint64
	// shared is set if the beginning is mapped from the image.
	shared bool
}

// newMapping reserves address space, or returns nil if it cannot.
func newMapping(max uint64) backing {
	if max == 0 || max > math.MaxInt || max%uint64(os.Getpagesize()) != 0 {
		return nil
	}
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(max), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	return &mapping{bytes: unsafe.Slice((*byte)(p), max)}
}

func (m *mapping) resize(size uint64) []byte {
	if size > m.open {
		if unix.Mprotect(m.bytes[m.open:size], unix.PROT_READ|unix.PROT_WRITE) != nil {
			return nil
		}
		m.open = size
	}
	if size < m.used {
		// Bytes must be 0 when the memory grows again. The pages may stay open,
		// since wazero checks the length.
		drop(m.bytes[size:m.used], nil)
	}
	m.used = size
	return m.bytes[:size:size]
}

func (m *mapping) load(image *Image) error {
	size := image.Size()
	if size > uint64(len(m.bytes)) {
		return fmt.Errorf("an image of %d bytes, in a memory of at most %d", size, len(m.bytes))
	}
	if !image.file.mapped() {
		if m.resize(size) == nil {
			return unix.ENOMEM
		}
		copyPieces(m.bytes, image.Bytes())
		m.shared = false // What the kernel drops comes back as an earlier image.
		return nil
	}
	if err := image.file.mapTo(unsafe.Pointer(unsafe.SliceData(m.bytes)), unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return err
	}
	m.open, m.used, m.shared = max(m.open, size), max(m.used, size), true
	return nil
}

func (m *mapping) reset(image *Image) {
	if !m.shared {
		copyPieces(m.bytes[:image.Size()], image.Bytes())
		return
	}
	mem, rest := m.bytes[:m.used], 0
	if pagemap := openPagemap(); pagemap >= 0 {
		rest = copyWritten(pagemap, mem, image.Bytes(), keepPages)
	}
	if rest < len(mem) {
		drop(mem[rest:], image.Bytes()[min(rest, len(image.Bytes())):])
	}
	m.used = image.Size()
}

// drop makes memory the image that is mapped there, and zero after it. The kernel drops the
// pages that were written; later reads come from the image.
func drop(mem, image []byte) {
	if !dropsWritten() || unix.Madvise(mem, unix.MADV_DONTNEED) != nil {
		clearPieces(mem)
		copyPieces(mem, image)
	}
}

// dropsWritten reports whether the kernel drops pages, of a file and of memory without one. An
// emulator may have the call and do nothing.
var dropsWritten = sync.OnceValue(func() bool {
	size := os.Getpagesize()
	var image Image
	if !image.file.create(make([]byte, 2*size), []span{{0, size}}, nil, &image.bytes) {
		return false
	}
	defer image.Close()
	m := newMapping(uint64(2 * size))
	if m == nil {
		return false
	}
	defer m.free()
	if m.load(&image) != nil {
		return false
	}
	mem := m.resize(uint64(2 * size))
	mem[0], mem[size] = 1, 1
	return unix.Madvise(mem, unix.MADV_DONTNEED) == nil && mem[0] == 0 && mem[size] == 0
})

func (m *mapping) free() {
	// It fails only for addresses that are not mapped.
	_ = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(m.bytes)), uintptr(len(m.bytes)))
	m.bytes = nil
}

func (m *mapping) hide() { m.protect("hide", unix.PROT_NONE) }

func (m *mapping) show() { m.protect("show", unix.PROT_READ|unix.PROT_WRITE) }

// protect fails only if the process has as many mappings as it may have.
func (m *mapping) protect(verb string, prot int) {
	if m.open == 0 {
		return
	}
	if err := unix.Mprotect(m.bytes[:m.open], prot); err != nil {
		panic(fmt.Sprintf("snapmem: %s memory: %v", verb, err))
	}
}

func (m *mapping) retire() {
	// Its pages go, and the address space stays reserved. If that fails, it is as
	// after free.
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(unsafe.SliceData(m.bytes)), uintptr(len(m.bytes)),
		unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE|unix.MAP_FIXED)
	if err != nil {
		m.free()
	}
	m.bytes = nil
}

// openPagemap opens the kernel's list of this process's pages, once. It returns
// -1 if the list does not show which pages were written.
var openPagemap = sync.OnceValue(func() int {
	fd, err := unix.Open("/proc/self/pagemap", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	if !tellsWritten(fd) {
		unix.Close(fd)
		return -1
	}
	return fd
})

// What the kernel's list tells of a page, in its highest bits. A page that was only read is one
// of a file, the image; a page that was written belongs to the process.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageFile    = 1 << 61
)

// tellsWritten checks the list with a mapping of three pages: one is read, one not touched,
// one written.
func tellsWritten(pagemap int) bool {
	size := os.Getpagesize()
	var image Image
	if !image.file.create(make([]byte, 3*size), []span{{0, 3 * size}}, nil, &image.bytes) {
		return false
	}
	defer image.Close()
	p, err := unix.MmapPtr(image.file.fd, 0, nil, uintptr(3*size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
	if err != nil {
		return false
	}
	defer unix.MunmapPtr(p, uintptr(3*size))
	mem := unsafe.Slice((*byte)(p), 3*size)
	mem[2*size] = mem[0] + 1
	var entries [3]uint64
	list := unsafe.Slice((*byte)(unsafe.Pointer(&entries)), unsafe.Sizeof(entries))
	n, err := unix.Pread(pagemap, list, int64(uintptr(p)/uintptr(size))*8)
	return err == nil && n == len(list) && tellsProbe(entries)
}

// tellsProbe reports whether entries of the list are those of a page that was read, one that
// was not touched and one that was written. Sandboxes that look like Linux may have a list with
// other contents. An emulator of another byte order has the flags at the other end, where the
// address of a page is, and that looks right by chance: so the entries must be wrong from that
// end.
func tellsProbe(entries [3]uint64) bool {
	const told = 0x7f << 57 // Those below the three are not set for a page without a guard.
	right, reversed := true, true
	for n, want := range [...]uint64{pagePresent | pageFile, 0, pagePresent} {
		right = right && entries[n]&told == want
		reversed = reversed && bits.ReverseBytes64(entries[n])&told == want
	}
	return right && !reversed
}

// copyWritten copies the pages that differ from the image since they were
// written, up to a number of pages or the end of the memory, and returns how far
// it came. After the end of the image are zeros.
func copyWritten(pagemap int, mem, image []byte, pages int) int {
	size := os.Getpagesize()
	var entries [512]uint64
	list := unsafe.Slice((*byte)(unsafe.Pointer(&entries)), len(entries)*8)
	first := uintptr(unsafe.Pointer(unsafe.SliceData(mem))) / uintptr(size)
	for at := 0; at < len(mem); {
		want := min(len(entries), (len(mem)-at)/size)
		n, err := unix.Pread(pagemap, list[:want*8], int64(first+uintptr(at/size))*8)
		if n < 8 {
			if err == unix.EINTR {
				continue
			}
			return at
		}
		for _, e := range entries[:n/8] {
			if e&(pagePresent|pageSwapped) != 0 && e&pageFile == 0 {
				if pages == 0 {
					return at
				}
				pages--
				// A page of zeros that was only read counts as written, and stays one.
				if page := mem[at : at+size]; at >= len(image) {
					clear(page)
				} else if !bytes.Equal(page, image[at:at+size]) {
					copy(page, image[at:])
				}
			}
			at += size
		}
	}
	return len(mem)
}
