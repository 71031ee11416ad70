// Package metricspage writes docs/metrics.md, and holds the programs to it. The test of each program
// hands over the registry that its /metrics serves:
//
//	metricspage.Check(t, "agent", registry)
//
// With KUBEWASM_WRITE_METRICS=1 Check writes the rows of the program in place of comparing them.
package metricspage

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// Metric is a row of the page.
type Metric struct {
	Name string
	// Type is counter, gauge or histogram.
	Type string
	// Labels are sorted.
	Labels []string
	// Programs are the programs that have the metric, sorted.
	Programs []string
	Help     string
}

// root returns the path of a file, named from the root of the repository.
func root(name string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../../..", name)
}

// page is the path of the page.
const page = "docs/metrics.md"

const head = `# Metrics

<!-- Written by make generate from the registries of the programs. -->

Every metric of the programs beside those of Go, of the process and, in the scheduler, of kube-scheduler. [operating.md](operating.md#metrics) says what to watch and why; dashboards and alerts are in [charts/kubewasm/files](../charts/kubewasm/files).

A program of your own has them from the packages hostmetrics, ocimetrics, admissionmetrics, auditmetrics, capabilitymetrics and hookmetrics. Histograms have classic buckets and native ones.
`

// groups are the sections of the page, by the beginnings of names. The longest applies.
var groups = []struct{ prefix, title string }{
	{"kubewasm_", "Plugins, in every program"},
	{"kubewasm_oci_", "Modules from registries"},
	{"kubewasm_admission_", "Policies"},
	{"kubewasm_audit_", "Audits"},
	{"kubewasm_hooks_", "Hooks"},
	{"kubewasm_agent_", "Node agent"},
	{"kubewasm_controller_", "Controller of declared plugins"},
	{"kubewarden_", "Kubewarden's metrics"},
}

// ours reports whether a metric belongs on the page.
func ours(name string) bool { return group(name) >= 0 }

func group(name string) int {
	found := -1
	for i, g := range groups {
		if strings.HasPrefix(name, g.prefix) {
			found = i
		}
	}
	return found
}

var row = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([^|]*) \\| ([^|]+) \\| ([^|]*) \\|$")

