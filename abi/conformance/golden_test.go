package conformance_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/conformance"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

var addGolden = flag.String("golden", "", "write testdata/golden/`name` from the guests of now, before the tests")

// goldenBytes is the most that a module of a set has.
const goldenBytes = 100 << 10

// checks are those of each guest, by its name.
var checks = map[string][]check{
	"scheduler": {schedulerCases, declaredCases},
	"queue":     {queueCases},
	"named":     {namedCases},
	"cycle":     {cycleCases},
	"group":     {groupCases},
	"admission": {admissionCases, conversionCases},
	"hook":      {hookCases},
	"service":   {serviceCases},
}

// goldenSet is golden.yaml, the list of a directory of testdata/golden: guests that one version of the SDKs
// made, cases.yaml of that day, and the sources. TestGoldenFilesStay of internal/testkit/layout keeps what is in git.
type goldenSet struct {
	// ABI is the version of the ABI, Commit the one that has the SDKs, and Tools the compilers.
	ABI     int            `json:"abi"`
	Commit  string         `json:"commit"`
	Tools   []string       `json:"tools"`
	Modules []goldenModule `json:"modules"`
}

type goldenModule struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	SDK    string `json:"sdk,omitempty"`
}

// module describes a module of a set.
func module(t *testing.T, file string, text []byte) (goldenModule, int) {
	t.Helper()
	m := goldenModule{File: file, SHA256: fmt.Sprintf("%x", sha256.Sum256(text))}
	about, err := host.Inspect(text)
	if err != nil {
		t.Fatal(err)
	}
	section := about.Custom(abi.MetadataSection)
	if section == nil {
		return m, 0
	}
	data, err := metadata.Parse(section)
	if err != nil {
		t.Fatal(err)
	}
	m.SDK = data.SDK
	return m, data.ABI
}

// TestGolden has the guests of each set answer the cases of their day on the host of today.
func TestGolden(t *testing.T) {
	const root = "testdata/golden"
	if *addGolden != "" {
		writeGolden(t, filepath.Join(root, *addGolden))
	}
	sets, err := filepath.Glob(root + "/*")
	if err != nil || len(sets) == 0 {
		t.Fatalf("%d sets, error %v", len(sets), err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	for _, set := range sets {
		text, err := os.ReadFile(set + "/golden.yaml")
		if err != nil {
			t.Fatal(err)
		}
		var want goldenSet
		if err := yaml.UnmarshalStrict(text, &want); err != nil {
			t.Fatal(err)
		}
		cases, err := os.ReadFile(set + "/cases.yaml")
		if err != nil {
			t.Fatal(err)
		}
		suite := readCases(t, cases)
		var found []goldenModule
		files, err := filepath.Glob(set + "/*/*.wasm")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			of := path.Base(path.Dir(file)) + "/" + path.Base(file)
			m, version := module(t, of, text)
			if found = append(found, m); version != 0 && version != want.ABI {
				t.Errorf("%s has version %d of the ABI, want %d", file, version, want.ABI)
			}
			t.Run(path.Base(set)+"/"+strings.TrimSuffix(of, ".wasm"), func(t *testing.T) {
				of := checks[strings.TrimSuffix(path.Base(file), ".wasm")]
				if len(of) == 0 {
					t.Error("no check knows it")
				}
				for _, check := range of {
					check(t, rt, file, suite)
				}
			})
		}
		if diff := cmp.Diff(want.Modules, found); diff != "" {
			t.Errorf("%s (-listed +found):\n%s", set, diff)
		}
	}
}

// writeGolden writes a new set. Guests beyond the bound are left out, and so are those in Go, which
// have megabytes: a release has them as modules of its registry.
func writeGolden(t *testing.T, dir string) {
	if _, err := os.Stat(dir); err == nil {
		t.Fatalf("%s exists, and sets do not change", dir)
	}
	put := func(name string, text []byte) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	output := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		line, _, _ := bytes.Cut(out, []byte("\n"))
		return string(line)
	}
	set := goldenSet{ABI: 1, Commit: output("git", "rev-parse", "HEAD"), Tools: []string{
		output("clang", "--version"), output("rustc", "--version"), "asc " + output("asc", "--version"), output("wat2wasm", "--version"),
	}}
	for _, l := range languages {
		if l.name == "Go" {
			continue
		}
		for name := range checks {
			if l.guests != nil && !slices.Contains(l.guests, name) {
				continue
			}
			text, err := os.ReadFile(l.guest(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > goldenBytes {
				t.Logf("%s in %s has %d bytes and is left out", name, l.name, len(text))
				continue
			}
			file := strings.ToLower(strings.ReplaceAll(l.name, " ", "-")) + "/" + name + ".wasm"
			m, _ := module(t, file, text)
			set.Modules = append(set.Modules, m)
			put(file, text)
		}
	}
	slices.SortFunc(set.Modules, func(a, b goldenModule) int { return strings.Compare(a.File, b.File) })
	text, err := yaml.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	put("golden.yaml", text)
	put("cases.yaml", conformance.Cases())
	// No tool takes a source with this name for one of the project's.
	err = fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name == "testdata/golden" {
			return fs.SkipDir
		}
		if !slices.Contains([]string{".c", ".h", ".rs", ".ts", ".wat"}, path.Ext(name)) || d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil {
			put("source/"+name+".txt", text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
