// Command render writes the manifests in charts/manifests, for users of kustomize and kubectl: a
// directory for each program, rendered from charts/kubewasm with a file of its directory ci.
package main

//go:generate go run .

import (
	"fmt"
	"os"
	"path/filepath"
)

// The directories of the chart and the manifests, from that of this package.
const (
	chartDir     = "../kubewasm"
	manifestsDir = "../manifests"
)

func main() {
	if err := write(manifestsDir); err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// write writes the files of all programs below a directory.
func write(dir string) error {
	c, err := load(chartDir)
	if err != nil {
		return err
	}
	for _, p := range programs {
		files, err := p.files(c)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		to := filepath.Join(dir, p.name)
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(to, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
