// Package guests hands the modules of guests to tests, the same bytes to those of every
// Kubernetes minor.
package guests

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/minor"
)

// DirVariable is the environment variable that names the directory in which the modules of
// one run lie. The first test that needs a guest builds it there and writes its SHA-256
// beside it; the tests of all other minors run that file, and fail if it is another by then.
// Without the variable a test builds its own.
const DirVariable = "KUBEWASM_E2E_GUESTS"

// File returns the module of the guest in dir, a package main or a .wasm file, and notes in
// the test's attributes which one it is: "guest", and the name and the SHA-256 of it.
func File(t testing.TB, dir string) string {
	t.Helper()
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	name, err := filepath.Rel(filepath.Join(minor.Dir(), "../../.."), dir)
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.ToSlash(name)
	file, err := build(t, dir, name)
	if err != nil {
		t.Fatalf("guest %s: %v", name, err)
	}
	t.Attr("guest", name+" "+file.digest)
	if os.Getenv(DirVariable) == "" {
		listed(t, name)
	}
	return file.path
}

// listed fails the test of a guest that docs/compatibility.md does not list, which a run of all
// minors would find half an hour later.
func listed(t testing.TB, name string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(minor.Dir(), "../../../docs/compatibility.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "- `"+name+"`:") {
		t.Errorf("docs/compatibility.md does not list the guest %s: run make kubernetes, or add the line and the minors whose tests run it", name)
	}
}

// module is a file and its SHA-256, in hexadecimal.
type module struct{ path, digest string }

// build returns the module of the run if there is one, and builds it otherwise.
func build(t testing.TB, dir, name string) (module, error) {
	kept := os.Getenv(DirVariable)
	own := filepath.Join(kept, strings.ReplaceAll(strings.TrimSuffix(name, ".wasm"), "/", "-")+".wasm")
	if kept != "" {
		recorded, err := os.ReadFile(own + ".sha256")
		if !errors.Is(err, fs.ErrNotExist) {
			return check(own, string(recorded), err)
		}
	}
	built := dir
	if !strings.HasSuffix(dir, ".wasm") {
		var err error
		if built, err = guestbuild.Build(t.Context(), dir); err != nil {
			return module{}, err
		}
	}
	data, err := os.ReadFile(built)
	if err != nil || kept == "" {
		return module{built, sum(data)}, err
	}
	// Tests of several packages may be here at the same time, with the same bytes.
	if err := errors.Join(write(own, data), write(own+".sha256", []byte(sum(data)))); err != nil {
		return module{}, err
	}
	return module{own, sum(data)}, nil
}

// check holds that a module of the run is still the one that was built.
func check(file, recorded string, err error) (module, error) {
	if err != nil {
		return module{}, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return module{}, err
	}
	if got := sum(data); got != recorded {
		return module{}, fmt.Errorf("the SHA-256 of %s is %s, and was %s when it was built", file, got, recorded)
	}
	return module{file, recorded}, nil
}

// write puts a file there at once.
func write(file string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), "*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
