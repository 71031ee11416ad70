//go:build unix

package cgroup

import (
	"os"
	"syscall"
)

// pread reads from the beginning of a file in one system call, where [os.File.ReadAt] needs two to
// find the end.
func pread(f *os.File, buf []byte) (int, error) {
	for {
		n, err := syscall.Pread(int(f.Fd()), buf, 0)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// openFiles returns the maximum number of open files of the process.
func openFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(limit.Cur, 1<<20))
}

// creation returns a number that is larger for a cgroup created later, since the kernel numbers
// cgroups. It returns 0 if there is no number.
func creation(info os.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(stat.Ino) //nolint:unconvert // Its type differs between systems.
	}
	return 0
}
