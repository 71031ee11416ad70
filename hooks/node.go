package hooks

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// node is the node's file system, in which mounts and devices are looked up.
type node struct{ root string }

// maxLinks is the maximum number of symbolic links in a path, as in the kernel.
const maxLinks = 40

// resolve returns the target of a path within the node's root, without symbolic links. The files at
// both paths may change before the runtime opens them.
func (n *node) resolve(p string) (string, error) {
	root, err := os.OpenRoot(n.root)
	if err != nil {
		return "", err
	}
	defer root.Close()
	is, left, links := "/", p, 0
	for left != "" {
		var name string
		name, left, _ = strings.Cut(strings.TrimLeft(left, "/"), "/")
		if name == "" || name == "." {
			continue
		}
		next := path.Join(is, name) // ".." in a link cannot leave the root.
		info, err := root.Lstat("." + next)
		if err != nil {
			return "", errors.Unwrap(err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			is = next
			continue
		}
		if links++; links > maxLinks {
			return "", syscall.ELOOP
		}
		to, err := root.Readlink("." + next)
		if err != nil {
			return "", errors.Unwrap(err)
		}
		if path.IsAbs(to) {
			is = "/"
		}
		left = to + "/" + left
	}
	return is, nil
}
