package c

import (
	"bytes"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed kubewasm.h kubewasm
var headers embed.FS

// WriteHeaders writes the headers into a directory, which it makes. An existing header stays
// untouched.
func WriteHeaders(dir string) error {
	return fs.WalkDir(headers, ".", func(name string, e fs.DirEntry, err error) error {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := headers.ReadFile(name)
		if err != nil {
			return err
		}
		if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, text) {
			return nil
		}
		return os.WriteFile(target, text, 0o644)
	})
}
