package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

func build(t *tool, flags *pflag.FlagSet) action {
	file := flags.String("output-file", "", "")
	printed := outputFlag(flags)
	name := flags.String("name", "", "")
	version := flags.String("version", "", "")
	debug := flags.Bool("debug", false, "")
	compiled := flags.Bool("compiled", false, "")
	return func(ctx context.Context, args []string) error {
		dir, err := argument(flags, args, ".")
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
		building := t.working("building " + dir)
		m, err := guestbuild.Compile(ctx, guestbuild.Config{Dir: dir, Output: staged.Name(), Name: *name, Version: *version, Debug: *debug, Warnings: t.err})
		building.end()
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
		r, err := t.examine(ctx, trying{module: module})
		if err != nil {
			return fmt.Errorf("build %s: %w", dir, err)
		}
		if err := r.registered(); err != nil {
			return fmt.Errorf("build %s: %w", dir, err)
		}
		b := builtModule{File: cmp.Or(*file, filepath.Base(m.Name)+".wasm"), Kinds: m.Kinds, Name: m.Name, Version: m.Version, Bytes: len(module), SHA256: fmt.Sprintf("%x", sha256.Sum256(module)), Functions: r.Functions}
		if err := writeWhole(b.File, module); err != nil {
			return err
		}
		if *compiled {
			compiling := t.working("compiling for " + host.Platform)
			form, err := host.Precompile(ctx, module, host.Limits{})
			compiling.end()
			if err != nil {
				return err
			}
			b.Compiled = &compiledForm{File: host.CompiledFile(b.File, host.Platform), Bytes: len(form), Platform: host.Platform, SHA256: fmt.Sprintf("%x", sha256.Sum256(form))}
			if err := writeWhole(b.Compiled.File, form); err != nil {
				return err
			}
		}
		return printed.print(t, result{value: b, text: b.writeText})
	}
}

// builtModule is the result of build.
type builtModule struct {
	File      string        `json:"file"`
	Kinds     []string      `json:"kinds"`
	Name      string        `json:"name"`
	Version   string        `json:"version,omitempty"`
	Bytes     int           `json:"bytes"`
	SHA256    string        `json:"sha256"`
	Functions []string      `json:"functions"`
	Compiled  *compiledForm `json:"compiled,omitempty"`
}

// compiledForm is the file with the machine code of a module.
type compiledForm struct {
	File     string `json:"file"`
	Bytes    int    `json:"bytes"`
	Platform string `json:"platform"`
	SHA256   string `json:"sha256"`
}

func (b *builtModule) writeText(w io.Writer) error {
	_, err := foreign.Fprintf(w, "%s: %s %s, %d bytes, implements %s\n", b.File, strings.Join(b.Kinds, " and "), strings.TrimSpace(b.Name+" "+b.Version), b.Bytes, strings.Join(b.Functions, ", "))
	if c := b.Compiled; c != nil && err == nil {
		_, err = foreign.Fprintf(w, "%s: %d bytes of machine code for %s, sha256 %s\n", c.File, c.Bytes, c.Platform, c.SHA256)
	}
	return err
}
