package replay

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

// WriteText writes the comparison for a person.
func (c *Comparison) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.printf("%d calls, %d answered differently\n", c.Calls, c.Different)
	c.Damage.write(p)
	if c.Skipped != 0 {
		p.printf("%d calls are skipped: the recording lacks earlier calls of their sequence\n", c.Skipped)
	}
	if c.Withheld != 0 {
		p.printf("%d calls are redacted: answers to the real data may differ\n", c.Withheld)
	}
	if c.Drifted != 0 {
		p.printf("%d calls of the old module differ from the recording: see kubewasm replay without --diff\n", c.Drifted)
	}
	for _, g := range c.Groups {
		p.printf("\n%s", g.Class)
		if g.Plugin != "" {
			p.printf(": %s of plugin %q", g.Function, g.Plugin)
		}
		if g.Detail != "" {
			p.printf(", %s", g.Detail)
		}
		p.printf(": %d calls", g.Calls)
		if g.AfterFailure != 0 {
			p.printf(", %d of them after a call that failed in one module only", g.AfterFailure)
		}
		p.printf("\n  for example call %d of sequence %d", g.Example.Number, g.Example.Sequence)
		if g.Example.About != "" {
			p.printf(", about %s", g.Example.About)
		}
		p.printf("\n  - %s\n  + %s\n", g.Example.Old, g.Example.New)
		if n := len(g.Objects); n > 1 {
			p.printf("  objects: %s", strings.Join(g.Objects[:min(n, shownObjects)], "; "))
			if n > shownObjects {
				p.printf("; and %d more (see -o json)", n-shownObjects)
			}
			p.printf("\n")
		}
	}
	p.printf("\n")
	t := tabwriter.NewWriter(p, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "plugin\tfunction\tcalls\tfuel\t\t\ttime\t")
	for _, u := range c.Functions {
		foreign.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", u.Plugin, u.Function, u.Calls, u.OldFuel, u.NewFuel, change(u.OldFuel, u.NewFuel),
			u.OldTime.Round(time.Microsecond), u.NewTime.Round(time.Microsecond))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	return p.err
}

// shownObjects is the maximum number of objects of a group in a text.
const shownObjects = 8

// shownDamage is the maximum number of texts about damage in a report.
const shownDamage = 10

func (d *Damage) write(p *printer) {
	for _, text := range d.Damaged[:min(len(d.Damaged), shownDamage)] {
		p.printf("damaged: %s\n", text)
	}
	if n := len(d.Damaged) - shownDamage; n > 0 {
		p.printf("damaged: and %d more\n", n)
	}
	if d.Dropped != 0 {
		p.printf("%d calls were dropped when the recording was made\n", d.Dropped)
	}
}

// junit adds a case that fails if the recording is damaged.
func (d *Damage) junit(s *suite) {
	if len(d.Damaged) != 0 {
		s.Cases = append(s.Cases, testCase{"the recording is complete", "replay", &failure{
			Message: fmt.Sprintf("%d parts of the recording cannot be read", len(d.Damaged)), Type: "damaged", Text: strings.Join(d.Damaged, "\n"),
		}})
	}
}

// change returns the relative difference of b from a.
func change(a, b int64) string {
	if a == 0 {
		return ""
	}
	return fmt.Sprintf("%+.1f %%", 100*float64(b-a)/float64(a))
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) { foreign.Fprintf(p, format, args...) }

func (p *printer) Write(b []byte) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	n, err := p.w.Write(b)
	p.err = err
	return n, err
}

// WriteJSON writes the comparison as JSON.
func (c *Comparison) WriteJSON(w io.Writer) error { return writeJSON(w, c) }

// WriteJSON writes the verification as JSON.
func (v *Verification) WriteJSON(w io.Writer) error { return writeJSON(w, v) }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// suite is a test suite in the format of JUnit.
type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Failure *failure `xml:"failure,omitempty"`
}

type failure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

func (s *suite) write(w io.Writer) error {
	s.Tests = len(s.Cases)
	for _, c := range s.Cases {
		if c.Failure != nil {
			s.Failures++
		}
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// WriteJUnit writes the comparison as a test suite: a case for each function, and one that
// fails for each group.
func (c *Comparison) WriteJUnit(w io.Writer) error {
	s := &suite{Name: "kubewasm replay"}
	c.Damage.junit(s)
	for _, g := range c.Groups {
		if g.Plugin == "" {
			s.Cases = append(s.Cases, testCase{string(g.Class) + " " + g.Detail, "replay", &failure{Message: fmt.Sprintf("%d calls differ", g.Calls), Type: string(g.Class)}})
		}
	}
	for _, u := range c.Functions {
		failed := false
		for _, g := range c.Groups {
			if g.Plugin != u.Plugin || g.Function != u.Function {
				continue
			}
			failed = true
			name := u.Function + " " + string(g.Class)
			if g.Detail != "" {
				name += " " + g.Detail
			}
			s.Cases = append(s.Cases, testCase{name, u.Plugin, &failure{
				Message: fmt.Sprintf("%d of %d calls differ", g.Calls, u.Calls), Type: string(g.Class),
				Text: fmt.Sprintf("call %d of sequence %d, about %s\n- %s\n+ %s", g.Example.Number, g.Example.Sequence, g.Example.About, g.Example.Old, g.Example.New),
			}})
		}
		if !failed {
			s.Cases = append(s.Cases, testCase{u.Function, u.Plugin, nil})
		}
	}
	return s.write(w)
}

// WriteText writes the verification for a person.
func (v *Verification) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.printf("%d calls repeated: %d exactly as recorded, %d differ\n", v.Calls, v.Exact, v.Different)
	v.Damage.write(p)
	if v.FuelOnly != 0 {
		p.printf("%d calls differ only in fuel, which this host counts differently\n", v.FuelOnly)
	}
	if v.Withheld != 0 {
		p.printf("%d calls are redacted and match the recorded parts\n", v.Withheld)
	}
	if v.Unpromised != 0 {
		p.printf("%d calls differ as permitted: they are redacted, or the process ran out of memory\n", v.Unpromised)
	}
	if v.Skipped != 0 {
		p.printf("%d calls are skipped: the recording lacks earlier calls of their sequence\n", v.Skipped)
	}
	if v.Other != 0 {
		p.printf("%d calls belong to other modules\n", v.Other)
	}
	if v.OtherEngine {
		p.printf("the recording host counted fuel differently: fuel and times on the fake clock may differ\n")
	}
	for _, m := range v.Differences {
		p.printf("  %s\n", m)
	}
	if n := v.Different - len(v.Differences); n > 0 {
		p.printf("  and %d more\n", n)
	}
	return p.err
}

// WriteJUnit writes the verification as a test suite.
func (v *Verification) WriteJUnit(w io.Writer) error {
	s := &suite{Name: "kubewasm replay"}
	v.Damage.junit(s)
	for _, m := range v.Differences {
		s.Cases = append(s.Cases, testCase{fmt.Sprintf("%s %d/%d", m.Function, m.Sequence, m.Number), m.Plugin, &failure{Message: m.What, Type: "difference"}})
	}
	if v.Different == 0 {
		s.Cases = append(s.Cases, testCase{fmt.Sprintf("%d calls", v.Calls), "replay", nil})
	}
	return s.write(w)
}
