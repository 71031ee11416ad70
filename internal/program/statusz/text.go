package statusz

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// writeText writes the text, or one section of it.
func (s *Status) writeText(w io.Writer, section string) error {
	if section == "" {
		// The first lines are those of KEP-4827.
		foreign.Fprintf(w, "\n%s statusz\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n\n", s.Metadata.Name)
		for _, f := range s.facts() {
			foreign.Fprintf(w, "%s: %s\n", f.Name, f.Value)
		}
	}
	if section != "" {
		foreign.Fprintf(w, "%s %s on %s\n", s.Metadata.Name, s.BinaryVersion, s.Replica)
	}
	for _, t := range s.tables() {
		switch {
		case section == "":
			fmt.Fprintf(w, "\n%s\n", t.Heading)
		case section != t.name:
			continue
		}
		if len(t.Rows) == 0 {
			fmt.Fprintln(w, t.Empty)
			continue
		}
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, strings.ToUpper(strings.Join(t.Columns, "\t")))
		for _, row := range t.Rows {
			for i, cell := range row {
				if i != 0 {
					fmt.Fprint(table, "\t")
				}
				foreign.Fprintf(table, "%s", cell)
			}
			fmt.Fprintln(table)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Status) facts() []Fact {
	up := s.UptimeSeconds
	facts := []Fact{
		{"Replica", s.Replica},
		{"Started", s.StartTime.Format(time.UnixDate)},
		{"Up", fmt.Sprintf("%d hr %02d min %02d sec", up/3600, up/60%60, up%60)},
		{"Go version", s.GoVersion},
		{"Binary version", s.BinaryVersion},
		{"Paths", strings.Join(s.Paths, " ")},
		{"Ready", or(s.NotReady, "yes")},
		{"Configuration", or(s.ConfigError, "in service")},
		{"Engine", strings.TrimSuffix(string(s.Engine)+": "+s.EngineReason, ": ")},
		{"Memory", fmt.Sprintf("%s resident, %s of guests, %s heap", size(s.Memory.Resident), size(s.Memory.Guests), size(s.Memory.Heap))},
		{"Mappings", fmt.Sprintf("%d of %d", s.Memory.Mappings, s.Memory.Limit)},
	}
	for _, c := range s.Caches {
		facts = append(facts, Fact{"Cache " + c.Name, fmt.Sprintf("%d files, %s", c.Files, size(uint64(c.Bytes)))})
	}
	return facts
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func size(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// about returns a duration, rounded up to two digits.
func about(d time.Duration) string {
	n, unit := int64(d), int64(1)
	for n >= 100*unit {
		unit *= 10
	}
	return time.Duration((n + unit - 1) / unit * unit).String()
}

func short(digest string) string { return cut.Text(digest, 12) }

// Table is a table of a page or a report.
type Table struct {
	Heading string
	// Empty stands in place of a table without rows.
	Empty   string
	Columns []string
	Rows    [][]string

	name string
}

// tables returns the sections of the text.
func (s *Status) tables() []Table {
	withheld := "none"
	if s.Withheld {
		withheld = "only for clients on the machine or in the Pod (kubectl port-forward), and for those of the management API"
	}
	plugins := Table{name: "plugins", Heading: "Plugins", Empty: "none", Columns: []string{"Plugin", "State", "Version", "Digest", "Mode", "Failure policy", "Reference"}}
	problems := Table{name: "problems", Heading: "Declared and not in service", Empty: "all that is declared is in service", Columns: []string{"Plugin", "State", "Reason"}}
	slow := Table{name: "slow", Heading: "Calls in the last hour, the most time first", Empty: "no calls", Columns: []string{"Plugin", "Calls", "Errors", "p50", "p99", "Time", "Fuel of a call", "Top functions"}}
	shadows := Table{name: "shadows", Heading: "Shadows", Empty: "none", Columns: []string{"Plugin", "State", "Candidate", "Compared", "Same", "Failed", "Dropped", "Differences"}}
	byTime := slices.Clone(s.Plugins)
	slices.SortStableFunc(byTime, func(a, b Plugin) int { return int(b.LastHour.Total - a.LastHour.Total) })
	if s.ConfigError != "" {
		problems.Rows = append(problems.Rows, []string{"(configuration)", string(host.Stale), s.ConfigError})
	}
	for i := range s.Plugins {
		p := &s.Plugins[i]
		plugins.Rows = append(plugins.Rows, []string{p.Name, string(p.State), or(p.Version, "-"), or(short(p.Digest), "-"), or(string(p.Mode), "-"), or(string(p.FailurePolicy), "-"), or(p.Reference, "-")})
		if why := p.problem(); why != "" {
			problems.Rows = append(problems.Rows, []string{p.Name, string(p.State), why})
		}
		if c := p.Shadow; c != nil {
			var differences []string
			for _, g := range c.Groups {
				differences = append(differences, fmt.Sprintf("%s: %d", g.Change, g.Calls))
			}
			shadows.Rows = append(shadows.Rows, []string{p.Name, strings.TrimSuffix(string(c.State)+": "+c.Reason, ": "), or(short(c.Digest), "-"), fmt.Sprint(c.Compared), fmt.Sprint(c.Same), fmt.Sprint(c.Failed), fmt.Sprint(c.Dropped), or(strings.Join(differences, ", "), "none")})
		}
		if p = &byTime[i]; p.LastHour.Calls != 0 {
			c, top := p.LastHour, []string{}
			for _, f := range p.Profile[:min(len(p.Profile), 3)] {
				top = append(top, f.Function)
			}
			slow.Rows = append(slow.Rows, []string{p.Name, fmt.Sprint(c.Calls), fmt.Sprint(c.Errors), "<" + about(c.P50), "<" + about(c.P99), c.Total.Round(time.Microsecond).String(), fmt.Sprint(c.FuelPerCall), or(strings.Join(top, ", "), "-")})
		}
	}
	open := Table{name: "open", Heading: "Failing open", Empty: "nothing fails open", Columns: []string{"Plugin", "Why"}}
	for _, o := range s.FailingOpen {
		open.Rows = append(open.Rows, []string{o.Plugin, o.Why})
	}
	refusals := Table{name: "refusals", Heading: "Last refusals", Empty: withheld, Columns: []string{"Last", "Count", "Plugin", "Object", "User", "Event", "Reason"}}
	for _, e := range s.Refusals {
		refusals.Rows = append(refusals.Rows, []string{e.Time.Format(time.RFC3339), fmt.Sprint(e.Count), e.Plugin, e.Object, or(e.User, "-"), e.Event, e.Reason})
	}
	traps := Table{name: "traps", Heading: "Last traps", Empty: withheld, Columns: []string{"Last", "Count", "Plugin", "Function", "Reason", "Stack"}}
	for _, e := range s.Traps {
		traps.Rows = append(traps.Rows, []string{e.Time.Format(time.RFC3339), fmt.Sprint(e.Count), e.Plugin, or(e.Function, "-"), e.Reason, strings.ReplaceAll(strings.TrimSpace(e.Stack), "\n", " <- ")})
	}
	recordings := Table{name: "recordings", Heading: "Recordings", Empty: "none", Columns: []string{"Path", "Recorded", "Dropped", "Size", "Error"}}
	for _, r := range s.Recordings {
		recordings.Rows = append(recordings.Rows, []string{r.Path, fmt.Sprint(r.Recorded), fmt.Sprint(r.Dropped), size(r.Bytes), or(r.Error, "-")})
	}
	return []Table{problems, open, plugins, slow, refusals, traps, shadows, recordings}
}

// problem returns why a declared plugin does not serve as declared.
func (p *Plugin) problem() string {
	switch {
	case p.BreakerOpen:
		return "the circuit breaker has disabled it after failures"
	case p.State == host.Serving:
		return ""
	case p.State == host.Loading:
		return or(p.Reason, "it is being loaded")
	}
	return or(p.Reason, p.Note)
}
