package guestbuild

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kubewasm/kubewasm/guest/c"
)

// C is compiled by clang, and linked by lld: all files of a directory whose names end with .c.
// The lines of compile_flags.txt, a file that clangd reads too, are further arguments.
var C = &Language{Name: "c", Title: "C", is: func(name string) bool { return filepath.Ext(name) == ".c" }, compile: compileC}

func compileC(ctx context.Context, cfg Config, scratch string) ([]byte, error) {
	clang, err := clangPath()
	if err != nil {
		return nil, err
	}
	include := filepath.Join(scratch, "include")
	if err := c.WriteHeaders(include); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(globEscape.Replace(cfg.Dir), "*.c"))
	if err != nil {
		return nil, err
	}
	linked := filepath.Join(scratch, "linked.wasm")
	args := append([]string{"-I", include, "-o", linked}, CFlags(cfg.Debug)...)
	flags, err := os.ReadFile(filepath.Join(cfg.Dir, "compile_flags.txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(flags)) {
		if line = strings.TrimSpace(line); line != "" {
			args = append(args, line)
		}
	}
	for _, file := range files {
		args = append(args, filepath.Base(file)) // The compiler runs in the directory.
	}
	cmd := exec.CommandContext(ctx, clang, args...)
	cmd.Dir = cfg.Dir
	if err := run(ctx, cmd); err != nil {
		return nil, err
	}
	return os.ReadFile(linked)
}

// CFlags are the arguments for clang beside the headers and the names of files. With debug
// the module has the names of its functions and the lines of its source.
func CFlags(debug bool) []string {
	flags := []string{"--target=wasm32", "-std=gnu11", "-O2", "-nostdlib", "-ffreestanding", "-mbulk-memory", "-Wall", "-Wextra", "-Wno-unused-function", "-Wl,--no-entry"}
	if debug {
		return append(flags, "-g", "-fno-inline")
	}
	// The names of functions are a few kilobytes, and the stack of a trap has them.
	return append(flags, "-Wl,--strip-debug")
}

// clangPath returns the file of the compiler.
func clangPath() (string, error) {
	const get = "install clang and lld (Debian and Ubuntu: apt install clang lld; macOS: brew install llvm lld)"
	clang, err := exec.LookPath("clang")
	if err != nil {
		return "", &MissingToolError{"C", "clang", get}
	}
	if _, err := exec.LookPath("wasm-ld"); err != nil {
		return "", &MissingToolError{"C", "wasm-ld", get}
	}
	return clang, nil
}
