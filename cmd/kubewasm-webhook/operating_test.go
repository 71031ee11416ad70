package main

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/admission/audit/auditmetrics"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities/capabilitymetrics"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/hookmetrics"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/hostmetrics"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
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

// TestOperatingListsEveryMetric holds that docs/operating.md has a row for each metric, with
// its labels and its help, and names no other.
func TestOperatingListsEveryMetric(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	description := regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: "([^"]*)"(?:, unit: "[^"]*")?, constLabels: \{\}, variableLabels: \{([^}]*)\}\}$`)
	text, known := textOf(t, "docs/operating.md"), map[string]bool{}
	for _, c := range []prometheus.Collector{hostmetrics.New(rt), ocimetrics.New(new(oci.Client)), admissionmetrics.New(), auditmetrics.New(), capabilitymetrics.New(new(capabilities.Provider)), admissionmetrics.NewCluster(new(clustercache.Cluster)), admissionmetrics.NewManager(new(manage.Manager)), hookmetrics.New(new(cgroup.State))} {
		descriptions := make(chan *prometheus.Desc, 100)
		c.Describe(descriptions)
		close(descriptions)
		for d := range descriptions {
			m := description.FindStringSubmatch(d.String())
			if m == nil {
				t.Fatalf("cannot read %s", d)
			}
			name, help, labels := m[1], m[2], strings.ReplaceAll(m[3], ",", ", ")
			known[name] = true
			if row := "| `" + name + "` | " + labels + " | " + strings.TrimSuffix(help, ".") + " |"; !strings.Contains(text, row+"\n") {
				t.Errorf("docs/operating.md has no row\n%s", row)
			}
		}
	}
	// The agent is a module of its own.
	metric := regexp.MustCompile(`(Name: |a\.count\(|a\.flag\(|a\.gauge\()"(kubewasm_agent_\w+)", (?:Help: )?"([^"]*)"(?:, "(\w+)")?`)
	for _, file := range []string{"agent.go", "server.go", "reload.go"} {
		for _, m := range metric.FindAllStringSubmatch(textOf(t, "cmd/kubewasm-agent/"+file), -1) {
			label := m[4]
			if m[1] == "a.gauge(" {
				label = "mode"
			}
			known[m[2]] = true
			if row := "| `" + m[2] + "` | " + label + " | " + strings.TrimSuffix(m[3], ".") + " |"; !strings.Contains(text, row+"\n") {
				t.Errorf("docs/operating.md has no row\n%s", row)
			}
		}
	}
	for _, name := range regexp.MustCompile(`\bkubewasm_[a-z_]+\b`).FindAllString(text, -1) {
		if !known[name] {
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
