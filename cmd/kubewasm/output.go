package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

// output is the destination and the format of a command's result.
type output struct {
	format, file string
	formats      []string
}

// textFormats are the formats that every command prints.
var textFormats = []string{"text", "json", "yaml"}

// outputFlag declares the flag for the format. Other formats follow those of every command.
func outputFlag(flags *pflag.FlagSet, others ...string) *output {
	o := &output{formats: append(slices.Clone(textFormats), others...)}
	flags.VarP(o, "output", "o", "")
	oneOf(flags, "output", o.formats...)
	return o
}

// outputFlags declares the flags for the format and the file.
func outputFlags(flags *pflag.FlagSet, others ...string) *output {
	o := outputFlag(flags, others...)
	flags.StringVar(&o.file, "output-file", "", "")
	return o
}

// String implements [pflag.Value].
func (o *output) String() string { return cmp.Or(o.format, "text") }

// Type implements [pflag.Value].
func (*output) Type() string { return "format" }

// Set implements [pflag.Value].
func (o *output) Set(text string) error {
	if !slices.Contains(o.formats, text) {
		err := fmt.Errorf("want %s", strings.Join(o.formats, ", "))
		if strings.ContainsAny(text, `/\.`) {
			err = fmt.Errorf("%w; --output-file names a file", err)
		}
		return err
	}
	o.format = text
	return nil
}

// result is the result of a command, in the formats that it has.
type result struct {
	// value is printed in JSON and YAML.
	value any
	text  func(io.Writer) error
	// other are the writers of further formats.
	other map[string]func(io.Writer) error
}

// in writes the result in a format.
func (r result) in(w io.Writer, format string) error {
	switch format {
	case "text":
		return r.text(w)
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r.value)
	case "yaml":
		text, err := yaml.Marshal(r.value)
		if err != nil {
			return err
		}
		_, err = w.Write(text)
		return err
	}
	return r.other[format](w)
}

// binaryFormats are the formats that are not text.
var binaryFormats = []string{"pprof"}

// print prints a result. If there is a file, it has the result in the format, and the standard
// output has the text.
func (o *output) print(t *tool, r result) error {
	format := o.String()
	if o.file == "" {
		if slices.Contains(binaryFormats, format) {
			return &usageError{fmt.Errorf("--output %s is no text: name a file with --output-file", format)}
		}
		return r.in(t.out, format)
	}
	if err := o.save(r); err != nil {
		return err
	}
	return r.text(t.out)
}

// save writes the file.
func (o *output) save(r result) error {
	var b bytes.Buffer
	w := io.Writer(&b)
	if !slices.Contains(binaryFormats, o.String()) {
		w = foreign.NewWriter(&b) // Somebody may print the file.
	}
	if err := r.in(w, o.String()); err != nil {
		return fmt.Errorf("write %s: %w", o.file, err)
	}
	return writeWhole(o.file, b.Bytes())
}

// printsText reports whether the text is printed to the standard output.
func (o *output) printsText() bool { return o.file != "" || o.String() == "text" }

// writeWhole writes a file that appears under its name when it is whole: a component may watch it,
// and the disk may be full. An existing path that is not a regular file, such as /dev/stdout, is
// kept.
func writeWhole(name string, data []byte) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return os.WriteFile(name, data, 0o644)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".kubewasm-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// suite is a test suite, in the formats of JUnit's XML and JSON.
type suite struct {
	XMLName  xml.Name   `xml:"testsuite" json:"-"`
	Name     string     `xml:"name,attr" json:"name"`
	Tests    int        `xml:"tests,attr" json:"tests"`
	Failures int        `xml:"failures,attr" json:"failures"`
	Time     string     `xml:"time,attr" json:"seconds"`
	Cases    []testCase `xml:"testcase" json:"cases"`
}

type testCase struct {
	Name    string       `xml:"name,attr" json:"name"`
	Class   string       `xml:"classname,attr" json:"-"`
	Time    string       `xml:"time,attr" json:"seconds"`
	Failure *caseFailure `xml:"failure,omitempty" json:"failure,omitempty"`
}

type caseFailure struct {
	Message string `xml:"message,attr" json:"message"`
	Text    string `xml:",chardata" json:"text,omitempty"`
}

// add adds a case. It failed if there are failures.
func (s *suite) add(name string, took time.Duration, failures ...string) {
	s.Tests++
	c := testCase{Name: name, Class: s.Name, Time: seconds(took)}
	if len(failures) != 0 {
		s.Failures++
		first, _, _ := strings.Cut(failures[0], "\n")
		c.Failure = &caseFailure{first, strings.Join(failures, "\n")}
	}
	s.Cases = append(s.Cases, c)
}

// writeJUnit writes the suite in JUnit's XML.
func (s *suite) writeJUnit(w io.Writer) error {
	text, err := xml.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
