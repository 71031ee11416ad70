package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestNewPluginsInOtherLanguages runs the commands that kubewasm new prints, for each template
// in each language but Go.
func TestNewPluginsInOtherLanguages(t *testing.T) {
	languages.Slow(t)
	// What is left of the builds goes away with the test.
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for name, value := range map[string]string{"OPT_LEVEL": "0", "LTO": "off", "CODEGEN_UNITS": "4", "STRIP": "symbols"} {
		t.Setenv("CARGO_PROFILE_RELEASE_"+name, value)
	}
	for _, language := range directories("templates") {
		if language == guestbuild.Go.Name {
			continue // TestNewPluginsWork.
		}
		kinds := directories("templates/" + language)
		if diff := cmp.Diff(directories("templates/go"), kinds); diff != "" {
			t.Errorf("kinds in %s (-Go +%s):\n%s", language, language, diff)
		}
		// All kinds come to the same directory, whose crate of the SDK is compiled once.
		dir := filepath.Join(t.TempDir(), "my-plugin")
		for _, kind := range kinds {
			t.Run(language+" "+kind, func(t *testing.T) {
				old, err := os.ReadDir(dir)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				for _, e := range old {
					if e.Name() == "vendor" {
						continue
					}
					if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
						t.Fatal(err)
					}
				}
				code, printed, stderr := kubewasm(t, "new", "--kind", kind, "--lang", language, dir)
				if code != 0 {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				t.Chdir(dir)
				_, commands, _ := strings.Cut(printed, "\nNext:\n\n")
				var ran []string
				for line := range strings.Lines(commands) {
					line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
					args := strings.Fields(line)
					if args[0] != "kubewasm" {
						continue // To change the directory, and to fetch a compiler that CI has.
					}
					code, out, stderr := kubewasm(t, args[1:]...)
					if args[1] == "build" && strings.Contains(stderr, "which guests in ") && os.Getenv("CI") == "" {
						t.Skip(stderr)
					}
					// A policy that denies an object of objects.yaml is no failure of the command.
					if code != 0 && (code != 2 || kind != "admission" || args[1] != "run") {
						t.Fatalf("%s: exit code %d: %s%s", line, code, out, stderr)
					}
					ran = append(ran, args[1])
					if args[1] == "run" && !strings.Contains(out, map[string]string{
						"scheduler": `node is in zone "b", not in "a"`, "admission": "every Pod must have it", "conversion": `"schedule":"@daily"`,
						"hook": "cpu_shares=2", "service": "cluster: b",
					}[kind]) {
						t.Errorf("%s printed %s", line, out)
					}
				}
				want := []string{"build", "test", "inspect", "run"}
				if kind == "service" {
					want = append([]string{"gen"}, want...)
				}
				if diff := cmp.Diff(want, ran); diff != "" {
					t.Errorf("commands (-want +got):\n%s", diff)
				}
				if files, _ := filepath.Glob("*.wasm"); !cmp.Equal(files, []string{"my-plugin.wasm"}) {
					t.Errorf("modules: %q", files)
				}
			})
		}
	}
}

// TestNewPluginsInRustHaveNoPaths holds that the module of a plugin in Rust is the same in each
// directory, whichever project has compiled the SDK.
func TestNewPluginsInRustHaveNoPaths(t *testing.T) {
	languages.Slow(t)
	here, there := begun(t, "scheduler", "rust"), filepath.Join(t.TempDir(), "zone")
	if err := os.CopyFS(there, os.DirFS(here)); err != nil {
		t.Fatal(err)
	}
	var first []byte
	for n, dir := range []string{here, there, here} {
		module, err := os.ReadFile(languages.Build(t, dir))
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = module
		}
		if !bytes.Equal(first, module) {
			t.Errorf("build %d is another module than the first", n)
		}
		if bytes.Contains(module, []byte(filepath.Dir(dir))) {
			t.Errorf("build %d has the name of its directory", n)
		}
	}
}
