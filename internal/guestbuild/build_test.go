package guestbuild

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// A guest is built again after a change of any file in its module, and otherwise not.
func TestBuildAgain(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	write("go.mod", `module example.com/guest

go 1.26.0

require github.com/kubewasm/kubewasm v0.0.0

replace github.com/kubewasm/kubewasm => `+strconv.Quote(root))
	write("main.go", `package main

import _ "github.com/kubewasm/kubewasm/guest/admission"

func main() { println(number) }
`)
	write("number.go", "package main\n\nconst number = 1\n")
	build := func() string {
		t.Helper()
		file, err := Build(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		module, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(module)
	}
	first := build()
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	if build() != first {
		t.Error("the module has changed without its source")
	}
	write("number.go", "package main\n\nconst number = 22\n")
	if _, err := Build(t.Context(), dir); !errors.Is(err, ErrNoGo) {
		t.Errorf("changed source: got error %v, want that of a toolchain that is missing", err)
	}
	t.Setenv("PATH", path)
	second := build()
	if second == first {
		t.Error("the module is that of the source before the change")
	}
	file, err := Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if build() != second {
		t.Error("a module that was removed is built as another one")
	}
}
