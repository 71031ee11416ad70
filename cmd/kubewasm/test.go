package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/guest/guesttest/cases"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// errFailed is the error of a test that failed, which was printed.
var errFailed = errors.New("failed")

// test asks a module the cases of a file.
func test(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("test")
	only := flags.String("run", "", "")
	verbose := flags.Bool("v", false, "")
	junit := flags.String("junit", "", "")
	from := t.pullFlags(flags)
	arguments, err := parseAll(flags, args, "a file of cases", "a module")
	if err != nil {
		return err
	}
	file, path := arguments[0], arguments[1]
	f, err := cases.Read(file)
	if err != nil {
		return fmt.Errorf("test: %w", err)
	}
	matches, err := regexp.Compile(*only)
	if err != nil {
		return &usageError{fmt.Errorf("test: -run: %w", err)}
	}
	name, module, err := t.module(ctx, path, from)
	if err != nil {
		return fmt.Errorf("test %s: %w", path, err)
	}
	dir, err := os.MkdirTemp("", "kubewasm")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name, _, _ = strings.Cut(filepath.Base(name), "@")
	staged := filepath.Join(dir, strings.TrimSuffix(name, ".wasm")+".wasm")
	if err := os.WriteFile(staged, module, 0o644); err != nil {
		return err
	}
	suite := &suite{Name: path}
	start := time.Now()
	err = cases.Run(ctx, f, filepath.Dir(file), staged, matches.MatchString, func(r cases.Result) {
		suite.add(r)
		word := "PASS"
		if len(r.Failures) != 0 {
			word = "FAIL"
		} else if !*verbose {
			return
		}
		foreign.Fprintf(t.out, "--- %s: %s (%.2fs)\n", word, r.Name, r.Took.Seconds())
		for _, failure := range r.Failures {
			fmt.Fprintf(t.out, "    %s\n", strings.ReplaceAll(failure, "\n", "\n    "))
		}
	})
	if err != nil {
		return fmt.Errorf("test %s: %w", path, err)
	}
	if suite.Tests == 0 {
		return fmt.Errorf("test %s: no case matches %q", path, *only)
	}
	suite.Time = seconds(time.Since(start))
	if *junit != "" {
		text, err := xml.MarshalIndent(suite, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(*junit, append([]byte(xml.Header), text...), 0o644); err != nil {
			return err
		}
	}
	if suite.Failures != 0 {
		foreign.Fprintf(t.out, "FAIL\t%s\t%d of %d cases\t%ss\n", path, suite.Failures, suite.Tests, suite.Time)
		return errFailed
	}
	foreign.Fprintf(t.out, "ok\t%s\t%d cases\t%ss\n", path, suite.Tests, suite.Time)
	return nil
}

// suite is a test suite in JUnit's XML.
type suite struct {
	XMLName  xml.Name   `xml:"testsuite"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Time     string     `xml:"time,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Name    string       `xml:"name,attr"`
	Class   string       `xml:"classname,attr"`
	Time    string       `xml:"time,attr"`
	Failure *caseFailure `xml:"failure,omitempty"`
}

type caseFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (s *suite) add(r cases.Result) {
	s.Tests++
	c := testCase{Name: r.Name, Class: s.Name, Time: seconds(r.Took)}
	if len(r.Failures) != 0 {
		s.Failures++
		first, _, _ := strings.Cut(r.Failures[0], "\n")
		c.Failure = &caseFailure{first, strings.Join(r.Failures, "\n")}
	}
	s.Cases = append(s.Cases, c)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
