package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	gocmp "github.com/google/go-cmp/cmp"
)

// cast is a recording of a terminal, version 2 of asciinema's format. Commands begin with "$ " in a line of
// their own.
type cast struct {
	Version, Width, Height int
	Title                  string
	outputs                []output
}

// output is a text, and the time at which it was printed.
type output struct {
	at   time.Duration
	text string
}

// maxColumns and maxLines bound a recording.
const maxColumns, maxLines = 200, 200

// readCast reads a recording.
func readCast(file []byte) (*cast, error) {
	lines := bytes.Split(bytes.TrimSpace(file), []byte("\n"))
	c := new(cast)
	if err := json.Unmarshal(lines[0], c); err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	if c.Version != 2 || c.Width < 1 || c.Width > maxColumns {
		return nil, fmt.Errorf("version %d with %d columns, want version 2 and at most %d", c.Version, c.Width, maxColumns)
	}
	for i, line := range lines[1:] {
		var at float64
		var kind, text string
		if err := json.Unmarshal(line, &[]any{&at, &kind, &text}); err != nil || kind != "o" || at < 0 {
			return nil, fmt.Errorf("line %d is no output: %s", i+2, line)
		}
		text = strings.ReplaceAll(text, "\r\n", "\n")
		if strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			return nil, fmt.Errorf("line %d has a character that is not printed: %q", i+2, text)
		}
		c.outputs = append(c.outputs, output{time.Duration(at * float64(time.Second)).Round(time.Millisecond), text})
	}
	if len(c.outputs) == 0 {
		return nil, errors.New("nothing is printed")
	}
	return c, nil
}

// commands returns the commands of a recording.
func (c *cast) commands() (all []string) {
	for _, o := range c.outputs {
		if command, ok := strings.CutPrefix(o.text, "$ "); ok {
			all = append(all, strings.TrimSpace(command))
		}
	}
	return all
}

// The measures of a picture, in pixels.
const (
	column, row, margin = 8.4, 19, 16
	gutter              = 60 // Of the times.
)

// hold is the time for which a picture shows the end before it begins anew.
const hold = 12 * time.Second

