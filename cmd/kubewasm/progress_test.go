package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// terminalOf returns a tool at a terminal whose lines appear at once.
func terminalOf() (*tool, *bytes.Buffer) {
	var shown bytes.Buffer
	s := &screen{w: &shown}
	return &tool{out: new(bytes.Buffer), err: s, terminal: s, every: time.Nanosecond}, &shown
}

func TestProgressIsALineThatOutputDoesNotRunInto(t *testing.T) {
	tool, shown := terminalOf()
	p := tool.progress("objects read")
	p.add()
	p.add()
	fmt.Fprintln(tool.err, "a warning")
	p.end()
	if got, want := shown.String(), "1 objects read\r\x1b[K2 objects read\r\x1b[Ka warning\n"; got != want {
		t.Errorf("the terminal has %q, want %q", got, want)
	}
}

func TestProgressOfAStepCountsSeconds(t *testing.T) {
	lines := make(chan string, 1)
	s := &screen{w: writer(func(p []byte) {
		select {
		case lines <- string(p):
		default:
		}
	})}
	p := (&tool{terminal: s, every: time.Nanosecond}).working("building \x1b[2J.")
	if got := <-lines; got != `building \u001b[2J., 0 s` {
		t.Errorf("the terminal has %q", got)
	}
	if p.end(); s.shown {
		t.Error("the line is still there")
	}
}

// writer writes by a function.
type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// TestCommandsSayHowFarTheyAre runs commands at a terminal.
func TestCommandsSayHowFarTheyAre(t *testing.T) {
	zone := built(t, "testdata/zone")
	policies := file(t, "policies.yaml", "plugins: []\n")
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"reading and deciding": {[]string{"run", "-f", "testdata/cluster.yaml", "--config", file(t, "c.yaml", "zone: b"), zone}, []string{"1 objects read", "1 verdicts"}},
		"auditing":             {[]string{"audit", "--policies", policies, "-f", "testdata/cluster.yaml"}, []string{"1 objects read", "1 objects audited"}},
	} {
		t.Run(name, func(t *testing.T) {
			tool, shown := terminalOf()
			dispatch(t.Context(), tool, test.args)
			for _, want := range test.want {
				if !strings.Contains(shown.String(), want) {
					t.Errorf("the terminal has %q, want %q", shown.String(), want)
				}
			}
			if tool.terminal.shown {
				t.Error("a line is left")
			}
		})
	}
}
