package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/recording"
	"github.com/kubewasm/kubewasm/internal/replay"
)

// replayReport is the result of a replay, in the forms that CI reads.
type replayReport interface {
	WriteText(w io.Writer) error
	WriteJSON(w io.Writer) error
	WriteJUnit(w io.Writer) error
}

// replayCalls repeats the calls of a recording.
func replayCalls(t *tool, flags *pflag.FlagSet) action {
	diff := flags.Bool("diff", false, "")
	printed := outputFlags(flags, "html", "junit")
	plugin := flags.String("plugin", "", "")
	damaged := flags.Bool("damaged", false, "")
	from := t.pullFlags(flags)
	return func(ctx context.Context, args []string) (err error) {
		arguments, err := atMost(flags, args, 3)
		if err != nil {
			return err
		}
		want := 2
		if *diff {
			want = 3
		}
		if len(arguments) != want {
			return &usageError{fmt.Errorf("replay: %d arguments, want %d", len(arguments), want)}
		}
		if *plugin != "" && !*diff {
			return &usageError{fmt.Errorf("replay: --plugin needs --diff: without it the digest of the module says whose calls are repeated")}
		}
		if printed.String() == "html" && !*diff {
			return &usageError{fmt.Errorf("replay: --output html needs --diff, whose differences it shows")}
		}
		path, modules := arguments[0], arguments[1:]
		recorded, err := recording.Open(path)
		if err != nil {
			return err
		}
		var loaded [][]byte
		for _, m := range modules {
			_, bytes, err := t.module(ctx, m, from)
			if err != nil {
				return err
			}
			loaded = append(loaded, bytes)
		}
		without := func(v *recording.Version) bool { return !v.GoPass }
		rt, err := host.NewRuntime(host.RuntimeConfig{DisableGoPass: slices.ContainsFunc(recorded.Versions(), without)})
		if err != nil {
			return err
		}
		defer func() {
			if closed := rt.Close(context.WithoutCancel(ctx)); err == nil {
				err = closed
			}
		}()
		repeating := t.working("repeating " + path)
		r, lost, same, err := repeat(ctx, rt, recorded, loaded, *plugin)
		repeating.end()
		if err != nil {
			return err
		}
		other := map[string]func(io.Writer) error{"junit": r.WriteJUnit}
		if c, ok := r.(*replay.Comparison); ok {
			other["html"] = func(w io.Writer) error { return writeComparison(w, c) }
		}
		if err := printed.print(t, result{value: r, text: r.WriteText, other: other}); err != nil {
			return err
		}
		switch {
		case !same:
			return errRefused
		case len(lost.Damaged) != 0 && !*damaged:
			return fmt.Errorf("the recording is damaged: %s (and --damaged takes it as it is)", foreign.Lines(lost.Damaged[0]))
		}
		return nil
	}
}

// repeat verifies one module, or compares two, and reports the losses of the recording and whether
// everything is the same.
func repeat(ctx context.Context, rt *host.Runtime, recorded *recording.Recording, modules [][]byte, plugin string) (replayReport, replay.Damage, bool, error) {
	if len(modules) == 2 {
		c, err := replay.Compare(ctx, rt, recorded, modules[0], modules[1], plugin)
		if err != nil {
			return nil, replay.Damage{}, false, err
		}
		return c, c.Damage, c.Different == 0, nil
	}
	v, err := replay.Verify(ctx, rt, recorded, modules[0], replay.Options{})
	if err != nil {
		return nil, replay.Damage{}, false, err
	}
	if v.Calls == 0 {
		return nil, replay.Damage{}, false, fmt.Errorf("%w: %s", replay.ErrNoCalls, recorded.Summary())
	}
	return v, v.Damage, v.Different == 0, nil
}
