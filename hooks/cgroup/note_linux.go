package cgroup

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// setAttribute sets an extended attribute that does not exist.
func setAttribute(f *os.File, name, text string) {
	_ = unix.Fsetxattr(int(f.Fd()), name, []byte(text), unix.XATTR_CREATE)
}

// attributes returns the names of the extended attributes.
func attributes(f *os.File) []string {
	buf := make([]byte, 64<<10) // The kernel's limit.
	n, err := unix.Flistxattr(int(f.Fd()), buf)
	if err != nil || n == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(buf[:n]), "\x00"), "\x00")
}

// attribute returns the text of an extended attribute.
func attribute(f *os.File, name string) (text string, ok bool) {
	buf := make([]byte, maxNote)
	n, err := unix.Fgetxattr(int(f.Fd()), name, buf)
	if err != nil {
		return "", false
	}
	return string(buf[:n]), true
}

func removeAttribute(f *os.File, name string) { _ = unix.Fremovexattr(int(f.Fd()), name) }
