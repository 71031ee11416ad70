package guestbuild

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/guest/c"
	"github.com/kubewasm/kubewasm/internal/nearest"
)

// C is compiled by clang, and linked by lld: all files of a directory whose names end with .c.
// The lines of compile_flags.txt, a file that clangd reads too, are further arguments.
// The metadata are directives in comments of these and of headers beside them.
var C = &Language{
	Name: "c", Title: "C", is: func(name string) bool { return filepath.Ext(name) == ".c" },
	compile: compileC, sources: []string{"*.c", "*.h"}, sdk: modulePath + "/guest/c", uses: "<kubewasm.h>",
	registers: "the module exports no function of an extension point: begin one with a macro of kubewasm.h such as KW_FILTER, KW_VALIDATE or KW_HOOK",
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
		err := run(ctx, cmd, cfg.Warnings)
		if compile := (*CompileError)(nil); errors.As(err, &compile) {
			compile.Output += hintsC(compile.Output, include)
		}
		return err
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

var (
	libcRE  = regexp.MustCompile(`'(?:std\w+|string|math|assert|errno|time)\.h' file not found|function '(malloc|calloc|realloc|free|v?s?n?printf|puts|exit|abort|mem\w+|str\w+)'`)
	ownRE   = regexp.MustCompile(`'[\w/]*kubewasm\.h' file not found`)
	macroRE = regexp.MustCompile(`(?m)^(KW_[A-Z_]+)\(`)
)

// hintsC returns lines about mistakes of those who know C and not its form here, for the output of
// the compiler.
func hintsC(output, include string) (hints string) {
	hint := func(text string) { hints += "\nhint: " + text }
	if libcRE.MatchString(output) {
		hint("a guest has no libc: kw_take gives memory, kw_text puts texts together, kw_equal compares them, kw_log writes to the log; docs/c.md says how to link one")
	}
	if ownRE.MatchString(output) {
		hint("the header of the SDK is #include <kubewasm.h>, and those of the Kubernetes API are like #include <kubewasm/apps/apps.h>")
	}
	header, err := os.ReadFile(filepath.Join(include, "kubewasm.h"))
	if err != nil {
		return hints
	}
	var known []string
	for _, m := range defineRE.FindAllSubmatch(header, -1) {
		known = append(known, string(m[1]))
	}
	for _, m := range macroRE.FindAllStringSubmatch(output, -1) {
		if meant := nearest.Name(m[1], known); meant != "" && !slices.Contains(known, m[1]) {
			hint("there is no macro " + m[1] + "; did you mean " + meant + "?")
			break
		}
	}
	return hints
}

var defineRE = regexp.MustCompile(`(?m)^#define (KW_[A-Z_]+)\(`)

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
	flags := []string{"--target=wasm32", "-std=gnu11", "-O2", "-nostdlib", "-ffreestanding", "-mbulk-memory", "-Wall", "-Wextra", "-Werror=return-type", "-Werror=implicit-function-declaration", "-Werror=implicit-int", "-Wno-unused-function", "-Wno-unused-parameter", "-Wno-unused-command-line-argument", "-Wl,--no-entry"}
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
