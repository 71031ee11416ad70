package hooks

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// device returns the type and the numbers of the node's device, or FIFO, at a path,
// which may lead through no symbolic link.
func (n *node) device(p string) (d hookmsg.Device, err error) {
	is, err := n.resolve(p)
	if err != nil {
		return d, err
	}
	if is != p {
		return d, fmt.Errorf("it leads to %s", is)
	}
	var stat unix.Stat_t
	if err := unix.Lstat(filepath.Join(n.root, p), &stat); err != nil {
		return d, err
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		d.Type = "c"
	case unix.S_IFBLK:
		d.Type = "b"
	case unix.S_IFIFO:
		return hookmsg.Device{Path: p, Type: "p"}, nil
	default:
		return d, fmt.Errorf("%s is no device: %w", p, fs.ErrInvalid)
	}
	d.Path, d.Major, d.Minor = p, int64(unix.Major(stat.Rdev)), int64(unix.Minor(stat.Rdev))
	return d, nil
}
