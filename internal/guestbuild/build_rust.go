package guestbuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/guest/rust"
)

// Rust is compiled by cargo for wasm32-unknown-unknown. The package has a library of the
// type cdylib. The metadata are a static in the section "kubewasm", which the SDK's macros write.
var Rust = &Language{Name: "rust", Title: "Rust", is: func(name string) bool { return name == "Cargo.toml" }, compile: compileRust,
	registers: "the crate registers no plugin: give a type that implements a trait of kubewasm::sched, admission or hooks to kubewasm::plugin!",
}

const rustTarget = "wasm32-unknown-unknown"

func compileRust(ctx context.Context, cfg Config, _ string) ([]byte, error) {
	cargo, rustc, err := rustToolchain(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := writeCrate(cfg.Dir); err != nil {
		return nil, err
	}
	library, err := rustLibrary(ctx, cargo, cfg.Dir)
	if err != nil {
		return nil, err
	}
	var module []byte
	err = cargoBuild(ctx, cfg, cargo, rustc, library, "--lib", func(modules []string) error {
		if len(modules) != 1 {
			return fmt.Errorf("cargo has made %d modules of the library, want one", len(modules))
		}
		module, err = os.ReadFile(modules[0])
		return err
	})
	return module, err
}

// writeCrate writes the SDK into vendor/kubewasm of a guest that has it there.
func writeCrate(dir string) error {
	manifest, err := os.ReadFile(filepath.Join(dir, "Cargo.toml"))
	if err != nil {
		return err
	}
	if !bytes.Contains(manifest, []byte(`"vendor/kubewasm"`)) {
		return nil
	}
	return rust.WriteCrate(filepath.Join(dir, "vendor", "kubewasm"))
}

// cargoBuild compiles what of the package is chosen, and calls read with the modules that it has
// made. All guests share one directory of cargo, so that the SDK is compiled once; it is locked
// until read returns.
//
// Cargo keeps the library of each package under the name of the package alone, and takes the one of
// another project for its own if that is newer than the sources. So library, if it is not empty, is
// compiled again unless this directory, with these contents, has made the module that is there.
func cargoBuild(ctx context.Context, cfg Config, cargo, rustc, library, what string, read func(modules []string) error) error {
	target, err := cached("rust", "-crates")
	if err != nil {
		return err
	}
	unlock, err := lock(target + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	if rustc, err = withoutPaths(rustc, target); err != nil {
		return err
	}
	profile := "release"
	args := []string{"build", what, "--target", rustTarget, "--target-dir", target, "--quiet", "--message-format=json-render-diagnostics"}
	if cfg.Debug {
		profile = "debug"
	} else {
		args = append(args, "--release")
	}
	made := func(string) error { return nil }
	if library != "" {
		if made, err = claim(filepath.Join(target, rustTarget, profile), library, cfg.Dir); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, cargo, args...)
	cmd.Dir = cfg.Dir
	cmd.Env = append(os.Environ(), "RUSTC="+rustc)
	var messages bytes.Buffer
	cmd.Stdout = &messages
	if err := run(ctx, cmd, cfg.Warnings); err != nil {
		return err
	}
	modules, err := artifacts(&messages, cfg.Dir)
	if err != nil {
		return err
	}
	for _, m := range modules {
		if err := made(m); err != nil {
			return err
		}
	}
	return read(modules)
}

// withoutPaths returns a compiler that names the sources of a package by the package in place of its
// directory, and lies in the directory target. The SDK, which all guests share, has the paths of the
// guest that compiled it first in its panics, and then the module of each guest has them. An argument
// of cargo would have the SDK compiled for each directory.
func withoutPaths(rustc, target string) (string, error) {
	if runtime.GOOS == "windows" {
		return rustc, nil
	}
	script := "#!/bin/sh\nexec '" + strings.ReplaceAll(rustc, "'", `'\''`) + `' ${CARGO_PKG_NAME:+"--remap-path-prefix=$CARGO_MANIFEST_DIR=$CARGO_PKG_NAME"} "$@"` + "\n"
	sum := sha256.Sum256([]byte(script))
	file := filepath.Join(target, "rustc-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", err
	}
	if err := write(file, []byte(script)); err != nil {
		return "", err
	}
	return file, os.Chmod(file, 0o755) // Cargo compiles all again if the time of modification changes.
}

// artifacts returns the modules that cargo says it has made of the package in dir.
func artifacts(messages io.Reader, dir string) (modules []string, err error) {
	for d := json.NewDecoder(messages); ; {
		var m struct {
			Reason       string   `json:"reason"`
			ManifestPath string   `json:"manifest_path"`
			Filenames    []string `json:"filenames"`
		}
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return modules, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the messages of cargo: %w", err)
		}
		if m.Reason != "compiler-artifact" || filepath.Dir(m.ManifestPath) != dir {
			continue
		}
		for _, file := range m.Filenames {
			if filepath.Ext(file) == ".wasm" {
				modules = append(modules, file)
			}
		}
	}
}

// claim removes the module of a library in a directory of cargo's unless it was made from dir with
// the contents that it has now. Call made with the module after it was built.
func claim(cargoDir, library, dir string) (made func(module string) error, err error) {
	sources, err := contents(dir)
	if err != nil {
		return nil, err
	}
	owner := filepath.Join(cargoDir, library+".owner")
	state := func(module string) (string, error) {
		b, err := os.ReadFile(module)
		return fmt.Sprintf("%s %x", sources, sha256.Sum256(b)), err
	}
	module := filepath.Join(cargoDir, library+".wasm")
	now, err := state(module)
	if before, _ := os.ReadFile(owner); err != nil || string(before) != now {
		for _, file := range []string{owner, module, filepath.Join(cargoDir, "deps", library+".wasm")} {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return func(module string) error {
		now, err := state(module)
		if err != nil {
			return err
		}
		return os.WriteFile(owner, []byte(now), 0o644)
	}, nil
}

// contents returns a sum of a directory's name and of its files, without those that tools keep in it.
func contents(dir string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, dir)
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && file != dir && (e.Name() == "target" || e.Name()[0] == '.'):
			return filepath.SkipDir
		case !e.Type().IsRegular() || filepath.Ext(file) == ".wasm":
			return nil
		}
		text, err := os.ReadFile(file)
		if err == nil {
			fmt.Fprintf(sum, "%s %x\n", file, sha256.Sum256(text))
		}
		return err
	})
	return hex.EncodeToString(sum.Sum(nil)), err
}

