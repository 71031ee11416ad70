package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// guestsOf returns the directories of the guests in the images of programs.
func guestsOf(repo string, list []program) (guests []string, err error) {
	seen := map[string]bool{}
	for _, p := range list {
		if p.name == command || seen[p.name] {
			continue
		}
		seen[p.name] = true
		r, err := readRecipe(repo, p.name)
		if err != nil {
			return nil, err
		}
		guests = append(guests, r.guests...)
	}
	return guests, nil
}

// guests builds guests with kubewasm build and writes each to a layout with kubewasm push. It returns the
// modules by their directories.
func (m *maker) guests(ctx context.Context, tool string, dirs []string) (map[string][]byte, error) {
	modules := map[string][]byte{}
	env := []string{fmt.Sprintf("SOURCE_DATE_EPOCH=%d", m.time.Unix()), "GOFLAGS=-buildvcs=false", "GOWORK=off"}
	for _, dir := range dirs {
		file := filepath.Join(m.work, "guests", path.Base(dir)+".wasm")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return nil, err
		}
		if _, err := runIn(ctx, m.repo, env, tool, "build", "--version", m.number(), "--output-file", file, "./"+dir); err != nil {
			return nil, err
		}
		module, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		modules[dir] = module
		to := filepath.Join(m.out, "oci", filepath.FromSlash(dir))
		if err := os.MkdirAll(to, 0o755); err != nil { //nolint:gosec // Everybody may read it.
			return nil, err
		}
		out, err := runIn(ctx, m.repo, env, tool, "push",
			"--annotation", "org.opencontainers.image.source=https://"+root, "--annotation", "org.opencontainers.image.revision="+m.commit,
			"--annotation", "org.opencontainers.image.licenses=Apache-2.0", file, "oci-layout:"+to+":"+m.version)
		if err != nil {
			return nil, err
		}
		_, digest, ok := strings.Cut(strings.TrimSpace(string(out)), "@")
		if !ok {
			return nil, fmt.Errorf("push %s: it prints %q, want a digest", dir, out)
		}
		m.list(dir, m.version, digest)
	}
	return modules, nil
}
