package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/profile"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// profileModule is the command profile.
func profileModule(ctx context.Context, t *tool, args []string) error {
	flags := t.flags("profile")
	f := t.runFlags(flags)
	out := flags.String("o", "", "")
	top := flags.Int("top", 20, "")
	asJSON := flags.Bool("json", false, "")
	diff := flags.Bool("diff", false, "")
	limit := flags.String("max-increase", "", "")
	plugin := flags.String("plugin", "", "")
	arguments, err := parseArguments(flags, args, 3)
	if err != nil {
		return err
	}
	increase, err := percent(*limit)
	var errs []error
	if err != nil {
		errs = append(errs, fmt.Errorf("-max-increase: %w", err))
	}
	if *limit != "" && !*diff {
		errs = append(errs, errors.New("-max-increase needs -diff"))
	}
	if *diff && *out != "" {
		errs = append(errs, errors.New("-o is for one module; go tool pprof -diff_base compares two files"))
	}
	if *top < 0 {
		errs = append(errs, fmt.Errorf("-top is %d, less than 0", *top))
	}
	if *plugin != "" && f.file != "" {
		errs = append(errs, errors.New("-plugin is for a recording, and -f for objects"))
	}
	want, what := 1, "a module"
	if *diff {
		want, what = 2, "two modules"
	}
	recording := ""
	if f.file == "" {
		what = "a recording and " + what
		if len(arguments) != 0 {
			recording, arguments = arguments[0], arguments[1:]
		}
		flags.Visit(func(given *flag.Flag) {
			if slices.Contains([]string{"config", "objects", "log", "grant", "see", "gatekeeper"}, given.Name) {
				errs = append(errs, fmt.Errorf("-%s is for objects: name a file of them with -f", given.Name))
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
		return t.printDiff(profiles[0], profiles[1], *top, *asJSON, increase)
	}
	if *out != "" {
		if err := writeProfile(*out, profiles[0]); err != nil {
			return err
		}
	}
	return t.printProfile(profiles[0], *top, *asJSON)
}

// profile runs a module and returns where its calls spent their fuel.
func (t *tool) profile(ctx context.Context, flags *flag.FlagSet, f *runFlags, path string) (*profile.Profile, error) {
	trial, err := t.trial(ctx, flags, f, path, io.Discard)
	if err != nil {
		return nil, err
	}
	trial.cfg.Profiler = &host.Profiler{}
	if err := trial.run(ctx); err != nil {
		return nil, fmt.Errorf("profile %s: %w", path, err)
	}
	for _, err := range trial.failures {
		// What a call spent that failed is in the profile, too.
		t.warn(err)
	}
	return trial.cfg.Profiler.Profile(), nil
}

// writeProfile writes the file that pprof reads.
func writeProfile(path string, p *profile.Profile) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(p.Write(file), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// costs is what is printed about a profile in JSON.
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

func (t *tool) printProfile(p *profile.Profile, top int, asJSON bool) error {
	c := costsOf(p)
	c.Top = p.Top(top)
	if asJSON {
		return t.json(c)
	}
	foreign.Fprintf(t.out, "%s: %d calls, %d fuel, memory grew by %d bytes\n", c.Plugin, c.Calls, c.Fuel, c.Bytes)
	table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "FLAT\tFLAT%\tCUM\tCUM%\tBYTES\t  FUNCTION")
	for _, f := range c.Top {
		foreign.Fprintf(table, "%d\t%s\t%d\t%s\t%d\t  %s\n", f.Flat, share(f.Flat, c.Fuel), f.Cumulative, share(f.Cumulative, c.Fuel), f.Bytes, f.Function)
	}
	return table.Flush()
}

// difference is what is printed about two profiles in JSON.
type difference struct {
	Old       costs            `json:"old"`
	New       costs            `json:"new"`
	Increase  string           `json:"increase"`
	Functions []profile.Change `json:"functions"`
}

// printDiff prints what a new version costs beside an old one. The error is errRefused if that
// is more than the old one and the share most of it, in percent; less than 0 allows any.
func (t *tool) printDiff(before, after *profile.Profile, top int, asJSON bool, most float64) error {
	d := difference{Old: costsOf(before), New: costsOf(after), Functions: profile.Diff(before, after)}
	d.Increase = signed(d.New.Fuel-d.Old.Fuel, d.Old.Fuel)
	if top > 0 && len(d.Functions) > top {
		d.Functions = d.Functions[:top]
	}
	if asJSON {
		if err := t.json(d); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(t.out, "fuel %d -> %d (%s), memory growth %d -> %d bytes, calls %d -> %d\n",
			d.Old.Fuel, d.New.Fuel, d.Increase, d.Old.Bytes, d.New.Bytes, d.Old.Calls, d.New.Calls)
		table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(table, "OLD\tNEW\tCHANGE\tBYTES\t  FUNCTION")
		for _, f := range d.Functions {
			foreign.Fprintf(table, "%d\t%d\t%+d\t%+d\t  %s\n", f.Old.Flat, f.New.Flat, f.New.Flat-f.Old.Flat, f.New.Bytes-f.Old.Bytes, f.Function)
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if most >= 0 && float64(d.New.Fuel-d.Old.Fuel) > most/100*float64(d.Old.Fuel) {
		fmt.Fprintf(t.err, "kubewasm: the new version costs %s fuel, and -max-increase allows %g%%\n", d.Increase, most)
		return errRefused
	}
	return nil
}

// json prints a value.
func (t *tool) json(v any) error {
	e := json.NewEncoder(t.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
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