// RustExamples compiles the examples of the package in dir, which are of the type cdylib, and
// writes their modules into the directory to. Their metadata are those of the source. The error
// is that of [Compile].
func RustExamples(ctx context.Context, dir, to string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	cargo, rustc, err := rustToolchain(ctx, dir)
	if err != nil {
		return err
	}
	return cargoBuild(ctx, Config{Dir: dir}, cargo, rustc, "", "--examples", func(modules []string) error {
		for _, file := range modules {
			module, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if err := write(filepath.Join(to, filepath.Base(file)), module); err != nil {
				return err
			}
		}
		return nil
	})
}

// systemRust is the cargo and the rustc of the system.
var systemRust = [2]string{"/usr/bin/cargo", "/usr/bin/rustc"}

// rustToolchain returns the files of a cargo and a rustc that has the target. Those of PATH
// come first; a rustup without a toolchain or without the target gives way to the system's.
func rustToolchain(ctx context.Context, dir string) (cargo, rustc string, err error) {
	found := false
	for _, pair := range [][2]string{{"cargo", "rustc"}, systemRust} {
		cargo, err := exec.LookPath(pair[0])
		if err != nil {
			continue
		}
		rustc, err := exec.LookPath(pair[1])
		if err != nil {
			continue
		}
		found = true
		cmd := exec.CommandContext(ctx, rustc, "--print", "target-libdir", "--target", rustTarget)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			continue
		}
		if libraries, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "libcore-*.rlib")); len(libraries) != 0 {
			return cargo, rustc, nil
		}
	}
	if found {
		return "", "", &MissingToolError{"Rust", "rustc with the target " + rustTarget, "rustup target add " + rustTarget + " (Debian: apt install libstd-rust-dev-wasm32)"}
	}
	return "", "", &MissingToolError{"Rust", "cargo", "install Rust from https://rustup.rs (Debian: apt install cargo libstd-rust-dev-wasm32)"}
}

// rustLibrary returns the name of the library of the package in dir.
func rustLibrary(ctx context.Context, cargo, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, cargo, "metadata", "--no-deps", "--format-version", "1", "--offline")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return "", &CompileError{Dir: dir, Output: strings.TrimSpace(string(exit.Stderr))}
		}
		return "", err
	}
	var workspace struct {
		Packages []struct {
			ManifestPath string `json:"manifest_path"`
			Targets      []struct {
				Name       string   `json:"name"`
				CrateTypes []string `json:"crate_types"`
			} `json:"targets"`
		} `json:"packages"`
	}
	if err := json.Unmarshal(out, &workspace); err != nil {
		return "", fmt.Errorf("read cargo metadata: %w", err)
	}
	for _, p := range workspace.Packages {
		if filepath.Dir(p.ManifestPath) != dir {
			continue
		}
		for _, target := range p.Targets {
			if slices.Contains(target.CrateTypes, "cdylib") {
				return strings.ReplaceAll(target.Name, "-", "_"), nil
			}
		}
	}
	return "", errors.New(`the package has no library of the type cdylib: Cargo.toml needs [lib] and crate-type = ["cdylib"]`)
}
