package main

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/internal/replay"
)

// facts returns pairs of a name and a value.
func facts(pairs ...any) (list []statusz.Fact) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, statusz.Fact{Name: fmt.Sprint(pairs[i]), Value: fmt.Sprint(pairs[i+1])})
	}
	return list
}

// writeComparison writes the differences of two modules side by side, in HTML.
func writeComparison(w io.Writer, c *replay.Comparison) error {
	r := statusz.Report{Title: "What the new module would change", Facts: facts(
		"Old module", c.Old.SHA256, "New module", c.New.SHA256, "Calls repeated", c.Calls, "Answered differently", c.Different,
		"Fuel, old", c.Old.Fuel, "Fuel, new", fmt.Sprintf("%d (%s)", c.New.Fuel, signed(c.New.Fuel-c.Old.Fuel, c.Old.Fuel)),
		"Not repeated, since the recording lacks earlier calls", c.Skipped, "With masked values", c.Withheld, "Not as recorded", c.Drifted, "Damaged parts of the recording", len(c.Damaged))}
	groups := statusz.Table{Heading: "Differences", Empty: "none: both answer the same", Columns: []string{"Class", "Plugin", "Function", "Detail", "Calls"}}
	for _, g := range c.Groups {
		groups.Rows = append(groups.Rows, []string{string(g.Class), g.Plugin, g.Function, g.Detail, fmt.Sprint(g.Calls)})
		p := statusz.Pair{
			Heading: fmt.Sprintf("%s: %s %s %s", g.Class, g.Plugin, g.Function, g.Detail), Old: g.Example.Old, New: g.Example.New, Objects: slices.Clone(g.Objects[:min(len(g.Objects), 200)]),
			Detail: fmt.Sprintf("%d calls, such as %d.%d about %s", g.Calls, g.Example.Sequence, g.Example.Number, g.Example.About),
		}
		if g.MoreObjects || len(g.Objects) > len(p.Objects) {
			p.Objects = append(p.Objects, "and others")
		}
		r.Pairs = append(r.Pairs, p)
	}
	usage := statusz.Table{Heading: "Cost by function", Columns: []string{"Plugin", "Function", "Calls", "Old fuel", "New fuel", "Change", "Old time", "New time"}}
	for _, u := range c.Functions {
		usage.Rows = append(usage.Rows, []string{u.Plugin, u.Function, fmt.Sprint(u.Calls), fmt.Sprint(u.OldFuel), fmt.Sprint(u.NewFuel), signed(u.NewFuel-u.OldFuel, u.OldFuel), u.OldTime.String(), u.NewTime.String()})
	}
	r.Tables = []statusz.Table{groups, usage}
	return r.Write(w)
}

// writeAudit writes the findings by policy and by namespace, in HTML.
func writeAudit(w io.Writer, found *audit.Result) error {
	r := statusz.Report{Title: "Audit of " + found.Start.UTC().Format(time.RFC3339), Facts: facts(
		"Objects with results", found.Objects, "Denied", found.Count(audit.Denied), "Would be changed", found.Count(audit.Patched), "Without a verdict", found.Count(audit.Failed),
		"Questions", found.Asked, "Reused results", found.Reused, "Duration", found.Duration.Duration.String(), "Complete", found.Complete())}
	policies := statusz.Table{Heading: "Policies", Empty: "none", Columns: []string{"Policy", "Denied", "Would change", "No verdict", "Note"}}
	byPolicy, byNamespace := map[string][]audit.Finding{}, map[string]map[string]int{}
	var namespaces []string
	for _, f := range found.Findings {
		byPolicy[f.Policy] = append(byPolicy[f.Policy], f)
		if byNamespace[f.Namespace] == nil {
			byNamespace[f.Namespace] = map[string]int{}
			namespaces = append(namespaces, f.Namespace)
		}
		byNamespace[f.Namespace][f.Policy]++
	}
	matrix := statusz.Table{Heading: "Findings by namespace", Empty: "none", Columns: []string{"Namespace"}}
	var tables []statusz.Table
	for _, p := range found.Policies {
		count := map[audit.Outcome]int{}
		t := statusz.Table{Heading: "Findings of " + p.Name, Columns: []string{"Namespace", "Kind", "Name", "Result", "Since", "Message"}}
		for _, f := range byPolicy[p.Name] {
			count[f.Outcome]++
			t.Rows = append(t.Rows, []string{f.Namespace, f.Kind, f.Name, string(f.Outcome), f.Since.UTC().Format(time.RFC3339), f.Message})
		}
		policies.Rows = append(policies.Rows, []string{p.Name, fmt.Sprint(count[audit.Denied]), fmt.Sprint(count[audit.Patched]), fmt.Sprint(count[audit.Failed]), p.Error + p.Skipped})
		if len(t.Rows) != 0 {
			tables, matrix.Columns = append(tables, t), append(matrix.Columns, p.Name)
		}
	}
	for _, namespace := range namespaces { // The findings are sorted.
		row := []string{namespace}
		if namespace == "" {
			row[0] = "(cluster)"
		}
		for _, policy := range matrix.Columns[1:] {
			row = append(row, fmt.Sprint(byNamespace[namespace][policy]))
		}
		matrix.Rows = append(matrix.Rows, row)
	}
	failed := statusz.Table{Heading: "Not audited", Empty: "everything was audited", Columns: []string{"Error"}}
	for _, text := range found.Errors {
		failed.Rows = append(failed.Rows, []string{text})
	}
	r.Tables = append([]statusz.Table{policies, matrix, failed}, tables...)
	return r.Write(w)
}

// writeProfile writes a flame graph of exact fuel and the top functions, in HTML.
func writeProfile(w io.Writer, p *profile.Profile, top []profile.Cost) error {
	c := costsOf(p)
	r := statusz.Report{Title: "Fuel of " + c.Plugin, Facts: facts("Module", c.SHA256, "Calls", c.Calls, "Fuel", c.Fuel, "Memory growth in bytes", c.Bytes), Flame: &statusz.Frame{Name: "all calls", Cost: c.Fuel}}
	for i := range p.Samples {
		at := r.Flame
		for _, f := range slices.Backward(p.Samples[i].Stack) {
			at = at.Child(f.Name)
			at.Cost += p.Samples[i].Fuel
		}
	}
	t := statusz.Table{Heading: "Functions with the most fuel", Columns: []string{"Flat", "Flat %", "Cumulative", "Cumulative %", "Bytes", "Function"}}
	for _, f := range top {
		t.Rows = append(t.Rows, []string{fmt.Sprint(f.Flat), share(f.Flat, c.Fuel), fmt.Sprint(f.Cumulative), share(f.Cumulative, c.Fuel), fmt.Sprint(f.Bytes), f.Function})
	}
	r.Tables = []statusz.Table{t}
	return r.Write(w)
}
