package rollouts

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
)

// maxRows bounds the rows of the page.
const maxRows = 1000

// Page shows the plugins: as metrics, and at /statusz, to a browser or as text.
type Page struct {
	// Client reads from the cache.
	Client client.Reader
	// RolledBack is that of a Reconciler.
	RolledBack *prometheus.CounterVec
}

// NewPage returns a Page whose RolledBack counts nothing yet.
func NewPage(c client.Reader) *Page {
	return &Page{c, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubewasm_controller_rollouts_rolled_back_total", Help: "Rollouts that have failed, by cause: Failing or DeadlineExceeded. The stable revision serves again"}, []string{"kind", "cause"})}
}

var (
	readyDesc = prometheus.NewDesc("kubewasm_controller_plugin_ready", "1 if all processes serve the plugin as it was declared, 0 if not", []string{"kind", "plugin"}, nil)
	stateDesc = prometheus.NewDesc("kubewasm_controller_rollout_state", "1 for the current state of the plugin's rollout: Complete, Progressing, Paused, RolledBack, RevisionGone, Invalid, NotResolved, TooLarge", []string{"kind", "plugin", "state"}, nil)
	stepDesc  = prometheus.NewDesc("kubewasm_controller_rollout_step", "Number of the step of the plugin's rollout, from 1; 0 without one", []string{"kind", "plugin"}, nil)
	sinceDesc = prometheus.NewDesc("kubewasm_controller_rollout_step_timestamp_seconds", "Time at which the step of the plugin's rollout has begun", []string{"kind", "plugin"}, nil)
)

// plugins returns all plugins of the cache, in the order of their keys.
func (p *Page) plugins(ctx context.Context) (all []plugin.Plugin, err error) {
	for _, component := range []string{plugin.Webhook, plugin.Agent} {
		for _, list := range plugin.Lists(component) {
			if err := p.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
				return nil, err
			}
			all = append(all, plugin.All(list)...)
		}
	}
	slices.SortFunc(all, func(a, b plugin.Plugin) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return all, nil
}

// Describe implements [prometheus.Collector].
func (p *Page) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{readyDesc, stateDesc, stepDesc, sinceDesc} {
		descs <- desc
	}
	p.RolledBack.Describe(descs)
}

// Collect implements [prometheus.Collector].
func (p *Page) Collect(metrics chan<- prometheus.Metric) {
	p.RolledBack.Collect(metrics)
	all, err := p.plugins(context.Background())
	if err != nil {
		return // The cache begins or ends.
	}
	for _, one := range all {
		labels := []string{one.Key.Kind, one.Key.ObjectKey().String()}
		if one.Key.Namespace == "" {
			labels[1] = one.Key.Name
		}
		gauge := func(desc *prometheus.Desc, value float64, more ...string) {
			metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, append(labels[:2:2], more...)...)
		}
		if c := meta.FindStatusCondition(one.Status.Conditions, v1alpha1.ConditionReady); c != nil {
			ready := 0.0
			if c.Status == "True" {
				ready = 1
			}
			gauge(readyDesc, ready)
		}
		if c := meta.FindStatusCondition(one.Status.Conditions, v1alpha1.ConditionRolledOut); c != nil {
			for _, state := range reasons {
				if state == c.Reason {
					gauge(stateDesc, 1, state)
				}
			}
		}
		if r := one.Status.Rollout; r != nil {
			gauge(stepDesc, float64(r.Step))
			if r.Since != nil {
				gauge(sinceDesc, float64(r.Since.Unix()))
			}
		}
	}
}

// row is a row of the page.
type row struct{ Plugin, Ready, Revision, Wanted, Rollout, Digest, Why string }

var html = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><title>kubewasm-controller</title>
<style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:left;border-bottom:1px solid #ccc}</style>
<h1>kubewasm-controller</h1><p>{{.All}} plugins, {{.Not}} of them not ready.{{if .Left}} {{.Left}} are left out.{{end}}</p>
<table><tr><th>Plugin<th>Ready<th>Revision<th>Wanted<th>Rollout<th>Digest<th>Why</tr>
{{range .Rows}}<tr><td>{{.Plugin}}<td>{{.Ready}}<td>{{.Revision}}<td>{{.Wanted}}<td>{{.Rollout}}<td>{{.Digest}}<td>{{.Why}}</tr>
{{end}}</table>`))

// ServeHTTP serves the page. Reasons are for processes in the Pod, as by kubectl port-forward.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all, err := p.plugins(r.Context())
	if err != nil {
		http.Error(w, "the plugins are not known yet", http.StatusServiceUnavailable)
		return
	}
	var ready, not []row
	for _, one := range all {
		out := row{Plugin: one.Key.String(), Ready: one.Status.Ready, Revision: one.Status.Revision, Digest: cut.Text(one.Status.Digest, 12)}
		if s := one.Status.Rollout; s != nil {
			out.Wanted = fmt.Sprint(s.Wanted)
		}
		var why []string
		done := true
		for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionRolledOut} {
			c := meta.FindStatusCondition(one.Status.Conditions, name)
			if c == nil {
				continue
			}
			if name == v1alpha1.ConditionRolledOut {
				out.Rollout = c.Reason
			}
			if c.Status != "True" {
				done, why = false, append(why, foreign.Line(cmp.Or(c.Message, c.Reason)))
			}
		}
		if out.Why = strings.Join(why, "; "); !statusz.Local(r) && len(why) != 0 {
			out.Why = "shown by kubectl port-forward"
		}
		if done {
			ready = append(ready, out)
		} else {
			not = append(not, out)
		}
	}
	rows := append(not, ready...)
	shown := rows[:min(len(rows), maxRows)]
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
		_ = html.Execute(w, map[string]any{"All": len(rows), "Not": len(not), "Left": len(rows) - len(shown), "Rows": shown}) // The client is gone.
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "%d plugins, %d of them not ready, %d left out\n\n", len(rows), len(not), len(rows)-len(shown))
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "PLUGIN\tREADY\tREVISION\tWANTED\tROLLOUT\tDIGEST\tWHY")
	for _, one := range shown {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.Plugin, one.Ready, one.Revision, one.Wanted, one.Rollout, one.Digest, one.Why)
	}
	_ = tab.Flush() // The client is gone.
}
