package replay

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/cut"
)

// Comparison is what two modules answered to the calls of a recording.
type Comparison struct {
	Old Side `json:"old"`
	New Side `json:"new"`
	// Calls is the number of calls that both repeated, and Different of those that they
	// answered differently, in whatever class. Skipped is the number of calls whose sequence
	// has no beginning in the recording, and Withheld of those of which the recording has
	// masked something.
	Calls     int `json:"calls"`
	Different int `json:"different"`
	Skipped   int `json:"skipped,omitempty"`
	Withheld  int `json:"withheld,omitempty"`
	// Drifted is the number of calls in which the old module did not cross as recorded,
	// although the recording is of it.
	Drifted int `json:"drifted,omitempty"`
	// Groups are the differences, the gravest first.
	Groups []*Group `json:"groups"`
	// Functions are what the functions used, by name.
	Functions []*Usage `json:"functions"`
}

// Side is one of the two modules.
type Side struct {
	SHA256 string        `json:"sha256"`
	Fuel   int64         `json:"fuel"`
	Time   time.Duration `json:"time"`
}

// Usage is what a function used in all calls.
type Usage struct {
	Plugin   string        `json:"plugin"`
	Function string        `json:"function"`
	Calls    int           `json:"calls"`
	OldFuel  int64         `json:"oldFuel"`
	NewFuel  int64         `json:"newFuel"`
	OldTime  time.Duration `json:"oldTime"`
	NewTime  time.Duration `json:"newTime"`
}

// Class is how grave a difference is.
type Class string

// The classes, the gravest first.
const (
	// Flipped is another verdict: what was answered is denied now, or fails.
	Flipped Class = "verdict"
	// Unrecorded is a question that the recording has no answer to. What the module would
	// have decided is not known.
	Unrecorded Class = "unrecorded"
	// Failure is another reason for which the guest did not return.
	Failure Class = "failure"
	// Result is another number with the same verdict: a score, an HTTP status.
	Result Class = "result"
	// Output is another decision, patch, or other bytes that the guest handed over.
	Output Class = "output"
	// Reason is another text for a denial or an error.
	Reason Class = "reason"
	// Logs are other lines that the guest logged or printed.
	Logs Class = "logs"
)

var classes = []Class{Flipped, Unrecorded, Failure, Result, Output, Reason, Logs}

// Group are differences of the same class in the same function.
type Group struct {
	Class    Class  `json:"class"`
	Plugin   string `json:"plugin"`
	Function string `json:"function"`
	// Detail is what they have in common: "answered → denied", the host function.
	Detail  string  `json:"detail,omitempty"`
	Calls   int     `json:"calls"`
	Example Example `json:"example"`
	// AfterFailure is the number of those whose sequence had a call before in which only one
	// of the modules failed: the memory of its instance was reset then.
	AfterFailure int `json:"afterFailure,omitempty"`
}

