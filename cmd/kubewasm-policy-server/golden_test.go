package main

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/jsonfields"
)

var addGolden = flag.String("golden", "", "make testdata/golden/next the set of the version `vX.Y`, and write what is read from files without a .json, before the tests")

// TestGoldenConfigurations reads files of sources and of verification: nothing is refused, and each member
// means what it did when the file was added. policies.yml and the file of guests have golden files in
// internal/testkit/schemas. Together the files have all members. What is in git stays:
// TestGoldenFilesStay of internal/testkit/layout.
func TestGoldenConfigurations(t *testing.T) {
	if *addGolden != "" {
		if err := os.Rename("testdata/golden/next", "testdata/golden/"+*addGolden); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/golden/*/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, error %v", len(files), err)
	}
	texts := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts += string(text)
		var now oci.Config
		if form, _, _ := strings.Cut(filepath.Base(file), "-"); strings.HasPrefix(form, "sources") {
			s, readErr := readSources(file)
			now.Registries, err = s.registries()
			err = errors.Join(readErr, err)
		} else {
			now.Trust = make([]oci.Trust, 1)
			now.Trust[0], err = readVerification(file)
		}
		if err != nil {
			t.Errorf("%s is refused: %v", file, err)
			continue
		}
		name := strings.TrimSuffix(file, ".yml") + ".json"
		text, err = os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) && *addGolden != "" {
			if text, err = json.MarshalIndent(now, "", " "); err == nil {
				err = os.WriteFile(name, append(text, '\n'), 0o644)
			}
		}
		if err != nil {
			t.Fatalf("%v: write it by -golden next", err)
		}
		var before oci.Config
		if err := configfile.JSON(text, &before); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, now); diff != "" {
			t.Errorf("%s (-before +now):\n%s", file, diff)
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[sources](), reflect.TypeFor[authority](), reflect.TypeFor[verification](), reflect.TypeFor[anyOf](), reflect.TypeFor[signature](), reflect.TypeFor[subject]()} {
		for _, f := range jsonfields.Of(of) {
			if !strings.Contains(texts, f.Name+":") {
				t.Errorf("no golden file has %s of a %s: add one to testdata/golden/next", f.Name, of)
			}
		}
	}
}
