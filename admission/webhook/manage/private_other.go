//go:build !unix

package manage

import (
	"io/fs"
	"os"
)

// On these systems, owners and modes do not decide about access.
func checkOwner(string, fs.FileInfo) error { return nil }

func openFile(file string) (*os.File, error) { return os.Open(file) }

func syncDir(string) error { return nil }

// lockFile locks nothing, since there is no flock.
func lockFile(file string) (*os.File, error) {
	return os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
}