// Example is a call of a group.
type Example struct {
	Sequence uint64 `json:"sequence"`
	Number   uint64 `json:"number"`
	// About are texts of what the guest was given, as far as they can be printed.
	About string `json:"about,omitempty"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// ErrNoCalls is the error of a recording without a call that could be repeated.
var ErrNoCalls = errors.New("the recording has no calls of the module")

// Compare repeats the calls of a recording on two modules. Those are the calls of the plugin of
// that name or, if it is empty, of the module old or, if the recording is of another module,
// of the only one.
func Compare(ctx context.Context, rt *host.Runtime, recording *record.Recording, old, new []byte, plugin string) (*Comparison, error) {
	chosen, digests, err := choose(recording, plugin, old, new)
	if err != nil {
		return nil, err
	}
	x := &comparer{rt: rt, recording: recording, modules: [2][]byte{old, new}, groups: map[string]*Group{}, usage: map[string]*Usage{}}
	x.result.Old.SHA256, x.result.New.SHA256 = digests[0], digests[1]
	x.players = map[*record.Version][2]*Player{}
	defer func() {
		for _, pair := range x.players {
			for _, p := range pair {
				if p != nil {
					_ = p.Close(ctx)
				}
			}
		}
	}()
	for _, s := range chosen {
		if !s.Whole() {
			x.result.Skipped += s.Len()
			continue
		}
		if err := x.sequence(ctx, s); err != nil {
			return nil, err
		}
	}
	if x.result.Calls == 0 {
		return nil, ErrNoCalls
	}
	for _, g := range x.groups {
		x.result.Groups = append(x.result.Groups, g)
	}
	slices.SortFunc(x.result.Groups, func(a, b *Group) int {
		return cmp.Or(cmp.Compare(slices.Index(classes, a.Class), slices.Index(classes, b.Class)), cmp.Compare(b.Calls, a.Calls),
			strings.Compare(a.Plugin+a.Function+a.Detail, b.Plugin+b.Function+b.Detail))
	})
	for _, u := range x.usage {
		x.result.Functions = append(x.result.Functions, u)
	}
	slices.SortFunc(x.result.Functions, func(a, b *Usage) int { return strings.Compare(a.Plugin+a.Function, b.Plugin+b.Function) })
	return &x.result, nil
}

// choose returns the sequences to compare, and the digests of the modules.
func choose(recording *record.Recording, plugin string, modules ...[]byte) (list []*record.Sequence, digests []string, err error) {
	for _, m := range modules {
		about, err := host.Inspect(m)
		if err != nil {
			return nil, nil, fmt.Errorf("replay: %w", err)
		}
		digests = append(digests, about.Digest())
	}
	var names, others []string
	for _, s := range recording.Sequences() {
		v := s.Version
		if !slices.Contains(names, v.Plugin) {
			names = append(names, v.Plugin)
		}
		if !slices.Contains(others, v.SHA256) {
			others = append(others, v.SHA256)
		}
		if v.Plugin == plugin || plugin == "" && v.SHA256 == digests[0] {
			list = append(list, s)
		}
	}
	switch {
	case len(list) != 0:
		return list, digests, nil
	case plugin != "":
		return nil, nil, fmt.Errorf("%w: there is no plugin %q in it, only %s", ErrNoCalls, plugin, strings.Join(names, ", "))
	case len(others) == 1:
		return recording.Sequences(), digests, nil
	}
	return nil, nil, fmt.Errorf("%w with the sha256 %s: name one of the plugins %s", ErrNoCalls, digests[0], strings.Join(names, ", "))
}

type comparer struct {
	rt        *host.Runtime
	recording *record.Recording
	modules   [2][]byte
	players   map[*record.Version][2]*Player
	result    Comparison
	groups    map[string]*Group
	usage     map[string]*Usage
}

// sequence repeats a sequence on both modules.
func (x *comparer) sequence(ctx context.Context, s *record.Sequence) error {
	pair, ok := x.players[s.Version]
	if !ok {
		for n := range pair {
			var err error
			if pair[n], err = loadFor(ctx, x.rt, x.recording, s.Version, x.modules[n], Options{}); err != nil {
				return err
			}
			x.players[s.Version] = pair
		}
	}
	var started [2][]*record.Call
	for n, p := range pair {
		var err error
		if started[n], err = p.Begin(ctx, s); err != nil {
			return err
		}
	}
	apart := false
	for c, err := range s.Calls() {
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		var played [2]*Played
		for n, p := range pair {
			if c.Kind == record.ByStart || len(started[n]) > 0 {
				played[n] = &Played{}
				if len(started[n]) > 0 {
					played[n].Call, started[n] = started[n][0], started[n][1:]
				}
				continue
			}
			if played[n], err = p.Play(ctx, c); err != nil {
				return err
			}
		}
		if c.Kind != record.ByStart {
			x.add(c, pair[0].Recorded(), played, apart)
		}
		if failed := [2]bool{played[0].failed(), played[1].failed()}; failed[0] != failed[1] {
			apart = true
		}
	}
	return nil
}

// failed reports whether the guest did not return.
func (p *Played) failed() bool { return p.Call == nil || p.Call.End != record.Returned }

// add compares what the modules answered.
func (x *comparer) add(c *record.Call, recorded bool, played [2]*Played, apart bool) {
	x.result.Calls++
	if c.Marks&(record.Secret|record.Redacted) != 0 {
		x.result.Withheld++
	}
	old, fresh := answerOf(c, played[0]), answerOf(c, played[1])
	if recorded && played[0].Call != nil && c.Marks == 0 && Difference(c, played[0].Call) != "" {
		x.result.Drifted++
	}
	x.count(c, old, fresh)
	class, detail := old.differs(fresh)
	if class == "" {
		return
	}
	x.result.Different++
	key := strings.Join([]string{string(class), c.Version.Plugin, c.Function, detail}, "\x00")
	g := x.groups[key]
	if g == nil {
		g = &Group{
			Class: class, Plugin: c.Version.Plugin, Function: c.Function, Detail: detail,
			Example: Example{Sequence: c.Sequence, Number: c.Number, About: about(c), Old: old.text(class, detail), New: fresh.text(class, detail)},
		}
		x.groups[key] = g
	}
	g.Calls++
	if apart {
		g.AfterFailure++
	}
}

// count adds what a call used.
func (x *comparer) count(c *record.Call, old, fresh *answer) {
	key := c.Version.Plugin + "\x00" + c.Function
	u := x.usage[key]
	if u == nil {
		u = &Usage{Plugin: c.Version.Plugin, Function: c.Function}
		x.usage[key] = u
	}
	u.Calls++
	u.OldFuel, u.OldTime = u.OldFuel+old.fuel, u.OldTime+old.time
	u.NewFuel, u.NewTime = u.NewFuel+fresh.fuel, u.NewTime+fresh.time
	x.result.Old.Fuel, x.result.Old.Time = x.result.Old.Fuel+old.fuel, x.result.Old.Time+old.time
	x.result.New.Fuel, x.result.New.Time = x.result.New.Fuel+fresh.fuel, x.result.New.Time+fresh.time
}

// answer is what a module made of a call.
type answer struct {
	verdict record.Verdict
	missing string
	end     record.End
	trap    string
	result  uint64
	// outputs are what the guest handed over last, by the function that took it.
	outputs map[string][]byte
	reason  []byte
	logs    []byte
	fuel    int64
	time    time.Duration
}

// logging are the host functions that write to the log, of all dialects, and reasoning those
// that take a reason.
var (
	logging   = []string{"log", "logs", "__console_log", "log_message", "opa_println", "fd_write"}
	reasoning = []string{"status_reason", "result.status_reason"}
)

func answerOf(c *record.Call, p *Played) *answer {
	a := &answer{missing: p.Missing, outputs: map[string][]byte{}}
	if p.Call == nil {
		a.verdict = record.Failed
		a.trap = "the guest was not called"
		return a
	}
	got := *p.Call
	got.Version = c.Version // Its kind and dialect; imports are looked up below.
	a.verdict, a.end, a.trap, a.result = record.VerdictOf(&got), got.End, got.Trap, got.Result
	a.fuel, a.time = got.Fuel, got.Duration
	name, taken, answers := "", []byte(nil), false
	for i := range got.Events {
		e := &got.Events[i]
		switch e.Kind {
		case record.Host:
			name, taken, answers = "", nil, false
			if e.Index < len(p.Call.Version.Imports) {
				name = p.Call.Version.Imports[e.Index].Name
			}
		case record.Read:
			taken = append(taken, e.Data...)
		case record.Write, record.Put, record.Input, record.Invoke:
			answers = true
		case record.HostReturned:
			switch {
			case slices.Contains(logging, name):
				a.logs = append(append(a.logs, taken...), '\n')
			case slices.Contains(reasoning, name):
				a.reason = taken
			case taken != nil && !answers && (len(e.Args) == 0 || name == outputWithResult):
				a.outputs[name] = taken
			}
			name, taken = "", nil
		case record.Text:
			if name == "" && c.Kind == record.BySteps {
				a.outputs["result"] = e.Data
			}
		case record.Output:
			a.outputs["standard output"] = e.Data
		}
	}
	a.logs = append(a.logs, got.Output...)
	return a
}

// outputWithResult is a host function that takes something and says whether it could.
const outputWithResult = "write_output"

// differs returns the gravest difference of two answers.
func (a *answer) differs(b *answer) (class Class, detail string) {
	if a.missing != "" || b.missing != "" {
		if a.missing == b.missing {
			return "", ""
		}
		name, _, _ := strings.Cut(cmp.Or(b.missing, a.missing), " ")
		if b.missing == "" {
			name = "of the old module: " + name
		}
		return Unrecorded, name
	}
	switch {
	case a.verdict != b.verdict:
		return Flipped, fmt.Sprintf("%s → %s", a.verdict, b.verdict)
	case a.end != b.end || a.trap != b.trap:
		return Failure, ""
	case a.end == record.Returned && a.result != b.result:
		return Result, ""
	}
	names := make([]string, 0, len(a.outputs)+len(b.outputs))
	for name := range a.outputs {
		names = append(names, name)
	}
	for name := range b.outputs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		x, had := a.outputs[name]
		y, has := b.outputs[name]
		if had != has || !bytes.Equal(x, y) {
			return Output, name
		}
	}
	switch {
	case !bytes.Equal(a.reason, b.reason):
		return Reason, ""
	case !bytes.Equal(a.logs, b.logs):
		return Logs, ""
	}
	return "", ""
}

// maxExample is how long a text of an example is.
const maxExample = 300

// text returns an answer for an example of a class.
func (a *answer) text(class Class, detail string) string {
	switch class {
	case Unrecorded:
		if a.missing != "" {
			return "asks " + cut.Marked(a.missing, maxExample)
		}
	case Output:
		out, ok := a.outputs[detail]
		if !ok {
			return "nothing"
		}
		return cut.Marked(printable(out), maxExample)
	case Logs:
		return cut.Marked(printable(a.logs), maxExample)
	}
	switch {
	case a.end == record.Stopped:
		return "stopped for its time"
	case a.end == record.Trapped || a.trap != "":
		return cut.Marked("failed: "+a.trap, maxExample)
	}
	text := a.verdict.String()
	if class != Reason {
		text += fmt.Sprintf(", result %#x", a.result)
	}
	if len(a.reason) != 0 {
		text += ": " + printable(a.reason)
	} else if out := a.outputs["result"]; class == Flipped && len(out) != 0 {
		text += ": " + printable(out)
	}
	return cut.Marked(text, maxExample)
}

// printable returns text as it is, and other bytes quoted.
func printable(b []byte) string {
	if utf8.Valid(b) && !bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }) {
		return string(b)
	}
	return fmt.Sprintf("%.*q", maxExample, b)
}

// about returns texts of what a guest was given in a call, by which a person knows the request.
func about(c *record.Call) string {
	var words []string
	length := 0
	for i := range c.Events {
		e := &c.Events[i]
		if !e.ToGuest() || len(e.Data) == 0 || e.Kind == record.Random {
			continue
		}
		for word := range bytes.FieldsFuncSeq(e.Data[:min(len(e.Data), 4<<10)], func(r rune) bool { return r <= ' ' || r > '~' }) {
			if len(word) < 4 || slices.Contains(words, string(word)) {
				continue
			}
			words = append(words, cut.Text(word, 120))
			if length += len(word); length > 160 {
				return strings.Join(words, " ")
			}
		}
	}
	if len(words) == 0 && c.Kind == record.ByFunction && len(c.Args) != 0 {
		for _, ref := range c.Args {
			words = append(words, fmt.Sprintf("%d/%d", abi.Ref(ref).Slot(), abi.Ref(ref).Version()))
		}
	}
	return strings.Join(words, " ")
}
