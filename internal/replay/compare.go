package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/recording"
)

// Comparison compares the answers of two modules to the calls of a recording.
type Comparison struct {
	Old Side `json:"old"`
	New Side `json:"new"`
	// Calls is the number of calls that both repeated, and Different of those that they answered
	// differently, in whatever class. Skipped is the number of calls that cannot be repeated, since
	// the recording lacks earlier calls of their sequence. Withheld is the number of calls of which
	// the recording has masked something.
	Calls     int `json:"calls"`
	Different int `json:"different"`
	Skipped   int `json:"skipped,omitempty"`
	Withheld  int `json:"withheld,omitempty"`
	// Drifted is the number of calls in which the old module did not cross as recorded,
	// although the recording is of it.
	Drifted int `json:"drifted,omitempty"`
	Damage
	// Groups are the differences, the gravest first.
	Groups []*Group `json:"groups"`
	// Functions are the resources used by the functions, by name.
	Functions []*Usage `json:"functions"`
}

// Side is one of the two modules.
type Side struct {
	SHA256 string        `json:"sha256"`
	Fuel   int64         `json:"fuel"`
	Time   time.Duration `json:"time"`
}

// Usage is the resources used by a function in all calls.
type Usage struct {
	Plugin   string        `json:"plugin"`
	Function string        `json:"function"`
	Calls    int           `json:"calls"`
	OldFuel  int64         `json:"oldFuel"`
	NewFuel  int64         `json:"newFuel"`
	OldTime  time.Duration `json:"oldTime"`
	NewTime  time.Duration `json:"newTime"`
}

// Class is the severity of a difference.
type Class string

// The classes, the gravest first.
const (
	// Flipped is a different verdict: a call that was answered is denied now, or fails.
	Flipped Class = "verdict"
	// Unrecorded is a question without an answer in the recording. The decision that the module
	// would have made is not known.
	Unrecorded Class = "unrecorded"
	// Failure is a different reason for which the guest did not return.
	Failure Class = "failure"
	// Result is a different number with the same verdict: a score, an HTTP status.
	Result Class = "result"
	// Output is a different answer handed over by the guest: a decision, a patch, or other bytes.
	Output Class = "output"
	// Effect is a different sequence of effects beside the guest's answer: events, waiting Pods
	// that it allowed or rejected, calls of the functions of an embedder.
	Effect Class = "effect"
	// Reason is a different text for a denial or an error.
	Reason Class = "reason"
	// Logs are different lines that the guest logged or printed.
	Logs Class = "logs"
)

var classes = []Class{Flipped, Unrecorded, Failure, Result, Output, Effect, Reason, Logs}

// Group are differences of the same class in the same function.
type Group struct {
	Class    Class  `json:"class"`
	Plugin   string `json:"plugin"`
	Function string `json:"function"`
	// Detail names their common change: "answered → denied", the codes, the host function, the
	// path of the field or the patch that differs.
	Detail  string  `json:"detail,omitempty"`
	Calls   int     `json:"calls"`
	Example Example `json:"example"`
	// Objects lists the known objects of the calls, each once: "Pod shop/web", 10,000 at most.
	// MoreObjects is set if there are others.
	Objects     []string `json:"objects,omitempty"`
	MoreObjects bool     `json:"moreObjects,omitempty"`
	listed      map[string]bool
	// AfterFailure is the number of calls after a call of the same sequence in which only one of
	// the modules failed: the memory of its instance was reset then.
	AfterFailure int `json:"afterFailure,omitempty"`
}

// Example is a call of a group.
type Example struct {
	Sequence uint64 `json:"sequence"`
	Number   uint64 `json:"number"`
	// About names the object of the call or, if that is not known, quotes texts given to the guest.
	About string `json:"about,omitempty"`
	Old   string `json:"old"`
	New   string `json:"new"`
}

// ErrNoCalls is the error of a recording without a call that could be repeated.
var ErrNoCalls = errors.New("the recording has no calls of the module")

