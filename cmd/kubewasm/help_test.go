package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestHelpNamesEveryCommand(t *testing.T) {
	code, out, stderr := kubewasm(t, "help")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, c := range commands {
		if !regexp.MustCompile(`(?m)^  ` + c.name + ` +` + c.summary + `$`).MatchString(out) {
			t.Errorf("%s is missing:\n%s", c.name, out)
		}
	}
}

// TestHelpDescribesEveryFlag holds that the section of doc.go on a command has its usage,
// its flags in order and an example.
func TestHelpDescribesEveryFlag(t *testing.T) {
	for _, c := range commands {
		t.Run(c.name, func(t *testing.T) {
			if code, _, _ := kubewasm(t, c.name, "-h"); code != 0 {
				t.Fatalf("exit code %d", code)
			}
			code, out, _ := kubewasm(t, "help", c.name)
			if code != 0 || !strings.HasPrefix(out, "Usage:\n\n\tkubewasm "+c.name) || !strings.Contains(out, "\nExample:\n\n\t") {
				t.Errorf("exit code %d:\n%s", code, out)
			}
			var declared, described []string
			flags := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
			c.declare(&tool{}, flags)
			flags.VisitAll(func(f *pflag.Flag) {
				name := "--" + f.Name
				if f.Shorthand != "" {
					name = "-" + f.Shorthand + ", " + name
				}
				declared = append(declared, name)
			})
			for _, m := range regexp.MustCompile(`(?m)^\t((?:-\w, )?--[\w-]+)( .*)?\n\t\t\S`).FindAllStringSubmatch(out, -1) {
				described = append(described, m[1])
			}
			if diff := cmp.Diff(declared, described); diff != "" {
				t.Errorf("flags (-declared +described):\n%s", diff)
			}
		})
	}
}
