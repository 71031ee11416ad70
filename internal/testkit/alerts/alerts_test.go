package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/internal/testkit/metricspage"
)

// ofTargets are the labels that Prometheus adds to the series of a target.
var ofTargets = []string{"job", "instance", "namespace", "pod"}

// ofOthers are the metrics that are not kubewasm's: of Prometheus itself, and of its client.
var ofOthers = []string{"up", "process_resident_memory_bytes"}

var promql = parser.NewParser(parser.Options{})

// checker checks queries against docs/metrics.md.
type checker struct {
	metrics map[string]metricspage.Metric
	// program is the program that has the metrics, empty for any.
	program string
}

func newChecker(t *testing.T, program string) *checker {
	t.Helper()
	metrics, err := metricspage.Read()
	if err != nil {
		t.Fatal(err)
	}
	return &checker{metrics, program}
}

// labels returns the labels that the series of a name in a query have.
func (c *checker) labels(name string) ([]string, error) {
	if slices.Contains(ofOthers, name) {
		return ofTargets, nil
	}
	m, ok := c.metrics[name]
	labels := ofTargets
	for _, suffix := range []string{"_bucket", "_count", "_sum"} {
		if base, cut := strings.CutSuffix(name, suffix); cut && !ok {
			if m = c.metrics[base]; m.Type == "histogram" {
				ok = true
				if suffix == "_bucket" {
					labels = append([]string{"le"}, labels...)
				}
				break
			}
		}
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("there is no metric %s", name)
	case c.program != "" && !slices.Contains(m.Programs, c.program):
		return nil, fmt.Errorf("the %s has no metric %s", c.program, name)
	}
	return append(slices.Clone(labels), m.Labels...), nil
}

// expr returns the labels of the result of an expression, and an error if it has a metric or a label
// that does not exist.
func (c *checker) expr(e parser.Node) (labels []string, err error) {
	has := func(labels, of []string) error {
		for _, l := range labels {
			if !slices.Contains(of, l) {
				return fmt.Errorf("%s: there is no label %s, want one of %s", e, l, strings.Join(of, ", "))
			}
		}
		return nil
	}
	switch e := e.(type) {
	case *parser.VectorSelector:
		if labels, err = c.labels(e.Name); err != nil {
			return nil, err
		}
		for _, m := range e.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				if err := has([]string{m.Name}, labels); err != nil {
					return nil, err
				}
			}
		}
		return labels, nil
	case *parser.AggregateExpr:
		if labels, err = c.expr(e.Expr); err != nil {
			return nil, err
		}
		if e.Without {
			return nil, fmt.Errorf("%s: want by in place of without", e)
		}
		return e.Grouping, has(e.Grouping, labels)
	case *parser.BinaryExpr:
		left, err := c.expr(e.LHS)
		if err != nil {
			return nil, err
		}
		right, err := c.expr(e.RHS)
		if err != nil {
			return nil, err
		}
		if e.VectorMatching != nil {
			for _, side := range [][]string{left, right} {
				if err := has(e.VectorMatching.MatchingLabels, side); err != nil && len(side) != 0 {
					return nil, err
				}
			}
		}
		if left == nil {
			return right, nil
		}
		return left, nil
	}
	for child := range parser.ChildrenIter(e) {
		of, err := c.expr(child)
		if err != nil {
			return nil, err
		}
		labels = append(labels, of...)
	}
	if call, ok := e.(*parser.Call); ok && call.Func.Name == "histogram_quantile" {
		labels = slices.DeleteFunc(labels, func(l string) bool { return l == "le" })
	}
	return labels, nil
}

// query parses a query and checks it.
func (c *checker) query(text string) (labels []string, err error) {
	e, err := promql.ParseExpr(strings.ReplaceAll(text, "$__rate_interval", "5m"))
	if err != nil {
		return nil, err
	}
	return c.expr(e)
}

// TestDashboards holds that the dashboards are those of this program, and that each query, legend and
// variable has metrics and labels of the dashboard's program.
func TestDashboards(t *testing.T) {
	legend, variable := regexp.MustCompile(`\{\{(\w+)\}\}`), regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for i := range dashboards {
		d := &dashboards[i]
		t.Run(d.program, func(t *testing.T) {
			text, err := d.write()
			if err != nil {
				t.Fatal(err)
			}
			if file, err := os.ReadFile(filepath.Join(directory, d.program+".json")); err != nil || !bytes.Equal(file, text) {
				t.Errorf("the file is out of date: run make generate (%v)", err)
			}
			var read struct {
				Templating struct{ List []struct{ Definition string } }
				Panels     []struct {
					Title   string
					Targets []struct{ Expr, LegendFormat string }
				}
			}
			if err := json.Unmarshal(text, &read); err != nil {
				t.Fatal(err)
			}
			c, queries := newChecker(t, d.program), 0
			for _, p := range read.Panels {
				for _, q := range p.Targets {
					queries++
					labels, err := c.query(q.Expr)
					if err != nil {
						t.Errorf("panel %q: %s: %v", p.Title, q.Expr, err)
						continue
					}
					for _, m := range legend.FindAllStringSubmatch(q.LegendFormat, -1) {
						if !slices.Contains(labels, m[1]) {
							t.Errorf("panel %q: the legend has %s, and the result of %s has only %s", p.Title, m[1], q.Expr, strings.Join(labels, ", "))
						}
					}
				}
			}
			for _, v := range read.Templating.List {
				if v.Definition == "" {
					continue
				}
				m := variable.FindStringSubmatch(v.Definition)
				if m == nil {
					t.Errorf("cannot read the variable %s", v.Definition)
				} else if labels, err := c.query(m[1]); err != nil || !slices.Contains(labels, m[2]) {
					t.Errorf("variable %s has %s, error %v", v.Definition, labels, err)
				}
			}
			t.Logf("%d queries", queries)
		})
	}
}

