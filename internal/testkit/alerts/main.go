package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// panel is a panel of a dashboard. Its width is a third of the row, or of all of it for a table.
type panel struct {
	title, about string
	// unit is a unit of Grafana, such as s or short. A table has none.
	unit string
	// queries are the queries with their legends, which a table does not need.
	queries []query
}

type query struct{ expr, legend string }

// row is a row of panels.
type row struct {
	title  string
	panels []panel
}

// picked selects the processes that the variables of a dashboard name.
const picked = `job=~"$job",instance=~"$instance"`

// of returns a selector of the picked processes with more matchers.
func of(metric string, matchers ...string) string {
	return metric + "{" + strings.Join(append([]string{picked}, matchers...), ",") + "}"
}

// rate returns the rate of a counter, summed by labels.
func rate(by, metric string, matchers ...string) string {
	return fmt.Sprintf("sum by (%s) (rate(%s[$__rate_interval]))", by, of(metric, matchers...))
}

// quantile returns a quantile of a histogram, of its classic buckets or of its native ones.
func quantile(q, by, metric string, matchers ...string) string {
	return fmt.Sprintf("histogram_quantile(%s, %s) or histogram_quantile(%[1]s, %[3]s)", q, rate("le, "+by, metric+"_bucket", matchers...), rate(by, metric, matchers...))
}

func line(title, about, unit string, queries ...query) panel {
	return panel{title: title, about: about, unit: unit, queries: queries}
}

func table(title, about string, exprs ...string) panel {
	p := panel{title: title, about: about}
	for _, e := range exprs {
		p.queries = append(p.queries, query{expr: e})
	}
	return p
}

// service is the row that answers which plugin serves, and what does not.
var service = row{"In service", []panel{
	table("Plugins and versions", "The module that serves, on each replica.", of("kubewasm_plugin_info")),
	table("Declared and not in service", "Plugins in a state other than Serving, and refused configurations.", of("kubewasm_plugin_state", `state!="Serving"`)+" == 1", of("kubewasm_config_applied")+" == 0"),
	table("Fails open", "Plugins whose failures or refusals have no effect, stand-ins for plugins that could not be loaded, and plugins disabled by their circuit breakers.",
		of("kubewasm_plugin_fails_open"), of("kubewasm_plugin_state", `state="Unavailable"`)+" == 1", of("kubewasm_plugin_disabled")+" == 1"),
}}

// speed is the row that answers which plugin is slow.
var speed = row{"Calls", []panel{
	line("Calls by result", "", "ops", query{rate("plugin, result", "kubewasm_calls_total"), "{{plugin}} {{result}}"}),
	line("Duration, median", "Without the wait for an instance.", "s", query{quantile("0.5", "plugin, function", "kubewasm_call_duration_seconds"), "{{plugin}} {{function}}"}),
	line("Duration, 99th percentile", "Without the wait for an instance.", "s", query{quantile("0.99", "plugin, function", "kubewasm_call_duration_seconds"), "{{plugin}} {{function}}"}),
	line("Fuel of a call", "WebAssembly instructions.", "short", query{rate("plugin, function", "kubewasm_call_fuel_total") + " / " + rate("plugin, function", "kubewasm_calls_total"), "{{plugin}} {{function}}"}),
	line("Waiting callers", "Raise limits.instances if it stays above 0.", "short", query{"sum by (plugin) (" + of("kubewasm_plugin_waiting_callers") + ")", "{{plugin}}"}),
	line("Callers without an instance", "", "ops", query{rate("plugin, reason", "kubewasm_acquire_failures_total"), "{{plugin}} {{reason}}"}),
}}

// change is the row about new versions.
var change = row{"Versions", []panel{
	line("Candidates", "Calls that shadows repeated, by result.", "ops", query{rate("plugin, result", "kubewasm_shadow_calls_total"), "{{plugin}} {{result}}"}),
	line("Loads and swaps", "", "ops", query{rate("plugin, kind, result", "kubewasm_builds_total"), "{{plugin}} {{kind}} {{result}}"}),
	line("Registries", "Checks of sources by result, and sources whose registry cannot be reached.", "short",
		query{rate("source, result", "kubewasm_oci_fetches_total"), "{{source}} {{result}}"}, query{"max by (source) (" + of("kubewasm_oci_source_stale") + ")", "{{source}} stale"}),
}}

// process is the row about the process.
var process = row{"Process", []panel{
	line("Memory", "Resident memory.", "bytes", query{of("process_resident_memory_bytes"), "{{instance}}"}),
	line("Memory mappings", "Share of vm.max_map_count. No plugin is loaded above seven eighths.", "percentunit", query{of("kubewasm_memory_mappings") + " / " + of("kubewasm_memory_mappings_limit"), "{{instance}}"}),
	line("Dropped log lines", "", "ops", query{rate("instance", "kubewasm_log_lines_dropped_total"), "{{instance}}"}),
}}

// dashboard is the dashboard of a program.
type dashboard struct {
	program, title string
	rows           []row
}

