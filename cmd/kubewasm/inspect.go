package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/internal/foreign"
)

func inspect(t *tool, flags *pflag.FlagSet) action {
	config := flags.String("config", "", "")
	gatekeeper := flags.Bool("gatekeeper", false, "")
	printed := outputFlags(flags)
	from := t.pullFlags(flags)
	return func(ctx context.Context, args []string) error {
		path, err := argument(flags, args, "")
		if err != nil {
			return err
		}
		guest, err := readConfig(*config)
		if err != nil {
			return err
		}
		file, bytes, err := t.module(ctx, path, from)
		if err != nil {
			return err
		}
		r, err := t.examine(ctx, trying{module: bytes, config: guest, gatekeeper: *gatekeeper})
		if err != nil {
			return fmt.Errorf("inspect %s: %w", file, err)
		}
		r.File = file
		err = printed.print(t, result{value: r, text: r.print})
		if err == nil && len(r.Problems) != 0 {
			err = errRefused
		}
		return err
	}
}

// print writes the examination as text.
func (r *examination) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name string, values ...any) { foreign.Fprintf(w, "%s\t%s\n", name, fmt.Sprint(values...)) }
	line("file", r.File)
	line("size", r.Bytes, " bytes")
	line("sha256", r.SHA256)
	if m := r.Metadata; m != nil {
		line("name", m.Name)
		line("version", m.Version)
		if m.Source != "" {
			line("source", m.Source)
		}
		if m.Licenses != "" {
			line("licenses", m.Licenses)
		}
		line("sdk", m.SDK)
		reads := "everything"
		if len(m.Reads) != 0 {
			reads = strings.Join(m.Reads, ", ")
		}
		line("reads", reads)
		for _, r := range m.Matches {
			line("matches", fmt.Sprintf("%s of %s in %s %s", strings.Join(r.Operations, ", "), strings.Join(r.Resources, ", "), cmp.Or(strings.Join(r.APIGroups, ", "), "core"), strings.Join(r.APIVersions, ", ")))
		}
		if m.State != "" {
			line("state", m.State)
		}
		if len(m.Decides) != 0 {
			line("decides", strings.Join(m.Decides, ", "))
		}
	} else {
		line("metadata", "none")
	}
	if r.foreign {
		line("dialect", r.ABI)
	}
	line("kinds", strings.Join(r.Kinds, ", "))
	line("functions", strings.Join(r.Functions, ", "))
	if len(r.EventsOf) != 0 {
		line("events of", strings.Join(r.EventsOf, ", "))
	}
	for _, s := range r.Services {
		what := "service"
		if s.Host {
			what = "host service"
		}
		line(what, s.Name)
		for _, m := range s.Methods {
			line("", m)
		}
	}
	for _, kind := range extensionKinds {
		if why := r.NotAs[kind.String()]; why != "" && len(r.Kinds) != 0 {
			line("not as "+kind.String(), why)
		}
	}
	printMinors(r.Kubernetes, line)
	grants := "none"
	if len(r.Grants) != 0 {
		grants = strings.Join(r.Grants, ", ")
	}
	line("grants", grants)
	if len(r.Lookups) != 0 {
		line("looks up", strings.Join(r.Lookups, ", "))
	}
	if r.Settings != "" {
		line("settings", "wanted: ", r.Settings)
	}
	most := "what the limits allow"
	if r.Memory.Maximum != 0 {
		most = fmt.Sprint(r.Memory.Maximum>>10, " KiB")
	}
	line("memory", r.Memory.Started>>10, " KiB once started, ", r.Memory.Initial>>10, " KiB declared, at most ", most)
	line("start", r.StartFuel, " instructions")
	for _, problem := range r.Problems {
		line("problem", problem)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nIMPORT\tSIGNATURE\tGRANT")
	for _, i := range r.Imports {
		grant := i.Grant
		if i.Optional {
			grant += " (a fake without it)"
		}
		foreign.Fprintf(w, "%s.%s\t%s\t%s\n", i.Module, i.Name, i.Signature, grant)
	}
	fmt.Fprintln(w, "\nEXPORT\tSIGNATURE")
	for _, e := range r.Exports {
		foreign.Fprintf(w, "%s\t%s\n", e.Name, e.Signature)
	}
	return w.Flush()
}
