package statusz

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // For the style and the templates.
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

var (
	//go:embed style.css
	style string
	//go:embed page.gohtml
	templates string
)

// policy lets a page have its own style, and nothing else.
var policy = func() string {
	digest := sha256.Sum256([]byte(style))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'; img-src data:; base-uri 'none'; form-action 'none'"
}()

// pages are parsed when somebody looks at one.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"style": func() template.CSS { return template.CSS(style) }, "policy": func() string { return policy }, "short": short, "about": about,
		"plot": plotOf, "details": details, "costs": costs, "flame": flameOf, "line": foreign.Line,
	}).Parse(templates))
})

// anchored is a table with the anchor of its heading.
type anchored struct {
	ID string
	Table
}

// writePage writes the page of a browser.
func (s *Status) writePage(w io.Writer) error {
	title := s.Metadata.Name + " on " + s.Replica
	var tables []anchored
	for _, t := range s.tables() {
		tables = append(tables, anchored{t.name, t.shown()})
	}
	return pages().ExecuteTemplate(w, "page", struct {
		Title  string
		Status *Status
		Facts  []Fact
		Tables []anchored
	}{foreign.Line(title), s.shown(), shownFacts(s.facts()), tables})
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
	return pages().ExecuteTemplate(w, "report", r)
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
