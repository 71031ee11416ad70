package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/metricspage"
)

// textOf returns the text of a file, named from the root.
func textOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestOperatingNamesMetrics holds that docs/operating.md names no metric that is not in
// docs/metrics.md.
func TestOperatingNamesMetrics(t *testing.T) {
	known, err := metricspage.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\bkubewasm_[a-z_]+\b`).FindAllString(textOf(t, "docs/operating.md"), -1) {
		if _, ok := known[name]; !ok {
			t.Errorf("docs/operating.md names %s, which is no metric", name)
		}
	}
}

// TestOperatingListsEverySetting holds that docs/operating.md has a row for each member of a
// plugin's configuration and for each limit.
func TestOperatingListsEverySetting(t *testing.T) {
	text := textOf(t, "docs/operating.md")
	for _, of := range []reflect.Type{reflect.TypeFor[host.Config](), reflect.TypeFor[host.ModuleConfig](), reflect.TypeFor[host.Limits](), reflect.TypeFor[capabilities.Scope](), reflect.TypeFor[rego.Config]()} {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "-" && !strings.Contains(text, "\n| `"+name+"` | ") {
				t.Errorf("docs/operating.md has no row for %s of %s", name, of)
			}
		}
	}
}
