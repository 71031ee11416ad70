package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// Verification is the result of repeating a recording on the recorded module.
type Verification struct {
	// Calls is the number of calls that were repeated, and Exact of those that crossed as
	// recorded: results, reasons, logs, every byte, and fuel.
	Calls int `json:"calls"`
	Exact int `json:"exact"`
	// Withheld is the number of calls that crossed as recorded in their unmasked parts: data of
	// Secrets were masked, or the operator's redaction changed them.
	Withheld int `json:"withheld,omitempty"`
	// Unpromised is the number of calls that differ although they may: they are redacted, or their
	// guest met the end of the process's memory.
	Unpromised int `json:"unpromised,omitempty"`
	// FuelOnly is the number of calls that crossed as recorded except for their fuel, on a host
	// that counts fuel differently from the recording one: see OtherEngine.
	FuelOnly int `json:"fuelOnly,omitempty"`
	// Skipped is the number of calls that cannot be repeated, since the recording lacks earlier
	// calls of their sequence.
	Skipped int `json:"skipped,omitempty"`
	Damage
	// Other is the number of calls of modules other than the given one.
	Other int `json:"other,omitempty"`
	// Differences are the calls that differ, the first ones of them.
	Differences []Mismatch `json:"differences,omitempty"`
	// Different is the number of all calls that differ.
	Different int `json:"different"`
	// OtherEngine is set if the recording host counted fuel differently from this one, by another
	// version of the metering or without the pass for Go's compiler.
	OtherEngine bool `json:"otherEngine,omitempty"`
	// Fuel is the fuel of all calls that were repeated.
	Fuel int64 `json:"fuel"`
}

// Mismatch is a call that did not cross as recorded.
type Mismatch struct {
	Plugin   string `json:"plugin"`
	Sequence uint64 `json:"sequence"`
	Number   uint64 `json:"number"`
	Function string `json:"function"`
	What     string `json:"what"`
}

func (m Mismatch) String() string {
	return fmt.Sprintf("plugin %q: %s, call %d of sequence %d: %s", m.Plugin, m.Function, m.Number, m.Sequence, m.What)
}

// maxMismatches is the maximum number of mismatches kept.
const maxMismatches = 100

// Damage lists the losses of a recording.
type Damage struct {
	// Damaged names the parts that cannot be read, the first thousand of them.
	Damaged []string `json:"damaged,omitempty"`
	// Dropped is the number of calls that were not recorded.
	Dropped uint64 `json:"dropped,omitempty"`
}

func damageOf(r *recording.Recording) Damage {
	d := Damage{Dropped: r.Dropped()}
	for _, p := range r.Problems() {
		d.add(p.String())
	}
	return d
}

// maxDamaged is the maximum number of texts kept about damage.
const maxDamaged = 1000

func (d *Damage) add(text string) {
	if len(d.Damaged) < maxDamaged {
		d.Damaged = append(d.Damaged, text)
	}
}

