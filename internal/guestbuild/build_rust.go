package guestbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Rust is compiled by cargo for wasm32-unknown-unknown. The package has a library of the
// type cdylib. The metadata are a static in the section "kubewasm", which the SDK's macros write.
var Rust = &Language{Name: "rust", Title: "Rust", is: func(name string) bool { return name == "Cargo.toml" }, compile: compileRust}

const rustTarget = "wasm32-unknown-unknown"

func compileRust(ctx context.Context, cfg Config, scratch string) ([]byte, error) {
	cargo, rustc, err := rustToolchain(ctx, cfg.Dir)
	if err != nil {
		return nil, err
	}
	library, err := rustLibrary(ctx, cargo, cfg.Dir)
	if err != nil {
		return nil, err
	}
	target := filepath.Join(scratch, "target")
	args := []string{"build", "--lib", "--target", rustTarget, "--target-dir", target, "--quiet"}
	profile := "debug"
	if !cfg.Debug {
		args, profile = append(args, "--release"), "release"
	}
	cmd := exec.CommandContext(ctx, cargo, args...)
	cmd.Dir = cfg.Dir
	cmd.Env = append(os.Environ(), "RUSTC="+rustc)
	if err := run(ctx, cmd); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(target, rustTarget, profile, library+".wasm"))
}

// rustToolchain returns the files of a cargo and a rustc that has the target. Those of PATH
// come first; a rustup without a toolchain or without the target gives way to the system's.
func rustToolchain(ctx context.Context, dir string) (cargo, rustc string, err error) {
	found := false
	for _, pair := range [][2]string{{"cargo", "rustc"}, {"/usr/bin/cargo", "/usr/bin/rustc"}} {
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
