package guestbuild

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/guest/c"
)

// C is compiled by clang, and linked by lld: all files of a directory whose names end with .c.
// The lines of compile_flags.txt, a file that clangd reads too, are further arguments.
// The metadata are directives in comments of these and of headers beside them.
var C = &Language{
	Name: "c", Title: "C", is: func(name string) bool { return filepath.Ext(name) == ".c" },
	compile: compileC, sources: []string{"*.c", "*.h"}, sdk: modulePath + "/guest/c", uses: "<kubewasm.h>",
}

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
	flags := CFlags(cfg.Debug)
	text, err := os.ReadFile(filepath.Join(cfg.Dir, "compile_flags.txt"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			flags = append(flags, line)
		}
	}
	clangIn := func(args ...string) error {
		cmd := exec.CommandContext(ctx, clang, append(slices.Clone(flags), args...)...)
		cmd.Dir = cfg.Dir
		return run(ctx, cmd, cfg.Warnings)
	}
	// Linked in a step of its own: a clang that is told to optimize runs wasm-opt afterwards,
	// where there is one, which drops the names of functions.
	linked := filepath.Join(scratch, "linked.wasm")
	link := []string{"-O0", "-o", linked}
	for _, file := range files {
		object := filepath.Join(scratch, filepath.Base(file)+".o")
		if err := clangIn("-I", include, "-c", "-o", object, argument(filepath.Base(file))); err != nil {
			return nil, err
		}
		link = append(link, object)
	}
	if err := clangIn(link...); err != nil {
		return nil, err
	}
	return os.ReadFile(linked)
}

// argument returns the name of a file as an argument of clang that is neither a flag nor a
// file with arguments.
func argument(file string) string {
	if file[0] == '-' || file[0] == '@' {
		return "./" + file
	}
	return file
}

// CFlags are the arguments for clang beside the headers and the names of files. Without a return a
// function of a guest would answer with what happens to be there, mostly 0, which allows. With debug
// the module has the names of its functions and the lines of its source.
func CFlags(debug bool) []string {
	flags := []string{"--target=wasm32", "-std=gnu11", "-O2", "-nostdlib", "-ffreestanding", "-mbulk-memory", "-Wall", "-Wextra", "-Werror=return-type", "-Werror=implicit-function-declaration", "-Werror=implicit-int", "-Wno-unused-function", "-Wno-unused-command-line-argument", "-Wl,--no-entry"}
	if debug {
		return append(flags, "-g", "-fno-inline")
	}
	return flags // The names of functions, which stacks have, are a few kilobytes.
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
