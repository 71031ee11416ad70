package assemblyscript

import (
	"bytes"
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed *.ts api internal transform package.json
var files embed.FS

// WritePackage writes the package into a directory, which it makes. An existing file with the same
// contents stays untouched.
func WritePackage(dir string) error {
	return fs.WalkDir(files, ".", func(name string, e fs.DirEntry, err error) error {
		target := filepath.Join(dir, filepath.FromSlash(name))
		if err != nil {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := files.ReadFile(name)
		if err != nil {
			return err
		}
		if old, err := os.ReadFile(target); err == nil && bytes.Equal(old, text) {
			return nil
		}
		return os.WriteFile(target, text, 0o644)
	})
}
