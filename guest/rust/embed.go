// Package rust has the crate for guests written in Rust. kubewasm new and kubewasm build write it
// beside a guest, since no registry has it.
package rust

import (
	"bytes"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed Cargo.toml src
var crate embed.FS

// WriteCrate writes the crate into a directory, which it makes. An existing file with the same
// contents stays untouched.
func WriteCrate(dir string) error {
	return fs.WalkDir(crate, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(dir, filepath.FromSlash(name))
		if e.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := crate.ReadFile(name)
		if err != nil {
			return err
		}
		if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, text) {
			return nil
		}
		return os.WriteFile(target, text, 0o644)
	})
}
