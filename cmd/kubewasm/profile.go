package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// profileModule is the command profile.
func profileModule(t *tool, flags *pflag.FlagSet) action {
	f := t.runFlags(flags)
	printed := outputFlags(flags, "html", "pprof")
	top := flags.Int("top", 20, "")
	diff := flags.Bool("diff", false, "")
	limit := flags.String("max-increase", "", "")
	plugin := flags.String("plugin", "", "")
	return func(ctx context.Context, args []string) error {
		arguments, err := atMost(flags, args, 3)
		if err != nil {
			return err
		}
		increase, err := percent(*limit)
		var errs []error
		if err != nil {
			errs = append(errs, fmt.Errorf("--max-increase: %w", err))
		}
		if *limit != "" && !*diff {
			errs = append(errs, errors.New("--max-increase needs --diff"))
		}
		if *diff && printed.String() == "pprof" {
			errs = append(errs, errors.New("--output pprof is for one module; go tool pprof -diff_base compares two files"))
		}
		if *diff && printed.String() == "html" {
			errs = append(errs, errors.New("--output html is for one module"))
		}
		if *top < 0 {
			errs = append(errs, fmt.Errorf("--top is %d, less than 0", *top))
		}
		if *plugin != "" && len(f.files) != 0 {
			errs = append(errs, errors.New("--plugin is for a recording, and -f for objects"))
		}
		want, what := 1, "a module"
		if *diff {
			want, what = 2, "two modules"
		}
		recording := ""
		if len(f.files) == 0 {
			what = "a recording and " + what
			if len(arguments) != 0 {
				recording, arguments = arguments[0], arguments[1:]
			}
			flags.Visit(func(given *pflag.Flag) {
				if slices.Contains([]string{"config", "objects", "log", "grant", "see", "gatekeeper"}, given.Name) {
					errs = append(errs, fmt.Errorf("--%s is for objects: name a file of them with -f", given.Name))
				}
			})
		}
		if len(arguments) != want {
			errs = append(errs, fmt.Errorf("want %s", what))
		}
		if err := errors.Join(errs...); err != nil {
			return &usageError{fmt.Errorf("profile: %w", err)}
		}
		profiles := make([]*profile.Profile, len(arguments))
		for i, path := range arguments {
			if recording != "" {
				profiles[i], err = t.profileRecording(ctx, recording, *plugin, f.from, path)
			} else {
				profiles[i], err = t.profile(ctx, flags, f, path)
			}
			if err != nil {
				return err
			}
		}
		if *diff {
			return t.printDiff(profiles[0], profiles[1], *top, printed, increase)
		}
		return printed.print(t, profileResult(profiles[0], *top))
	}
}

// profile runs a module and returns the profile of its calls.
func (t *tool) profile(ctx context.Context, flags *pflag.FlagSet, f *runFlags, path string) (*profile.Profile, error) {
	trial, err := t.trial(ctx, flags, f, path)
	if err != nil {
		return nil, err
	}
	trial.cfg.Profiler = &host.Profiler{}
	if err := trial.run(ctx); err != nil {
		return nil, fmt.Errorf("profile %s: %w", path, err)
	}
	for _, err := range trial.failures {
		// The fuel of a failed call is in the profile, too.
		t.warn(err)
	}
	return trial.cfg.Profiler.Profile(), nil
}

// costs is the JSON form of a profile.
type costs struct {
	Plugin string         `json:"plugin"`
	SHA256 string         `json:"sha256"`
	Calls  int64          `json:"calls"`
	Fuel   int64          `json:"fuel"`
	Bytes  int64          `json:"bytes"`
	Top    []profile.Cost `json:"functions,omitempty"`
}

func costsOf(p *profile.Profile) costs {
	return costs{Plugin: p.Plugin, SHA256: p.Digest, Calls: p.Calls, Fuel: p.Fuel(), Bytes: p.Bytes()}
}

// profileResult returns the result about a profile, with its top functions.
func profileResult(p *profile.Profile, top int) result {
	c := costsOf(p)
	c.Top = p.Top(top)
	return result{value: c, other: map[string]func(io.Writer) error{
		"html": func(w io.Writer) error { return writeProfile(w, p, c.Top) }, "pprof": p.Write,
	}, text: func(w io.Writer) error {
		foreign.Fprintf(w, "%s: %d calls, %d fuel, memory grew by %d bytes\n", c.Plugin, c.Calls, c.Fuel, c.Bytes)
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "FLAT\tFLAT%\tCUM\tCUM%\tBYTES\t  FUNCTION")
		for _, f := range c.Top {
			foreign.Fprintf(table, "%d\t%s\t%d\t%s\t%d\t  %s\n", f.Flat, share(f.Flat, c.Fuel), f.Cumulative, share(f.Cumulative, c.Fuel), f.Bytes, f.Function)
		}
		return table.Flush()
	}}
}

// difference is the JSON form of a comparison of two profiles.
type difference struct {
	Old       costs        `json:"old"`
	New       costs        `json:"new"`
	Increase  string       `json:"increase"`
	Functions []costChange `json:"functions"`
}

// printDiff prints the cost of a new version beside that of an old one. The error is errRefused if
// it exceeds that of the old one by more than the share most, in percent; less than 0 allows any.
func (t *tool) printDiff(before, after *profile.Profile, top int, printed *output, most float64) error {
	d := difference{Old: costsOf(before), New: costsOf(after), Functions: diffProfiles(before, after)}
	d.Increase = signed(d.New.Fuel-d.Old.Fuel, d.Old.Fuel)
	if top > 0 && len(d.Functions) > top {
		d.Functions = d.Functions[:top]
	}
	if err := printed.print(t, result{value: d, text: d.writeText}); err != nil {
		return err
	}
	if most >= 0 && float64(d.New.Fuel-d.Old.Fuel) > most/100*float64(d.Old.Fuel) {
		fmt.Fprintf(t.err, "kubewasm: the new version costs %s fuel, and --max-increase allows %g%%\n", d.Increase, most)
		return errRefused
	}
	return nil
}

// writeText writes both costs and the functions that changed.
func (d *difference) writeText(w io.Writer) error {
	fmt.Fprintf(w, "fuel %d -> %d (%s), memory growth %d -> %d bytes, calls %d -> %d\n",
		d.Old.Fuel, d.New.Fuel, d.Increase, d.Old.Bytes, d.New.Bytes, d.Old.Calls, d.New.Calls)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "OLD\tNEW\tCHANGE\tBYTES\t  FUNCTION")
	for _, f := range d.Functions {
		foreign.Fprintf(table, "%d\t%d\t%+d\t%+d\t  %s\n", f.Old.Flat, f.New.Flat, f.New.Flat-f.Old.Flat, f.New.Bytes-f.Old.Bytes, f.Function)
	}
	return table.Flush()
}

func share(part, of int64) string {
	if of == 0 {
		return "0.0%"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(of))
}

func signed(change, of int64) string {
	if of == 0 {
		return fmt.Sprintf("%+d", change)
	}
	return fmt.Sprintf("%+.2f%%", 100*float64(change)/float64(of))
}

// percent reads a share such as 5%; "" is -1.
func percent(text string) (float64, error) {
	if text == "" {
		return -1, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(n >= 0) {
		return 0, fmt.Errorf("%q is no share such as 5%%", text)
	}
	return n, nil
}
