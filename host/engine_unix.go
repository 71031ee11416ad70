//go:build unix

package host

import "golang.org/x/sys/unix"

// makeExecutable makes a page of memory executable, as a compiler does with its output.
func makeExecutable() error {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	defer unix.Munmap(page)
	return unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC)
}
