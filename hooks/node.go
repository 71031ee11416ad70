package hooks

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// node is the node's file system, at which mounts and devices are looked up.
type node struct{ root string }

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// resolve returns the path without symbolic links that a path leads to, within the
// node's root. What is at neither path may change before the runtime looks.
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
		next := path.Join(is, name) // ".." of a link's ends at the root.
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