// Compare repeats the calls of a recording on two modules. Those are the calls of the plugin of
// that name or, if it is empty, of the module old or, if the recording is of another module,
// of the only one.
func Compare(ctx context.Context, rt *host.Runtime, recorded *recording.Recording, old, new []byte, plugin string) (*Comparison, error) {
	chosen, digests, err := choose(recorded, plugin, old, new)
	if err != nil {
		return nil, err
	}
	x := &comparer{rt: rt, recorded: recorded, modules: [2][]byte{old, new}, groups: map[string]*Group{}, usage: map[string]*Usage{}}
	x.result.Damage = damageOf(recorded)
	x.result.Old.SHA256, x.result.New.SHA256 = digests[0], digests[1]
	x.players = map[*recording.Version][2]*Player{}
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
		x.result.Skipped += s.Lost()
		if s.Len() == 0 {
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
func choose(recorded *recording.Recording, plugin string, modules ...[]byte) (list []*recording.Sequence, digests []string, err error) {
	for _, m := range modules {
		about, err := host.Inspect(m)
		if err != nil {
			return nil, nil, fmt.Errorf("replay: %w", err)
		}
		digests = append(digests, about.Digest())
	}
	var names, others []string
	for _, s := range recorded.Sequences() {
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
		return recorded.Sequences(), digests, nil
	}
	return nil, nil, fmt.Errorf("%w with the sha256 %s: name one of the plugins %s", ErrNoCalls, digests[0], strings.Join(names, ", "))
}

type comparer struct {
	rt       *host.Runtime
	recorded *recording.Recording
	modules  [2][]byte
	players  map[*recording.Version][2]*Player
	result   Comparison
	groups   map[string]*Group
	usage    map[string]*Usage
	names    names
}

const (
	// maxGroups is the maximum number of groups, beside one in each class for all others.
	maxGroups = 1000
	// maxObjects is the maximum number of objects listed by a group.
	maxObjects = 10_000
)

// sequence repeats a sequence on both modules.
func (x *comparer) sequence(ctx context.Context, s *recording.Sequence) error {
	pair, ok := x.players[s.Version]
	if !ok {
		for n := range pair {
			var err error
			if pair[n], err = loadFor(ctx, x.rt, x.recorded, s.Version, x.modules[n], Options{}); err != nil {
				return err
			}
			pair[n].script.loose = n == 0
			x.players[s.Version] = pair
		}
	}
	var started [2][]*recording.Call
	for n, p := range pair {
		var err error
		if started[n], err = p.Begin(ctx, s); err != nil {
			return err
		}
	}
	apart, n := false, 0
	for c, err := range s.Calls() {
		if errors.Is(err, recording.ErrMalformed) {
			x.result.Skipped += s.Len() - n
			x.result.add(err.Error())
			return nil
		}
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return err
		}
		n++
		var played [2]*Played
		asked := c
		for n, p := range pair {
			if c.Kind == recording.ByStart || len(started[n]) > 0 {
				played[n] = &Played{}
				if len(started[n]) > 0 {
					played[n].Call, started[n] = started[n][0], started[n][1:]
				}
				continue
			}
			if played[n], err = p.Play(ctx, asked); err != nil {
				return err
			}
			if n == 0 {
				asked = unmasked(c, played[0].Call)
			}
		}
		if c.Kind != recording.ByStart {
			x.add(c, pair[0].Recorded(), played, apart)
		}
		if failed := [2]bool{played[0].failed(), played[1].failed()}; failed[0] != failed[1] {
			apart = true
		}
	}
	return nil
}

// unmasked returns a call in which bytes from the old module's replay replace masked ones: masked
// bytes cannot show whether the new module asks the same.
func unmasked(c, played *recording.Call) *recording.Call {
	if c.Marks&(recording.Secret|recording.Redacted) == 0 || played == nil {
		return c
	}
	asked := *c
	asked.Events = slices.Clone(c.Events)
	answered, again := fromRecording(c.Version, asked.Events), fromRecording(c.Version, played.Events)
	for i := range min(len(answered), len(again)) {
		e, said := &asked.Events[answered[i]], &played.Events[again[i]]
		if e.Kind != said.Kind || e.Index != said.Index {
			break // It went another way.
		}
		// A text without an answer may have another length.
		if e.FromGuest() && len(e.Data) == len(said.Data) {
			e.Data = said.Data
		}
	}
	return &asked
}

// fromRecording returns the indexes of the events without those in calls of functions that the host
// answers by itself: how often a guest looks at the clock depends on its garbage.
func fromRecording(v *recording.Version, events []recording.Event) (list []int) {
	depth, live := 0, 0
	for i := range events {
		e := &events[i]
		if e.Kind == recording.Host || e.Kind == recording.Invoke {
			depth++
			if live == 0 && e.Kind == recording.Host && answersItself(v, e.Index) {
				live = depth
			}
		}
		if live == 0 {
			list = append(list, i)
		}
		if e.Kind == recording.HostReturned || e.Kind == recording.Invoked {
			if live == depth {
				live = 0
			}
			depth--
		}
	}
	return list
}

// failed reports whether the guest did not return.
func (p *Played) failed() bool { return p.Call == nil || p.Call.End != recording.Returned }

// add compares the answers of the modules.
func (x *comparer) add(c *recording.Call, recorded bool, played [2]*Played, apart bool) {
	x.result.Calls++
	if c.Marks&(recording.Secret|recording.Redacted) != 0 {
		x.result.Withheld++
	}
	old, fresh := answerOf(c, played[0]), answerOf(c, played[1])
	if recorded && played[0].Call != nil && c.Marks == 0 && Difference(c, played[0].Call) != "" {
		x.result.Drifted++
	}
	x.count(c, old, fresh)
	x.names.learn(c)
	d := old.differs(fresh)
	if d == nil {
		return
	}
	x.result.Different++
	plugin, function := c.Version.Plugin, c.Function
	key := func() string { return strings.Join([]string{string(d.class), plugin, function, d.detail}, "\x00") }
	g := x.groups[key()]
	if g == nil && len(x.groups) >= maxGroups {
		plugin, function, d.detail = "", "", "others"
		g = x.groups[key()]
	}
	object := x.names.of(c)
	if g == nil {
		g = &Group{
			Class: d.class, Plugin: plugin, Function: function, Detail: d.detail, listed: map[string]bool{},
			Example: Example{Sequence: c.Sequence, Number: c.Number, About: cmp.Or(object, about(c)), Old: d.old, New: d.new},
		}
		x.groups[key()] = g
	}
	g.Calls++
	if apart {
		g.AfterFailure++
	}
	switch {
	case object == "" || g.listed[object]:
	case len(g.Objects) >= maxObjects:
		g.MoreObjects = true
	default:
		g.listed[object] = true
		g.Objects = append(g.Objects, object)
	}
}

// count adds the resources used by a call.
func (x *comparer) count(c *recording.Call, old, fresh *answer) {
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
