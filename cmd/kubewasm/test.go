package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/internal/cases"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// test runs the cases of a file on a module.
func test(t *tool, flags *pflag.FlagSet) action {
	only := flags.String("run", "", "")
	verbose := flags.BoolP("verbose", "v", false, "")
	printed := outputFlags(flags, "junit")
	from := t.pullFlags(flags)
	return func(ctx context.Context, args []string) error {
		words, err := arguments(flags, args, "a file of cases", "a module")
		if err != nil {
			return err
		}
		file, path := words[0], words[1]
		f, err := cases.Read(file)
		if err != nil {
			return fmt.Errorf("test: %w", err)
		}
		matches, err := regexp.Compile(*only)
		if err != nil {
			return &usageError{fmt.Errorf("test: --run: %w", err)}
		}
		t.named = true
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
		out := io.Discard
		if printed.printsText() {
			out = t.out
		}
		start := time.Now()
		f.Dialects = dialects(nil, nil)
		err = cases.Run(ctx, f, filepath.Dir(file), staged, matches.MatchString, func(r cases.Result) {
			suite.add(r.Name, r.Took, r.Failures...)
			word := "PASS"
			if len(r.Failures) != 0 {
				word = "FAIL"
			} else if !*verbose {
				return
			}
			foreign.Fprintf(out, "--- %s: %s (%.2fs)\n", word, r.Name, r.Took.Seconds())
			for _, failure := range r.Failures {
				fmt.Fprintf(out, "    %s\n", strings.ReplaceAll(failure, "\n", "\n    "))
			}
		})
		if err != nil {
			return fmt.Errorf("test %s: %w", path, err)
		}
		if suite.Tests == 0 {
			return fmt.Errorf("test %s: no case matches %q", path, *only)
		}
		suite.Time = seconds(time.Since(start))
		err = printed.print(t, result{value: suite, text: suite.writeEnd, other: map[string]func(io.Writer) error{"junit": suite.writeJUnit}})
		if err == nil && suite.Failures != 0 {
			err = errPrinted
		}
		return err
	}
}

// writeEnd writes the line after the cases.
func (s *suite) writeEnd(w io.Writer) error {
	if s.Failures != 0 {
		_, err := foreign.Fprintf(w, "FAIL\t%s\t%d of %d cases\t%ss\n", s.Name, s.Failures, s.Tests, s.Time)
		return err
	}
	_, err := foreign.Fprintf(w, "ok\t%s\t%d cases\t%ss\n", s.Name, s.Tests, s.Time)
	return err
}