// svg draws a recording. Each text appears at its time, and stays at last: all of it is there for
// browsers that do not move pictures.
func (c *cast) svg() ([]byte, error) {
	total := c.outputs[len(c.outputs)-1].at + hold
	share := func(at time.Duration) string { return fmt.Sprintf("%.3f%%", 100*at.Seconds()/total.Seconds()) }
	var frames, body strings.Builder
	x, y := 0, 0
	for i, o := range c.outputs {
		fmt.Fprintf(&frames, "@keyframes k%d{0%%,%s{opacity:0}%s,100%%{opacity:1}}#k%d{animation-name:k%d}\n", i, share(o.at), share(o.at+time.Millisecond), i, i)
		fmt.Fprintf(&body, "<g id=\"k%d\">\n", i)
		draw := func(class, text string) {
			if strings.TrimSpace(text) == "" {
				return
			}
			fmt.Fprintf(&body, `<text x="%.1f" y="%d"%s>`, margin+column*float64(x), margin+row*(y+1)-5, class)
			_ = xml.EscapeText(&body, []byte(text)) // A Builder has no error.
			body.WriteString("</text>\n")
		}
		class := ""
		if strings.HasPrefix(o.text, "$ ") {
			class = ` class="c"`
			fmt.Fprintf(&body, `<text x="%.1f" y="%d" class="t">%.1f s</text>`+"\n", margin+column*float64(c.Width)+gutter, margin+row*(y+1)-5, o.at.Seconds())
		}
		for n, line := range strings.Split(o.text, "\n") {
			if n > 0 {
				x, y = 0, y+1
			}
			for text := []rune(line); len(text) > 0; {
				if x == c.Width {
					x, y = 0, y+1
				}
				part := text[:min(len(text), c.Width-x)]
				draw(class, string(part))
				x, text = x+len(part), text[len(part):]
			}
		}
		body.WriteString("</g>\n")
	}
	if x > 0 {
		y++
	}
	if y > maxLines {
		return nil, fmt.Errorf("%d lines, want at most %d", y, maxLines)
	}
	var title strings.Builder
	_ = xml.EscapeText(&title, []byte(cmp.Or(c.Title, "A terminal")))
	width, height := margin*2+column*float64(c.Width)+gutter, margin*2+row*y
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" role="img" aria-labelledby="title">
<title id="title">%s</title>
<style>
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#d0d7de;white-space:pre}
.c{fill:#7ee787;font-weight:600}
.t{fill:#9ea7b3;text-anchor:end}
g{animation:%.3fs linear 3 both}
%s@media (prefers-reduced-motion:reduce){g{animation:none}}
</style>
<rect x=".5" y=".5" width="%.0f" height="%d" rx="8" fill="#0d1117" stroke="#6e7781"/>
%s</svg>
`, width, height, width, height, title.String(), total.Seconds(), frames.String(), width-1, height-1, body.String()), nil
}

// TestRecordings holds that docs/cluster.md shows the commands that were recorded, and that its picture is made
// of the recording. With KUBEWASM_PICTURES it writes the picture.
func TestRecordings(t *testing.T) {
	images := cmp.Or(os.Getenv("KUBEWASM_PICTURES"), root+"/docs/images")
	file, err := os.ReadFile(filepath.Join(images, "declare.cast"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := readCast(file)
	if err != nil {
		t.Fatal(err)
	}
	picture, err := c.svg()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(root + "/docs/cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Declare a plugin\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if diff := gocmp.Diff(c.commands(), regexp.MustCompile(`(?m)^(kubectl|helm) .*`).FindAllString(section, -1)); diff != "" {
		t.Errorf("docs/cluster.md has other commands than the recording: run make pictures (-recorded +document):\n%s", diff)
	}
	if !strings.Contains(section, "](images/declare.svg)") {
		t.Error("docs/cluster.md does not show images/declare.svg")
	}
	name := filepath.Join(images, "declare.svg")
	if os.Getenv("KUBEWASM_PICTURES") != "" {
		if err := os.WriteFile(name, picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(name); err != nil || !bytes.Equal(is, picture) {
		t.Errorf("%s is not drawn of the recording: run make pictures, error %v", name, err)
	}
	const maxBytes = 100_000
	if len(picture) > maxBytes || len(file) > maxBytes {
		t.Errorf("the picture has %d bytes and the recording %d, want at most %d", len(picture), len(file), maxBytes)
	}
}

// TestCast draws what programs may print.
func TestCast(t *testing.T) {
	const header = `{"version": 2, "width": 10, "height": 3, "title": "a & b"}` + "\n"
	c, err := readCast([]byte(header + `[0, "o", "$ true\r\n"]` + "\n" + `[1.5, "o", "<b>&\"12345678\r\nab"]` + "\n" + `[1.6, "o", "c\r\n"]`))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := c.svg()
	if err != nil {
		t.Fatal(err)
	}
	var drawn struct {
		Title string `xml:"title"`
		Texts []struct {
			X     float64 `xml:"x,attr"`
			Y     int     `xml:"y,attr"`
			Class string  `xml:"class,attr"`
			Text  string  `xml:",chardata"`
		} `xml:"g>text"`
	}
	if err := xml.Unmarshal(picture, &drawn); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, text := range drawn.Texts {
		got = append(got, fmt.Sprintf("%.0f,%d%s %s", (text.X-margin)/column, (text.Y+5-margin)/row-1, text.Class, text.Text))
	}
	want := []string{"17,0t 0.0 s", "0,0c $ true", `0,1 <b>&"12345`, "0,2 678", "0,3 ab", "2,3 c"}
	if diff := gocmp.Diff(want, got); diff != "" || drawn.Title != "a & b" {
		t.Errorf("title %q, texts (-want +got):\n%s", drawn.Title, diff)
	}
	for _, tt := range []struct{ name, file, want string }{
		{"another version", `{"version": 1, "width": 10}`, "version 1 with 10 columns, want version 2 and at most 200"},
		{"no size", `{"version": 2}`, "version 2 with 0 columns, want version 2 and at most 200"},
		{"nothing", header, "nothing is printed"},
		{"an input", header + `[0, "i", "x"]`, `line 2 is no output: [0, "i", "x"]`},
		{"an escape", header + `[0, "o", "\u001b[2J"]`, `line 2 has a character that is not printed: "\x1b[2J"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := readCast([]byte(tt.file)); err == nil || err.Error() != tt.want {
				t.Errorf("error %v, want %s", err, tt.want)
			}
		})
	}
}
