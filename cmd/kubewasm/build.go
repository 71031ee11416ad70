package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

func build(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("build")
	output := flags.String("o", "", "")
	name := flags.String("name", "", "")
	version := flags.String("version", "", "")
	debug := flags.Bool("debug", false, "")
	compiled := flags.Bool("compiled", false, "")
	dir, err := parse(flags, args, ".")
	if err != nil {
		return err
	}
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("build %s: name the directory of a package, not a file", dir)
	}
	// The name of the file may depend on the name in the metadata.
	staged, err := os.CreateTemp("", "kubewasm-*.wasm")
	if err != nil {
		return err
	}
	staged.Close()
	defer os.Remove(staged.Name())
	m, err := guestbuild.Compile(ctx, guestbuild.Config{Dir: dir, Output: staged.Name(), Name: *name, Version: *version, Debug: *debug, Warnings: t.err})
	if err != nil {
		return err
	}
	if err := t.check(ctx, dir); err != nil {
		return fmt.Errorf("build %s: %w", dir, err)
	}
	module, err := os.ReadFile(staged.Name())
	if err != nil {
		return err
	}
	r, err := examine(ctx, trying{module: module})
	if err != nil {
		return fmt.Errorf("build %s: %w", dir, err)
	}
	if err := r.registered(); err != nil {
		return fmt.Errorf("build %s: %w", dir, err)
	}
	file := *output
	if file == "" {
		file = filepath.Base(m.Name) + ".wasm"
	}
	if err := writeWhole(file, module); err != nil {
		return err
	}
	foreign.Fprintf(t.out, "%s: %s %s, %d bytes, implements %s\n", file, strings.Join(m.Kinds, " and "), strings.TrimSpace(m.Name+" "+m.Version), len(module), strings.Join(r.Functions, ", "))
	if !*compiled {
		return nil
	}
	form, err := host.Precompile(ctx, module, host.Limits{})
	if err != nil {
		return err
	}
	file = host.CompiledFile(file, host.Platform)
	if err := writeWhole(file, form); err != nil {
		return err
	}
	fmt.Fprintf(t.out, "%s: %d bytes of machine code for %s, sha256 %x\n", file, len(form), host.Platform, sha256.Sum256(form))
	return nil
}
