//go:build !unix

package cgroup

import (
	"errors"
	"io"
	"os"
)

func pread(f *os.File, buf []byte) (int, error) {
	n, err := f.ReadAt(buf, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func openFiles() int { return 1024 }

// creation returns 0, since the order of creation is unknown.
func creation(os.FileInfo) uint64 { return 0 }
