package host

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"unsafe"

	"github.com/tetratelabs/wazero/api"
	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/internal/diskcache"
)

// mapCode gives back the memory that wazero has read machine code into, and puts a mapping of
// a file with the same bytes in its place. Then only what runs is resident, and the processes
// that share the cache share it. fn is a function of an instance, which keeps the machine code
// alive. A file without a checksum in its name gets that of the code. made reports whether there
// was no such file. After an error no memory has changed.
func mapCode(fn api.Function, file string) (code []byte, made bool, err error) {
	code = machineCodeOf(fn)
	if len(code) == 0 {
		return nil, false, fmt.Errorf("map machine code: no code in %T", fn)
	}
	if filepath.Ext(file) == "" {
		file += fmt.Sprintf(".%08x", crc32.Checksum(code, castagnoli))
	}
	mapped, made, err := mapFileOf(code, file)
	if err != nil {
		return nil, made, fmt.Errorf("map machine code: %w", err)
	}
	size := uintptr(len(code))
	// The kernel replaces the pages in one step, also for threads that run them.
	if _, err := unix.MremapPtr(mapped, size, unsafe.Pointer(unsafe.SliceData(code)), size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED); err != nil {
		return nil, made, errors.Join(fmt.Errorf("map machine code: %w", err), unix.MunmapPtr(mapped, size))
	}
	return code, made, nil
}

// splitMapping makes a mapping of a file one for each pieceBytes: the kernel does not merge
// those of which only one is in a core dump. A page fault maps up to 64 KiB around it, but
// nothing of another mapping. It reports whether it could, and takes them back if not: a process
// that has no mappings left ends when Go's heap needs one.
func splitMapping(mapped []byte) bool {
	for at := pieceBytes; at < len(mapped); at += 2 * pieceBytes {
		if unix.Madvise(mapped[at:min(at+pieceBytes, len(mapped))], unix.MADV_DONTDUMP) != nil {
			joinMapping(mapped)
			return false
		}
	}
	return true
}

// joinMapping undoes splitMapping.
func joinMapping(mapped []byte) { _ = unix.Madvise(mapped, unix.MADV_DODUMP) }

// dropPages gives back the resident pages of a mapping of a file, which are read from there when
// they are needed again.
func dropPages(mapped []byte) { _ = unix.Madvise(mapped, unix.MADV_DONTNEED) }

// local are the file systems on whose files the pages of a process can rely: on others an error
// of the network would end it.
var local = map[int64]bool{
	unix.BTRFS_SUPER_MAGIC: true, unix.EXT4_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.XFS_SUPER_MAGIC: true,
}

// mappable returns an error unless a file, which need not be there yet, is on a local file
// system.
func mappable(name string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(name), &fs); err != nil {
		return err
	}
	if !local[int64(fs.Type)] { //nolint:unconvert // It is an int32 elsewhere.
		return fmt.Errorf("%s is on a file system of type %#x, which may be remote", name, fs.Type)
	}
	return nil
}

// errNotMapped is why no file is mapped: on a noexec mount, or by the rules of SELinux. Another
// file would not be either.
var errNotMapped = errors.New("the file cannot be mapped")

// mapFileOf maps the file that has exactly the machine code, and makes it if it is not there,
// on a local file system only.
func mapFileOf(code []byte, name string) (mapped unsafe.Pointer, made bool, err error) {
	if err := mappable(name); err != nil {
		return nil, false, err
	}
	if mapped, err = mapIfEqual(name, code); err == nil || errors.Is(err, errNotMapped) {
		return mapped, false, err
	}
	if err := diskcache.Write(name, code); err != nil {
		return nil, false, err
	}
	mapped, err = mapIfEqual(name, code)
	return mapped, true, err
}

// mapIfEqual maps a file, unless it has other bytes than the machine code. No page of it is
// resident.
func mapIfEqual(name string, code []byte) (mapped unsafe.Pointer, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != int64(len(code)) {
		return nil, fmt.Errorf("%s has %d bytes, not %d", name, info.Size(), len(code))
	}
	size := uintptr(len(code))
	if mapped, err = unix.MmapPtr(int(file.Fd()), 0, nil, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotMapped, err)
	}
	bytesOf := unsafe.Slice((*byte)(mapped), len(code))
	if !equal(bytesOf, code) {
		return nil, errors.Join(fmt.Errorf("%s has other machine code", name), unix.MunmapPtr(mapped, size))
	}
	dropPages(bytesOf)
	diskcache.Use(name, info)
	return mapped, nil
}

// equal reports whether a mapping of a file has exactly the machine code. It has not where a page
// cannot be read, as on a damaged disk: that would end the process, and the next one at its start.
func equal(mapped, code []byte) (same bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { _ = recover() }()
	return bytes.Equal(mapped, code)
}

// machineCodeOf returns the machine code of the module that a function belongs to, as wazero
// has it in memory; nil if wazero's structures are not as expected.
func machineCodeOf(fn api.Function) []byte {
	v := reflect.ValueOf(fn)
	for _, name := range []string{"parent", "parent", "executables", "executable"} {
		if v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return nil
		}
		if v = v.Elem().FieldByName(name); !v.IsValid() {
			return nil
		}
	}
	if v.Type() != reflect.TypeFor[[]byte]() || v.Len() == 0 || uintptr(v.UnsafePointer())%uintptr(os.Getpagesize()) != 0 {
		return nil
	}
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Len())
}