func words(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// Read returns the rows of the page, by their names.
func Read() (map[string]Metric, error) {
	text, err := os.ReadFile(root(page))
	if err != nil {
		return nil, err
	}
	metrics := map[string]Metric{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		metrics[m[1]] = Metric{Name: m[1], Type: m[2], Labels: words(m[3]), Programs: words(m[4]), Help: m[5]}
	}
	return metrics, nil
}

// format returns the text of the page.
func format(metrics map[string]Metric) string {
	var text strings.Builder
	text.WriteString(head)
	for i, g := range groups {
		var rows []Metric
		for _, name := range slices.Sorted(maps.Keys(metrics)) {
			if group(name) == i {
				rows = append(rows, metrics[name])
			}
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&text, "\n## %s\n\n| Metric | Type | Labels | Programs | Help |\n|---|---|---|---|---|\n", g.title)
		for _, m := range rows {
			fmt.Fprintf(&text, "| `%s` | %s | %s | %s | %s |\n", m.Name, m.Type, strings.Join(m.Labels, ", "), strings.Join(m.Programs, ", "), m.Help)
		}
	}
	return text.String()
}

// Registry is a registry of a program.
type Registry interface {
	prometheus.Gatherer
	prometheus.Collector
}

// ofTargets are labels that Prometheus adds in a cluster. A metric's own label of that name becomes
// exported_….
var ofTargets = []string{"job", "instance", "namespace", "pod", "container", "service", "endpoint", "node"}

// Check compares the page with the metrics of a program, and these with Prometheus's conventions.
// The program has worked, so that the histograms and gauges have series; gauges are those that have
// none nevertheless. It returns the number of series of a scrape.
func Check(t testing.TB, program string, registry Registry, gauges ...string) (series int) {
	t.Helper()
	got, series := read(t, registry, gauges)
	var families []*dto.MetricFamily
	for _, m := range got {
		m.Programs = []string{program}
		got[m.Name] = m
		if strings.HasPrefix(m.Name, "kubewarden_") {
			continue // The names are Kubewarden's.
		}
		family := &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: dto.MetricType(dto.MetricType_value[strings.ToUpper(m.Type)]).Enum(), Metric: []*dto.Metric{{}}}
		for _, label := range m.Labels {
			family.Metric[0].Label = append(family.Metric[0].Label, &dto.LabelPair{Name: &label})
		}
		families = append(families, family)
		for _, label := range m.Labels {
			if slices.Contains(ofTargets, label) {
				t.Errorf("%s has the label %s, which Prometheus sets itself", m.Name, label)
			}
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	all, err := Read()
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if os.Getenv("KUBEWASM_WRITE_METRICS") != "" {
		write(t, all, program, got)
		return series
	}
	want := map[string]Metric{}
	for name, m := range all {
		if slices.Contains(m.Programs, program) {
			m.Programs = []string{program}
			want[name] = m
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is out of date: run make generate (-page +%s):\n%s", page, program, diff)
	}
	if text, err := os.ReadFile(root(page)); err != nil || string(text) != format(all) {
		t.Errorf("%s is not as make generate writes it: %v", page, err)
	}
	return series
}

// write puts the metrics of a program on the page.
func write(t testing.TB, all map[string]Metric, program string, got map[string]Metric) {
	t.Helper()
	if all == nil {
		all = map[string]Metric{}
	}
	for name, m := range all {
		m.Programs = slices.DeleteFunc(m.Programs, func(p string) bool { return p == program })
		if all[name] = m; len(m.Programs) == 0 {
			delete(all, name)
		}
	}
	for name, m := range got {
		if other, ok := all[name]; ok {
			m.Programs = append(m.Programs, other.Programs...)
			slices.Sort(m.Programs)
		}
		all[name] = m
	}
	if err := os.WriteFile(root(page), []byte(format(all)), 0o644); err != nil {
		t.Fatal(err)
	}
}

var description = regexp.MustCompile(`^Desc\{fqName: "(\w+)", help: ("(?:[^"\\]|\\.)*")(?:, unit: "[^"]*")?, constLabels: \{(.*)\}, variableLabels: \{([^}]*)\}\}$`)

// read returns the metrics of a registry by their names, and the number of series of a scrape.
func read(t testing.TB, registry Registry, gauges []string) (metrics map[string]Metric, series int) {
	t.Helper()
	metrics = map[string]Metric{}
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		registry.Describe(described)
	}()
	for d := range described {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("cannot read %s", d)
			continue
		}
		if !ours(m[1]) {
			continue
		}
		help, err := strconv.Unquote(m[2])
		if err != nil {
			t.Errorf("%s: %v", d, err)
		}
		labels := words(m[4])
		for _, pair := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, pair[1])
		}
		slices.Sort(labels)
		if before, ok := metrics[m[1]]; ok && (before.Help != shown(help) || !slices.Equal(before.Labels, labels)) {
			t.Errorf("%s has the labels %q, and %q elsewhere", m[1], labels, before.Labels)
		}
		metrics[m[1]] = Metric{Name: m[1], Labels: labels, Help: shown(help)}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !ours(f.GetName()) {
			continue
		}
		m, isDescribed := metrics[f.GetName()]
		m.Name, m.Type, m.Help = f.GetName(), strings.ToLower(f.GetType().String()), shown(f.GetHelp())
		for _, s := range f.Metric {
			series += Series(s)
			for _, l := range s.Label {
				if !isDescribed && !slices.Contains(m.Labels, l.GetName()) { // OpenTelemetry describes nothing.
					m.Labels = append(m.Labels, l.GetName())
				}
			}
		}
		slices.Sort(m.Labels)
		metrics[m.Name] = m
	}
	for name, m := range metrics {
		switch {
		case m.Type != "":
		case slices.Contains(gauges, name):
			m.Type = "gauge"
		case strings.HasSuffix(name, "_total"):
			m.Type = "counter"
		default:
			t.Errorf("%s has no series: the test must make one, or name it as a gauge", name)
		}
		metrics[name] = m
	}
	return metrics, series
}

// shown returns a help as a cell of a table.
func shown(help string) string { return strings.TrimSuffix(strings.ReplaceAll(help, "|", "or"), ".") }

// Series returns the number of series that Prometheus makes of a metric in the text format.
func Series(m *dto.Metric) int {
	switch {
	case m.Histogram != nil:
		return len(m.Histogram.Bucket) + 3 // The bucket of the rest, the sum and the count.
	case m.Summary != nil:
		return len(m.Summary.Quantile) + 2
	}
	return 1
}
