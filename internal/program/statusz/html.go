package statusz

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	_ "embed" // For the style.
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

//go:embed style.css
var style string

// policy lets a page have its own style, and nothing else.
var policy = func() string {
	digest := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"
}()

// markup is text of HTML: constants, so that no text of others becomes markup.
//
// Package html/template would do the same, and its calls of methods by their names keep the linker
// from removing any: a webhook would have 20 MB more.
type markup string

// htmlWriter writes HTML.
type htmlWriter struct {
	w   *bufio.Writer
	err error
}

// put writes markup, with the arguments escaped.
func (p *htmlWriter) put(format markup, args ...any) {
	for i, a := range args {
		args[i] = html.EscapeString(strings.ToValidUTF8(fmt.Sprint(a), "\uFFFD"))
	}
	if _, err := fmt.Fprintf(p.w, string(format), args...); err != nil && p.err == nil {
		p.err = err
	}
}

// write writes a page to w by f.
func write(w io.Writer, title string, f func(p *htmlWriter)) error {
	p := &htmlWriter{w: bufio.NewWriter(w)}
	p.put("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
	p.put("<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n", policy)
	p.put("<title>%s</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>", title)
	_, _ = p.w.WriteString(style) // Flush returns the error.
	p.put("</style>\n</head>\n<body>\n<h1>%s</h1>\n", title)
	f(p)
	p.put("</body></html>\n")
	return cmp.Or(p.w.Flush(), p.err)
}

func (p *htmlWriter) facts(facts []Fact) {
	p.put("<dl>")
	for _, f := range facts {
		p.put("<div><dt>%s</dt><dd>%s</dd></div>", f.Name, f.Value)
	}
	p.put("</dl>\n")
}

func (p *htmlWriter) table(t Table) {
	if len(t.Rows) == 0 {
		p.put("<p class=\"dim\">%s</p>\n", t.Empty)
		return
	}
	p.put("<div class=\"scroll\"><table>\n<thead><tr>")
	for _, name := range t.Columns {
		p.put("<th>%s</th>", name)
	}
	p.put("</tr></thead>\n<tbody>")
	for _, row := range t.Rows {
		p.put("<tr>")
		for _, text := range row {
			p.put("<td>%s</td>", text)
		}
		p.put("</tr>\n")
	}
	p.put("</tbody></table></div>\n")
}

func (p *htmlWriter) bad(text string) {
	if text != "" {
		p.put("<p class=\"bad\">%s</p>\n", text)
	}
}

// writePage writes the page of a browser.
func (s *Status) writePage(w io.Writer) error {
	tables, shown := s.tables(), s.shown()
	return write(w, foreign.Line(s.Metadata.Name+" on "+s.Replica), func(p *htmlWriter) {
		p.bad(shown.Alarm)
		p.facts(shownFacts(s.facts()))
		p.put("<nav>")
		for i := range tables {
			tables[i] = tables[i].shown()
			p.put("<a href=\"#%s\">%s (%s)</a>", tables[i].name, tables[i].Heading, len(tables[i].Rows))
		}
		p.put("</nav>\n")
		for _, t := range tables {
			p.put("<h2 id=\"%s\">%s</h2>\n", t.name, t.Heading)
			switch t.name {
			case "plugins":
				for i := range shown.Plugins {
					p.plugin(&shown.Plugins[i])
				}
				if shown.Omitted != 0 {
					p.put("<p>%s more plugins are left out.</p>\n", shown.Omitted)
				}
			case "traps":
				p.traps(shown.Traps, t.Empty)
			default:
				p.table(t)
			}
		}
	})
}

func (p *htmlWriter) plugin(of *Plugin) {
	hour := &of.LastHour
	p.put("<details>\n<summary><b>%s</b><span class=\"state %s\">%s</span>", of.Name, of.State, of.State)
	if of.BreakerOpen {
		p.put("<span class=\"state bad\">breaker open</span>")
	}
	p.put("<small>%s %s</small><small>%s %s</small>", of.Version, short(of.Digest), of.Mode, of.FailurePolicy)
	if of.Isolation != "" {
		p.put("<small>isolation %s</small>", of.Isolation)
	}
	p.put("<svg class=\"plot\" viewBox=\"0 0 120 24\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"calls of each minute of the last hour\">")
	paths := plotOf(*hour)
	if paths != nil {
		p.put("<path class=\"calls\" d=\"%s\"/><path class=\"errors\" d=\"%s\"/>", paths.Calls, paths.Errors)
	}
	p.put("</svg><small>%s calls", hour.Calls)
	if hour.Errors != 0 {
		p.put(", <span class=\"bad\">%s errors</span>", hour.Errors)
	}
	if hour.Calls != 0 {
		p.put(", p50 &lt; %s, p99 &lt; %s", about(hour.P50), about(hour.P99))
	}
	p.put("</small></summary>\n")
	p.bad(of.Reason)
	if of.Note != "" {
		p.put("<p>%s</p>\n", of.Note)
	}
	if paths != nil {
		p.put("<svg class=\"big\" viewBox=\"0 0 120 24\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"p99 of each minute of the last hour, in logarithmic scale\"><path class=\"p99\" d=\"%s\"/></svg>\n", paths.P99)
		p.put("<p class=\"dim\">p99 of each minute of the last hour, from %s to %s</p>\n", about(paths.Least), about(paths.Most))
	}
	p.facts(details(*of))
	if len(of.Profile) != 0 {
		p.put("<h3>Functions with the most fuel</h3>")
		p.table(costs(of.Profile))
	}
	if of.Shadow != nil {
		for _, g := range of.Shadow.Groups {
			p.put("<h3>%s: %s</h3>", foreign.Line(g.Change), g.Calls)
			for _, example := range g.Examples {
				p.put("<pre>%s</pre>", foreign.Line(example))
			}
		}
	}
	p.put("</details>\n")
}

func (p *htmlWriter) traps(traps []Event, none string) {
	if len(traps) == 0 {
		p.put("<p class=\"dim\">%s</p>\n", none)
	}
	for _, e := range traps {
		p.put("<h3>%s %s: %s</h3><p class=\"dim\">%s %s", e.Plugin, e.Function, e.Reason, e.Time.Format(time.RFC3339), e.Event)
		if e.Count > 1 {
			p.put(", %s times", e.Count)
		}
		p.put("</p><pre>%s</pre>\n", e.Stack)
	}
}

func (p *htmlWriter) flame(g *flame) {
	if g == nil {
		return
	}
	p.put("<svg class=\"flame\" width=\"100%%\" height=\"%s\" role=\"img\" aria-label=\"flame graph of fuel\">", g.Height)
	for _, b := range g.Boxes {
		p.put("\n<svg x=\"%s%%\" y=\"%s\" width=\"%s%%\" height=\"17\"><title>%s</title>", b.X, b.Y, b.Width, b.Title)
		p.put("<rect class=\"c%s\" width=\"100%%\" height=\"17\"/><text x=\"3\" y=\"12\">%s</text></svg>", b.Color, b.Name)
	}
	p.put("\n</svg>\n")
}

// shown returns a copy whose texts of guests and users show their control characters.
func (s *Status) shown() *Status {
	of := *s
	of.Alarm = foreign.Line(s.Alarm)
	of.Plugins, of.Traps = slices.Clone(s.Plugins), slices.Clone(s.Traps)
	for i := range of.Plugins {
		p := &of.Plugins[i]
		p.Name, p.Version, p.Reason, p.Note = foreign.Line(p.Name), foreign.Line(p.Version), foreign.Lines(p.Reason), foreign.Lines(p.Note)
	}
	for i := range of.Traps {
		e := &of.Traps[i]
		e.Plugin, e.Event, e.Function, e.Reason, e.Stack = foreign.Line(e.Plugin), foreign.Line(e.Event), foreign.Line(e.Function), foreign.Line(e.Reason), foreign.Lines(e.Stack)
	}
	return &of
}

// cellBytes bounds a cell of a table, and textsBytes a text beside it.
const (
	cellBytes  = 2 << 10
	textsBytes = 64 << 10
)

func cell(text string) string { return foreign.Line(cut.Marked(text, cellBytes)) }

func cells(texts []string) []string {
	texts = slices.Clone(texts)
	for i := range texts {
		texts[i] = cell(texts[i])
	}
	return texts
}

func (t Table) shown() Table {
	t.Heading, t.Columns, t.Rows = cell(t.Heading), cells(t.Columns), slices.Clone(t.Rows)
	for i, row := range t.Rows {
		t.Rows[i] = cells(row)
	}
	return t
}

func shownFacts(facts []Fact) []Fact {
	facts = slices.Clone(facts)
	for i, f := range facts {
		facts[i] = Fact{cell(f.Name), cell(f.Value)}
	}
	return facts
}

// details returns the facts about a plugin beside its summary.
func details(p Plugin) []Fact {
	facts := []Fact{
		{"Reference", p.Reference}, {"Digest", p.Digest}, {"Instances", fmt.Sprintf("%d of %d, %s each", p.Instances, p.InstanceLimit, size(p.MemoryBytes))},
		{"Waiting callers", fmt.Sprint(p.Waiting)}, {"Fuel of a call", fmt.Sprint(p.LastHour.FuelPerCall)}, {"Time of all calls", p.LastHour.Total.Round(time.Microsecond).String()},
		{"Dropped log lines", fmt.Sprint(p.LogDropped)},
	}
	if !p.Since.IsZero() {
		facts = append(facts, Fact{"In service since", p.Since.UTC().Format(time.RFC3339)})
	}
	if s := p.Shadow; s != nil {
		facts = append(facts, Fact{"Candidate", fmt.Sprintf("%s %s %s: %d compared, %d same, %d failed, %d dropped", short(s.Digest), s.State, s.Reason, s.Compared, s.Same, s.Failed, s.Dropped)})
	}
	return shownFacts(facts)
}

// costs returns the table of a profile.
func costs(of []profile.Cost) Table {
	t := Table{Columns: []string{"Function", "Flat", "Cumulative"}}
	for _, c := range of {
		t.Rows = append(t.Rows, []string{c.Function, fmt.Sprint(c.Flat), fmt.Sprint(c.Cumulative)})
	}
	return t.shown()
}

// plot has the paths of a plot of 60 minutes in 120 x 24 units.
type plot struct {
	Calls, Errors, P99 string
	Least, Most        time.Duration
}

// plotOf returns the plot of calls, nil if there are none.
func plotOf(c Calls) *plot {
	if len(c.Minutes) == 0 {
		return nil
	}
	most := uint64(1)
	p := &plot{Least: math.MaxInt64}
	for _, m := range c.Minutes {
		most, p.Least, p.Most = max(most, m.Calls), min(p.Least, m.P99), max(p.Most, m.P99)
	}
	var calls, errs, p99 strings.Builder
	low, span := math.Log(float64(p.Least)), math.Log(float64(p.Most))-math.Log(float64(p.Least))
	for i, m := range c.Minutes {
		x := 2 * (minutes - 1 - m.Ago)
		fmt.Fprintf(&calls, "M%d 24v-%.1fh1.6V24z", x, 24*float64(m.Calls)/float64(most))
		if m.Errors != 0 {
			fmt.Fprintf(&errs, "M%d 24v-%.1fh1.6V24z", x, 24*float64(m.Errors)/float64(most))
		}
		y := 12.0
		if span > 0 {
			y = 23 - 22*(math.Log(float64(m.P99))-low)/span
		}
		step := "L"
		if i == 0 || c.Minutes[i-1].Ago != m.Ago+1 {
			step = "M"
		}
		fmt.Fprintf(&p99, "%s%d %.1fh2", step, x, y)
	}
	p.Calls, p.Errors, p.P99 = calls.String(), errs.String(), p99.String()
	return p
}

// Fact is a named text.
type Fact struct{ Name, Value string }

// Report is the result of a command for a browser.
type Report struct {
	Title  string
	Facts  []Fact
	Flame  *Frame // nil for none.
	Tables []Table
	Pairs  []Pair
}

// Pair is two texts side by side.
type Pair struct {
	Heading, Detail string
	Old, New        string
	Objects         []string
}

// Frame is a function of a call path, with the sum of what it and its callees cost.
type Frame struct {
	Name     string
	Cost     int64
	Children []*Frame
}

// Child returns the child of that name, which it makes if there is none.
func (f *Frame) Child(name string) *Frame {
	for _, c := range f.Children {
		if c.Name == name {
			return c
		}
	}
	f.Children = append(f.Children, &Frame{Name: name})
	return f.Children[len(f.Children)-1]
}

// Write writes the report as one HTML file that needs no other.
func (r Report) Write(w io.Writer) error {
	r.Title = foreign.Line(cut.Marked(r.Title, nameBytes))
	r.Facts, r.Tables, r.Pairs = shownFacts(r.Facts), slices.Clone(r.Tables), slices.Clone(r.Pairs)
	for i := range r.Tables {
		r.Tables[i] = r.Tables[i].shown()
	}
	for i := range r.Pairs {
		p := &r.Pairs[i]
		p.Heading, p.Detail, p.Objects = cell(p.Heading), cell(p.Detail), cells(p.Objects)
		p.Old, p.New = foreign.Lines(cut.Marked(p.Old, textsBytes)), foreign.Lines(cut.Marked(p.New, textsBytes))
	}
	return write(w, r.Title, func(p *htmlWriter) {
		p.facts(r.Facts)
		p.flame(flameOf(r.Flame))
		for _, t := range r.Tables {
			p.put("<h2>%s</h2>\n", t.Heading)
			p.table(t)
		}
		for _, of := range r.Pairs {
			p.put("<h2>%s</h2>\n<p>%s</p>\n", of.Heading, of.Detail)
			p.put("<div class=\"pair\"><div><h3>Old</h3><pre>%s</pre></div><div><h3>New</h3><pre>%s</pre></div></div>\n", of.Old, of.New)
			if len(of.Objects) != 0 {
				p.put("<details><summary>%s objects</summary><ul>", len(of.Objects))
				for _, name := range of.Objects {
					p.put("<li>%s</li>", name)
				}
				p.put("</ul></details>\n")
			}
		}
	})
}

// flame is a flame graph: boxes from the top, in percent of its width.
type flame struct {
	Height int
	Boxes  []box
}

type box struct {
	X, Width    string
	Y, Color    int
	Name, Title string
}

const (
	rowHeight = 18
	// maxBoxes bounds a flame graph, and leastShare leaves out what is too narrow to see.
	maxBoxes   = 5_000
	leastShare = 0.0005
)

// flameOf returns the flame graph below a frame.
func flameOf(root *Frame) *flame {
	if root == nil || root.Cost <= 0 {
		return nil
	}
	g := &flame{}
	var add func(f *Frame, from int64, depth int)
	add = func(f *Frame, from int64, depth int) {
		share := float64(f.Cost) / float64(root.Cost)
		if share < leastShare || len(g.Boxes) >= maxBoxes {
			return
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(f.Name))
		name := foreign.Line(cut.Marked(f.Name, nameBytes))
		g.Boxes = append(g.Boxes, box{
			X: fmt.Sprintf("%.4f", 100*float64(from)/float64(root.Cost)), Width: fmt.Sprintf("%.4f", 100*share), Y: depth * rowHeight, Color: int(h.Sum32() % 6),
			Name: name, Title: fmt.Sprintf("%s: %d, %.2f %%", name, f.Cost, 100*share),
		})
		g.Height = max(g.Height, (depth+1)*rowHeight)
		children := slices.SortedStableFunc(slices.Values(f.Children), func(a, b *Frame) int { return cmp.Compare(b.Cost, a.Cost) })
		for _, c := range children {
			add(c, from, depth+1)
			from += c.Cost
		}
	}
	add(root, 0, 0)
	return g
}
