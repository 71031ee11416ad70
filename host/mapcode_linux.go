package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapCode maps a part of a file in place of memory for machine code, and reports whether it did:
// then only executed code is resident, and the processes that share the cache share it. It does not
// map on a file system that may be remote, on a noexec mount, or against the rules of SELinux.
// After an error the memory may be gone.
func mapCode(code []byte, file *os.File, at int64) (mapped bool, err error) {
	start, size := unsafe.Pointer(unsafe.SliceData(code)), uintptr(len(code))
	if uintptr(start)%uintptr(os.Getpagesize()) != 0 || mappable(file.Name()) != nil {
		return false, nil
	}
	_, err = unix.MmapPtr(int(file.Fd()), at, start, size, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_FIXED)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("map machine code: %w", err)
	}
	return true, nil
}

// mapCopy does the same with a copy of that part of the file. The copy is on the same file system
// and has no name, so no other process opens it, and it goes with its mapping. It is on the disk
// before it is mapped: pages that could not be written would be read as something else later. A
// kernel or a disk that cannot hold one is no error.
func mapCopy(code []byte, file *os.File, at int64) (mapped bool, err error) {
	fd, err := unix.Open(filepath.Dir(file.Name()), unix.O_TMPFILE|unix.O_EXCL|unix.O_RDWR|unix.O_CLOEXEC, 0o400)
	if err != nil {
		return false, nil
	}
	unnamed := os.NewFile(uintptr(fd), filepath.Join(filepath.Dir(file.Name()), "copy"))
	defer unnamed.Close()
	n, err := io.Copy(unnamed, io.NewSectionReader(file, at, int64(len(code))))
	if err != nil || n != int64(len(code)) || unix.Fdatasync(fd) != nil {
		return false, nil
	}
	return mapCode(code, unnamed, 0)
}

// unmapCode frees the memory for machine code.
func unmapCode(code []byte) { _ = unix.Munmap(code) }

// splitMapping splits a mapping of a file into mappings of so many bytes each. To keep the kernel
// from merging them, it excludes every other one from core dumps. A page fault maps up to 64 KiB
// around it, but nothing of another mapping. It reports whether it could, and undoes the split if
// not: a process without mappings left ends when Go's heap needs one.
func splitMapping(mapped []byte, piece int) bool {
	for at := piece; at < len(mapped); at += 2 * piece {
		if unix.Madvise(mapped[at:min(at+piece, len(mapped))], unix.MADV_DONTDUMP) != nil {
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

// local are the file systems whose mapped files are safe: on others an error of the network would
// end the process.
var local = map[int64]bool{
	unix.BTRFS_SUPER_MAGIC: true, unix.EXT4_SUPER_MAGIC: true, unix.F2FS_SUPER_MAGIC: true, unix.OVERLAYFS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC: true, unix.XFS_SUPER_MAGIC: true,
}

// mappable returns an error unless a file, which need not be there yet, is on a local file
// system.
func mappable(name string) error {
	if name == oneFile {
		return nil
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(name), &fs); err != nil {
		return err
	}
	if !local[int64(fs.Type)] { //nolint:unconvert // It is an int32 elsewhere.
		return fmt.Errorf("%s is on a file system of type %#x, which may be remote", name, fs.Type)
	}
	return nil
}
