//go:build unix

package diskcache

import (
	"fmt"
	"os"
	"syscall"
)

// CheckDirectory refuses a directory that another user could write to.
func CheckDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		return fmt.Errorf("%s has mode %#o: others can write to it", dir, mode)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to %d", dir, stat.Uid, os.Geteuid())
	}
	return nil
}