var dashboards = []dashboard{
	{"webhook", "kubewasm webhook", []row{service, {"Decisions", []panel{
		line("Refusals by policy", "Denials, and errors of policies with the failure policy Fail.", "ops", query{rate("policy, verdict", "kubewasm_admission_verdicts_total", `verdict!="allow"`, `mode="Enforce"`), "{{policy}} {{verdict}}"}),
		line("Refusals without effect", "Denials and errors of policies in the mode Monitor.", "ops", query{rate("policy, verdict", "kubewasm_admission_verdicts_total", `verdict!="allow"`, `mode="Monitor"`), "{{policy}} {{verdict}}"}),
		line("Failures by reason", "Calls that did not return, by plugin and reason.", "ops", query{rate("plugin, result", "kubewasm_calls_total", `result!="ok"`), "{{plugin}} {{result}}"}),
		line("Verdict, 99th percentile", "With the wait for an instance.", "s", query{quantile("0.99", "policy", "kubewasm_admission_verdict_duration_seconds"), "{{policy}}"}),
		line("Requests by code", "", "reqps", query{rate("webhook, code", "kubewasm_admission_requests_total"), "{{webhook}} {{code}}"}),
		line("Request, 99th percentile", "", "s", query{quantile("0.99", "webhook", "kubewasm_admission_request_duration_seconds"), "{{webhook}}"}),
		line("Memory of requests", "", "bytes", query{of("kubewasm_admission_body_bytes"), "{{instance}}"}),
		line("Age of looked-up objects", "0 while they are watched.", "s", query{"max by (resource, object_namespace) (" + of("kubewasm_admission_objects_age_seconds") + ")", "{{resource}} {{object_namespace}}"}),
		line("Overrides", "Policies that the management API has changed.", "short", query{"max by (policy, override) (" + of("kubewasm_admission_policy_override") + ")", "{{policy}} {{override}}"}),
	}}, speed, change, {"Audits", []panel{
		line("Findings", "Of the last audit.", "short", query{"max by (policy, result) (" + of("kubewasm_audit_findings") + ")", "{{policy}} {{result}}"}),
		line("Runs", "", "ops", query{rate("result", "kubewasm_audit_runs_total"), "{{result}}"}),
		line("Time since the last audit", "", "s", query{"time() - max(" + of("kubewasm_audit_last_run_timestamp_seconds") + " > 0)", ""}),
	}}, process}},
	{"scheduler", "kubewasm scheduler", []row{service, {"Decisions", []panel{
		line("Failures by reason", "Calls that did not return, by plugin and reason.", "ops", query{rate("plugin, result", "kubewasm_calls_total", `result!="ok"`), "{{plugin}} {{result}}"}),
		line("Skipped calls", "Calls that were not made because the guest had failed before.", "ops", query{rate("plugin, function", "kubewasm_calls_skipped_total"), "{{plugin}} {{function}}"}),
		line("Shared results", "Share of results that were taken from the cache.", "percentunit", query{
			rate("plugin, function", "kubewasm_cache_hits_total") + " / (" + rate("plugin, function", "kubewasm_cache_hits_total") + " + " + rate("plugin, function", "kubewasm_calls_total") + ")", "{{plugin}} {{function}}"}),
	}}, speed, change, process}},
	{"agent", "kubewasm node agent", []row{service, {"Agents", []panel{
		line("Ready", "Agents that are ready, that are not, and that do not answer.", "short",
			query{"count(" + of("kubewasm_agent_ready") + " == 1)", "ready"}, query{"count(" + of("kubewasm_agent_ready") + " == 0)", "not ready"}, query{"count(" + of("up") + " == 0)", "gone"}),
		line("Containers without a decision", "The runtime continued without the agent.", "short", query{"sum by (instance) (" + of("kubewasm_hooks_started_undecided") + " > 0)", "{{instance}}"}),
		line("Refused and ignored failures", "By plugin, policy and cause. Only those with the policy Fail have refused a request.", "ops", query{rate("plugin, policy, cause", "kubewasm_hooks_failures_total"), "{{plugin}} {{policy}} {{cause}}"}),
	}}, {"Decisions", []panel{
		line("Decisions", "", "ops", query{rate("stage, result", "kubewasm_hooks_decisions_total"), "{{stage}} {{result}}"}),
		line("Decision, 99th percentile", "", "s", query{quantile("0.99", "job", "kubewasm_hooks_decision_duration_seconds"), "{{job}}"}),
		line("Writes by field", "cfs_quota and cpu_shares throttle containers.", "ops", query{rate("field", "kubewasm_hooks_writes_total"), "{{field}}"}),
		line("Drifts and repairs", "Values that another writer changed, and that were repaired.", "ops",
			query{rate("field", "kubewasm_hooks_drifts_total"), "{{field}} drift"}, query{rate("field", "kubewasm_hooks_repairs_total"), "{{field}} repair"}),
		line("Left alone", "Files that are not written for now.", "short", query{"sum by (reason) (" + of("kubewasm_hooks_files_left_alone") + ")", "{{reason}}"}),
		line("Refused by the kernel", "", "ops", query{rate("cause", "kubewasm_hooks_refusals_total"), "{{cause}}"}),
		line("Time without the node", "Time since the API server last answered about the node.", "s", query{of("kubewasm_agent_node_stale_seconds") + " > 0", "{{instance}}"}),
		line("Claims of foreign cgroups", "", "ops", query{rate("mode", "kubewasm_agent_foreign_cgroups_total"), "{{mode}}"}),
		line("Events", "", "ops", query{rate("result", "kubewasm_agent_events_total"), "{{result}}"}),
	}}, speed, change, process}},
	{"policy-server", "kubewasm policy server", []row{service, {"Decisions", []panel{
		line("Refusals by policy", "", "ops", query{rate("policy_name, policy_mode, error_code", "kubewarden_policy_evaluations_total", `accepted="false"`), "{{policy_name}} {{policy_mode}} {{error_code}}"}),
		line("Refusals by kind", "", "ops", query{rate("resource_kind, resource_namespace", "kubewarden_policy_evaluations_total", `accepted="false"`), "{{resource_kind}} {{resource_namespace}}"}),
		line("Evaluation, 99th percentile", "", "ms", query{"histogram_quantile(0.99, " + rate("le, policy_name", "kubewarden_policy_evaluation_latency_milliseconds_bucket") + ")", "{{policy_name}}"}),
		line("Failures by reason", "Calls that did not return, by plugin and reason.", "ops", query{rate("plugin, result", "kubewasm_calls_total", `result!="ok"`), "{{plugin}} {{result}}"}),
		line("Failed loads", "", "ops", query{rate("policy_name", "kubewarden_policy_initialization_errors_total"), "{{policy_name}}"}),
		line("Host capabilities", "Calls by result.", "ops", query{rate("policy, operation, result", "kubewasm_admission_capability_calls_total"), "{{policy}} {{operation}} {{result}}"}),
	}}, speed, change, process}},
}

