//go:build unix

package manage

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// checkOwner returns an error unless a file belongs to the user of the process.
func checkOwner(file string, info fs.FileInfo) error {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to %d", file, stat.Uid, os.Geteuid())
	}
	return nil
}

// openFile opens a file to read it, and no symbolic link. A pipe does not keep it.
func openFile(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// syncDir makes the names in a directory outlast a stop of the machine.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