// Verify repeats the calls of a recording on the recorded module, and compares the data that
// crosses with the recorded data. Calls of other modules are left out.
//
// The error is one of the recording or of loading the module.
func Verify(ctx context.Context, rt *host.Runtime, recorded *recording.Recording, module []byte, opts Options) (*Verification, error) {
	about, err := host.Inspect(module)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	opts.Closely = true
	result := &Verification{Damage: damageOf(recorded)}
	players := map[*recording.Version]*Player{}
	defer func() {
		for _, p := range players {
			_ = p.Close(ctx)
		}
	}()
	for _, s := range recorded.Sequences() {
		if s.Version.SHA256 != about.Digest() {
			result.Other += s.Len() + s.Lost()
			continue
		}
		result.Skipped += s.Lost()
		if s.Len() == 0 {
			continue
		}
		p := players[s.Version]
		if p == nil {
			if p, err = loadFor(ctx, rt, recorded, s.Version, module, opts); err != nil {
				return nil, err
			}
			players[s.Version] = p
		}
		if err := result.sequence(ctx, p, s); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// loadFor loads a module for a version of a recording.
func loadFor(ctx context.Context, rt *host.Runtime, recorded *recording.Recording, v *recording.Version, module []byte, opts Options) (*Player, error) {
	start, err := recorded.Start(v)
	if err != nil {
		return nil, err
	}
	return Load(ctx, rt, v, start, module, opts)
}

// sequence repeats a sequence.
func (v *Verification) sequence(ctx context.Context, p *Player, s *recording.Sequence) error {
	started, err := p.Begin(ctx, s)
	if err != nil {
		return err
	}
	n := 0
	for c, err := range s.Calls() {
		if errors.Is(err, recording.ErrMalformed) {
			v.Skipped += s.Len() - n
			v.Damage.add(err.Error())
			return nil
		}
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		n++
		var got *recording.Call
		if len(started) > 0 {
			got, started = started[0], started[1:]
		} else {
			played, err := p.Play(ctx, c)
			if err != nil {
				return err
			}
			got = played.Call
		}
		v.add(c, got)
	}
	return nil
}

// add compares a call.
func (v *Verification) add(c, got *recording.Call) {
	v.Calls++
	what, otherEngine := "the guest was not called", false
	if got != nil {
		what = Difference(c, got)
		v.Fuel += got.Fuel
		otherEngine = got.Version.Engine != c.Version.Engine || got.Version.GoPass != c.Version.GoPass
		v.OtherEngine = v.OtherEngine || otherEngine
	}
	withheld := c.Marks&(recording.Secret|recording.Redacted) != 0
	switch {
	case what == "" && withheld:
		v.Withheld++
	case what == "":
		v.Exact++
	case otherEngine && difference(c, got) == "":
		v.FuelOnly++
	case c.Marks != 0:
		v.Unpromised++
	default:
		v.Different++
		if len(v.Differences) < maxMismatches {
			v.Differences = append(v.Differences, Mismatch{c.Version.Plugin, c.Sequence, c.Number, c.Function, what})
		}
	}
}

// Difference returns the first difference of a repeated call from the recorded one, empty if there
// is none. Of masked bytes it compares the lengths, and of masked numbers nothing.
func Difference(want, got *recording.Call) string {
	if what := difference(want, got); what != "" || want.Fuel == got.Fuel {
		return what
	}
	return fmt.Sprintf("used %d fuel, recorded %d", got.Fuel, want.Fuel)
}

// difference is Difference without the fuel.
func difference(want, got *recording.Call) string {
	masked := want.Marks&(recording.Secret|recording.Redacted) != 0
	differ := func(a, b []byte) bool { return len(a) != len(b) || !masked && !bytes.Equal(a, b) }
	for i := range min(len(want.Events), len(got.Events)) {
		w, g := &want.Events[i], &got.Events[i]
		if w.Kind != g.Kind || w.Index != g.Index {
			return fmt.Sprintf("event %d is %s, recorded %s", i, describeEvent(got.Version, g), describeEvent(want.Version, w))
		}
		if !equal(w.Args, g.Args, masked) || differ(w.Data, g.Data) {
			return fmt.Sprintf("event %d, %s, differs: %s", i, describeEvent(want.Version, w), describeChange(w, g, masked))
		}
	}
	switch {
	case len(want.Events) != len(got.Events):
		return fmt.Sprintf("has %d events, recorded %d", len(got.Events), len(want.Events))
	case want.End != got.End:
		return fmt.Sprintf("%s, recorded %s", got.Describe(), want.Describe())
	case want.Result != got.Result:
		played := *got
		played.Version, got = want.Version, &played // Its kind and dialect.
		return fmt.Sprintf("returned %s, recorded %s", got.Returned(), want.Returned())
	case differ([]byte(want.Trap), []byte(got.Trap)):
		return fmt.Sprintf("trapped: %.200s, recorded %.200s", got.Trap, want.Trap)
	case differ(want.Output, got.Output):
		return fmt.Sprintf("printed %.200q, recorded %.200q", got.Output, want.Output)
	}
	return ""
}

// equal reports whether numbers equal the recorded ones, or are masked by 0.
func equal(recorded, got []uint64, masked bool) bool {
	return slices.EqualFunc(recorded, got, func(r, g uint64) bool { return r == g || masked && r == 0 })
}

// describeChange describes the difference of two events.
func describeChange(w, g *recording.Event, masked bool) string {
	if !equal(w.Args, g.Args, masked) {
		return fmt.Sprintf("%#x, recorded %#x", g.Args, w.Args)
	}
	if masked || len(w.Data) != len(g.Data) {
		return fmt.Sprintf("%d bytes, recorded %d", len(g.Data), len(w.Data))
	}
	at := 0
	for at < len(w.Data) && w.Data[at] == g.Data[at] {
		at++
	}
	return fmt.Sprintf("at byte %d %.60q, recorded %.60q", at, g.Data[at:], w.Data[at:])
}

var eventNames = map[recording.EventKind]string{
	recording.HostReturned: "the return of a host function", recording.Read: "the guest's argument", recording.Write: "an answer to the guest",
	recording.Put: "a write to the guest's memory", recording.Text: "a text of the guest", recording.Charge: "a charge", recording.Spend: "fuel",
	recording.Input: "standard input", recording.Output: "standard output", recording.Argument: "an argument", recording.Invoked: "the return of an export",
	recording.Abort: "the host's end of the call", recording.Value: "an external number", recording.Random: "random numbers",
	recording.Confidential: "a mark",
}

func describeEvent(v *recording.Version, e *recording.Event) string {
	switch e.Kind {
	case recording.Host:
		if e.Index < len(v.Imports) {
			return "the call of " + v.Imports[e.Index].String()
		}
	case recording.Invoke:
		if e.Index < len(v.Exports) {
			return "the call of the export " + v.Exports[e.Index].Name
		}
	}
	if name := eventNames[e.Kind]; name != "" {
		return name
	}
	return fmt.Sprintf("event of the kind %d", e.Kind)
}