// object is an object of JSON.
type object = map[string]any

// write returns the dashboard as Grafana imports it.
func (d *dashboard) write() ([]byte, error) {
	source := object{"type": "prometheus", "uid": "${datasource}"}
	variable := func(name, label string) object {
		selector := ""
		if label == "instance" {
			selector = `{job=~"$job"}`
		}
		q := fmt.Sprintf("label_values(kubewasm_engine_info%s, %s)", selector, label)
		return object{"name": name, "type": "query", "datasource": source, "query": object{"query": q, "refId": name}, "definition": q, "includeAll": true, "multi": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"}, "refresh": 2, "sort": 1}
	}
	var panels []object
	id, y := 0, 0
	place := func(p object, x, y, w, h int) {
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": w, "h": h}
		panels = append(panels, p)
	}
	for _, r := range d.rows {
		place(object{"type": "row", "title": r.title, "collapsed": false, "panels": []any{}}, 0, y, 24, 1)
		y++
		x := 0
		for _, p := range r.panels {
			kind, defaults, options := "timeseries", object{"unit": p.unit, "custom": object{"fillOpacity": 5}}, object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
			shown := object{"title": p.title, "datasource": source}
			if p.unit == "" {
				kind, defaults, options = "table", object{}, object{"showHeader": true}
				shown["transformations"] = []object{{"id": "merge", "options": object{}}, {"id": "organize", "options": object{"excludeByName": object{"Time": true, "__name__": true, "endpoint": true, "container": true, "service": true}}}}
			}
			var targets []object
			for i, q := range p.queries {
				t := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.expr, "legendFormat": q.legend}
				if kind == "table" {
					t["instant"], t["format"] = true, "table"
				}
				targets = append(targets, t)
			}
			shown["type"], shown["targets"], shown["options"], shown["fieldConfig"] = kind, targets, options, object{"defaults": defaults, "overrides": []any{}}
			if p.about != "" {
				shown["description"] = p.about
			}
			place(shown, x, y, 8, 8)
			if x += 8; x == 24 {
				x, y = 0, y+8
			}
		}
		if x != 0 {
			y += 8
		}
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(object{
		"uid": "kubewasm-" + d.program, "title": d.title, "tags": []string{"kubewasm"}, "schemaVersion": 39, "editable": true, "refresh": "30s", "timezone": "browser", "version": 1,
		"time": object{"from": "now-1h", "to": "now"}, "annotations": object{"list": []any{}}, "links": []any{},
		"templating": object{"list": []object{
			{"name": "datasource", "type": "datasource", "query": "prometheus", "current": object{}, "refresh": 1},
			variable("job", "job"), variable("instance", "instance"),
		}},
		"panels": panels,
	})
	return text.Bytes(), err
}

// directory is that of the dashboards.
const directory = "../../../charts/kubewasm/files/dashboards"

func main() {
	for i := range dashboards {
		text, err := dashboards[i].write()
		if err == nil {
			err = os.WriteFile(filepath.Join(directory, dashboards[i].program+".json"), text, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "alerts:", err)
			os.Exit(1)
		}
	}
}
