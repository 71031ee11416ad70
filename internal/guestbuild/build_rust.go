package guestbuild

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/guest/rust"
)

// Rust is compiled by cargo for wasm32-unknown-unknown. The package has a library of the
// type cdylib. The metadata are a static in the section "kubewasm", which the SDK's macros write.
var Rust = &Language{Name: "rust", Title: "Rust", is: func(name string) bool { return name == "Cargo.toml" }, compile: compileRust}

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
	profile := "release"
	if cfg.Debug {
		profile = "debug"
	}
	var module []byte
	err = cargoBuild(ctx, cfg.Dir, cargo, rustc, profile, "--lib", func(modules string) error {
		module, err = os.ReadFile(filepath.Join(modules, library+".wasm"))
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

// cargoBuild compiles what of the package in dir is chosen, and calls read with the directory
// that has the modules. All guests share one directory of cargo, so that the SDK is compiled
// once; it is locked until read returns, since two guests may have the same name.
func cargoBuild(ctx context.Context, dir, cargo, rustc, profile, what string, read func(modules string) error) error {
	target, err := cached("rust", "-target")
	if err != nil {
		return err
	}
	unlock, err := lock(target + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	args := []string{"build", what, "--target", rustTarget, "--target-dir", target, "--quiet"}
	if profile == "release" {
		args = append(args, "--release")
	}
	cmd := exec.CommandContext(ctx, cargo, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RUSTC="+rustc)
	if err := run(ctx, cmd); err != nil {
		return err
	}
	modules := filepath.Join(target, rustTarget, profile)
	if what == "--examples" {
		modules = filepath.Join(modules, "examples")
	}
	return read(modules)
}

// hashed is the name under which cargo keeps a module beside the one that it is called by.
var hashed = regexp.MustCompile(`-[0-9a-f]{16}\.wasm$`)

// RustExamples compiles the examples of the package in dir, which are of the type cdylib, and
// writes their modules into the directory to. Their metadata are those of the source. The error
// is that of [Compile].
func RustExamples(ctx context.Context, dir, to string) error {
	cargo, rustc, err := rustToolchain(ctx, dir)
	if err != nil {
		return err
	}
	return cargoBuild(ctx, dir, cargo, rustc, "release", "--examples", func(modules string) error {
		files, err := filepath.Glob(filepath.Join(modules, "*.wasm"))
		if err != nil {
			return err
		}
		for _, file := range files {
			if hashed.MatchString(file) {
				continue
			}
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