// TestQueriesThatAreWrong holds that the check finds what does not exist.
func TestQueriesThatAreWrong(t *testing.T) {
	for query, want := range map[string]string{
		`kubewasm_call_total`:                                             "there is no metric kubewasm_call_total",
		`kubewasm_calls_total{plugn="p"}`:                                 "there is no label plugn",
		`sum by (policy) (rate(kubewasm_calls_total[5m]))`:                "there is no label policy",
		`kubewasm_calls_total_bucket`:                                     "there is no metric kubewasm_calls_total_bucket",
		`rate(kubewasm_agent_ready[5m]`:                                   "unclosed left parenthesis",
		`kubewasm_agent_ready`:                                            "the webhook has no metric kubewasm_agent_ready",
		`kubewasm_plugin_disabled and on (policy) kubewasm_plugin_state`:  "there is no label policy",
		`histogram_quantile(0.9, kubewasm_call_duration_seconds{le="1"})`: "there is no label le",
	} {
		if _, err := newChecker(t, "webhook").query(query); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s has the error %v, want %s", query, err, want)
		}
	}
}

// rules is the file of the alerts.
const rules = "../../../charts/kubewasm/files/alerts.yaml"

// TestAlerts holds that each alert has metrics and labels that exist, a section of docs/operating.md,
// and a case in testdata that fires it and one that does not.
func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile(rules, false, model.UTF8Validation, promql, slog.New(slog.DiscardHandler))
	if len(errs) != 0 {
		t.Fatal(errs)
	}
	operating, err := os.ReadFile("../../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	var cases []byte
	for _, file := range testFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		cases = append(cases, text...)
	}
	var names []string
	of := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, g := range groups.Groups {
		c := newChecker(t, strings.TrimPrefix(g.Name, "kubewasm-"))
		if g.Name == "kubewasm-plugins" {
			c.program = ""
		}
		for _, r := range g.Rules {
			labels, err := c.query(r.Expr)
			if err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			for _, m := range of.FindAllStringSubmatch(r.Annotations["description"], -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: the description has the label %s, and the alert only %s", r.Alert, m[1], strings.Join(labels, ", "))
				}
			}
			if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
				t.Errorf("%s: severity is %q, summary %q", r.Alert, r.Labels["severity"], r.Annotations["summary"])
			}
			if want := "https://github.com/kubewasm/kubewasm/blob/main/docs/operating.md#" + strings.ToLower(r.Alert); r.Annotations["runbook_url"] != want {
				t.Errorf("%s: the runbook is %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
			}
			if !bytes.Contains(operating, []byte("\n### "+r.Alert+"\n\n")) {
				t.Errorf("docs/operating.md has no section ### %s", r.Alert)
			}
			expr := regexp.QuoteMeta(`ALERTS{alertname="` + r.Alert + `",alertstate="firing"}`)
			if fires, quiet := regexp.MustCompile(`expr: '`+expr+`'\n    eval_time: \w+\n    exp_samples: \[\{`), regexp.MustCompile(`\{expr: '`+expr+`', eval_time: \w+, exp_samples: \[\]\}`); !fires.Match(cases) || !quiet.Match(cases) {
				t.Errorf("testdata has no case in which %s fires, or none in which it does not", r.Alert)
			}
			names = append(names, r.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Kubewasm\w+)$`).FindAllSubmatch(operating, -1) {
		if !slices.Contains(names, string(m[1])) {
			t.Errorf("docs/operating.md has a section about %s, which is no alert", m[1])
		}
	}
	t.Logf("%d alerts", len(names))
}

func testFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.test.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no tests: %v", err)
	}
	return files
}

// TestPromtool runs promtool, of the version in go.mod, on the alerts and their cases.
func TestPromtool(t *testing.T) {
	if testing.Short() {
		t.Skip("builds promtool")
	}
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "github.com/prometheus/prometheus").Output()
	if err != nil {
		t.Fatal(err)
	}
	tool := "github.com/prometheus/prometheus/cmd/promtool@" + strings.TrimSpace(string(version))
	for _, args := range [][]string{{"check", "rules", rules}, append([]string{"test", "rules"}, testFiles(t)...)} {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"run", tool}, args...)...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		t.Logf("%s", out)
	}
}
