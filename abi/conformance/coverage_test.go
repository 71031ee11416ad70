package conformance_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tetratelabs/wazero"

	"github.com/kubewasm/kubewasm/abi"
)

// specified returns the names in the tables of the specification: the exports of
// section 2 under "", the imports of sections 6 and 9 under their modules.
func specified(t *testing.T) map[string][]string {
	t.Helper()
	spec, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	heading, row := regexp.MustCompile("^(?:### .*: module|\\*\\*Imports\\*\\* of the module) `(.+)`:?$"), regexp.MustCompile("^(?:\\| \\d+ )?\\| `(\\w+)` \\|")
	names := map[string][]string{}
	section, module := "", ""
	for line := range strings.Lines(string(spec)) {
		line = strings.TrimSuffix(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title[:1]
		}
		if m := heading.FindStringSubmatch(line); m != nil {
			module = m[1]
		}
		if m := row.FindStringSubmatch(line); m != nil && (section == "2" || section == "6" || section == "9") {
			names[module] = append(names[module], m[1])
		}
	}
	for _, list := range names {
		slices.Sort(list)
	}
	return names
}

// TestEverythingIsCovered holds that the guests in C and in Go together implement
// every function and import every host function that the specification has.
func TestEverythingIsCovered(t *testing.T) {
	want := specified(t)
	for f := range abi.Function(64) {
		if name := f.Signature().Name; name != "" && !slices.Contains(want[""], name) {
			t.Errorf("the specification does not have %s", name)
		}
	}
	rt := wazero.NewRuntimeWithConfig(t.Context(), wazero.NewRuntimeConfigInterpreter()) // Nothing is called.
	defer rt.Close(t.Context())
	for _, language := range languages {
		if language.guests != nil {
			continue
		}
		record(t, language.name, func(t *testing.T) {
			got := map[string]map[string]bool{"": {}}
			for _, name := range []string{"scheduler", "queue", "named", "cycle", "group", "admission", "hook", "service"} {
				module, err := os.ReadFile(language.guest(t, name))
				if err != nil {
					t.Fatal(err)
				}
				compiled, err := rt.CompileModule(t.Context(), module)
				if err != nil {
					t.Fatal(err)
				}
				for export := range compiled.ExportedFunctions() {
					if slices.Contains(want[""], export) {
						got[""][export] = true
					}
				}
				for _, f := range compiled.ImportedFunctions() {
					module, function, _ := f.Import()
					if got[module] == nil {
						got[module] = map[string]bool{}
					}
					got[module][function] = true
				}
			}
			for module, names := range want {
				if diff := cmp.Diff(names, slices.Sorted(maps.Keys(got[module]))); diff != "" {
					t.Errorf("module %q (-specified +covered):\n%s", module, diff)
				}
			}
		})
	}
}
