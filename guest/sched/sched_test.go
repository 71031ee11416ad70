package sched

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

func TestStatus(t *testing.T) {
	tests := map[string]struct {
		status  *Status
		code    abi.Code
		reason  string
		text    string
		success bool
	}{
		"nil":                          {nil, abi.Success, "", "Success", true},
		"success":                      {NewStatus(abi.Success), abi.Success, "", "Success", true},
		"error":                        {AsStatus(errors.New("no luck")), abi.Error, "no luck", "Error: no luck", false},
		"no error":                     {AsStatus(nil), abi.Success, "", "Success", true},
		"unschedulable":                {Unschedulable("node ", "n1", " is full"), abi.Unschedulable, "node n1 is full", "Unschedulable: node n1 is full", false},
		"unschedulable without reason": {Unschedulable(), abi.Unschedulable, "", "Unschedulable", false},
		"unresolvable":                 {UnschedulableAndUnresolvable("gone"), abi.UnschedulableAndUnresolvable, "gone", "UnschedulableAndUnresolvable: gone", false},
		"two reasons":                  {twoReasons(), abi.Unschedulable, "no cpu, no memory", "Unschedulable: no cpu, no memory", false},
		"skip":                         {Skip(), abi.Skip, "", "Skip", false},
		"any code":                     {NewStatus(abi.Pending, "later"), abi.Pending, "later", "Pending: later", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := test.status
			if s.Code() != test.code || s.Reason() != test.reason || s.String() != test.text || s.IsSuccess() != test.success {
				t.Errorf("got %s %q %q %v, want %s %q %q %v", s.Code(), s.Reason(), s.String(), s.IsSuccess(), test.code, test.reason, test.text, test.success)
			}
		})
	}
}

func twoReasons() *Status {
	s := Unschedulable()
	s.AppendReason("no cpu")
	s.AppendReason("no memory")
	return s
}

func TestCycleState(t *testing.T) {
	s := NewCycleState()
	read := func(key string) any {
		v, ok := s.Read(key)
		if ok != (v != nil) {
			t.Errorf("%s: got %v, %v", key, v, ok)
		}
		return v
	}
	s.Write("a", 1)
	s.Write("b", 2)
	s.Write("a", 3)
	if got := []any{read("a"), read("b"), read("c")}; !cmp.Equal(got, []any{3, 2, nil}) {
		t.Errorf("got %v", got)
	}
	s.Delete("a")
	s.Delete("none")
	if got := []any{read("a"), read("b")}; !cmp.Equal(got, []any{nil, 2}) {
		t.Errorf("after Delete got %v", got)
	}
	s.c.reset()
	if got := read("b"); got != nil {
		t.Errorf("the next cycle reads %v", got)
	}
}

// counted is a state that can be cloned.
type counted struct{ n int }

func (c *counted) Clone() StateData { return &counted{c.n} }

func TestClonesOfACycleState(t *testing.T) {
	s := NewCycleState()
	s.Write("count", &counted{1})
	s.Write("name", "a")
	s.Write("found", true)
	clone, ok := s.Clone()
	if !ok {
		t.Fatal("it cannot be cloned")
	}
	v, _ := clone.Read("count")
	v.(*counted).n = 2
	clone.Write("name", "b")
	clone.Delete("found")
	clone.Write("more", 1)
	if v, _ := s.Read("count"); v.(*counted).n != 1 {
		t.Error("the count of the original changed")
	}
	if diff := cmp.Diff([]string{"count", "name", "found"}, s.c.keys); diff != "" {
		t.Errorf("the keys of the original changed (-want +got):\n%s", diff)
	}
	if v, _ := s.Read("name"); v != "a" {
		t.Errorf("the name of the original is %v", v)
	}
	s.Write("list", []int{1}) // Which of the two may change it?
	if clone, ok := s.Clone(); ok || len(clone.c.keys) != 0 {
		t.Errorf("a list was cloned: %v", clone.c.values)
	}
}

func TestNodesInTheirOrder(t *testing.T) {
	named := func(name string) NodeInfo {
		return NewNodeInfo(core.NodeFromJSON([]byte(`{"metadata": {"name": "` + name + `"}}`)))
	}
	var got []string
	for i, n := range NewNodeInfos(named("b"), named("a"), named("c")).All {
		if i == 2 {
			break
		}
		got = append(got, n.Node().Metadata().Name())
	}
	if diff := cmp.Diff([]string{"b", "a"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for range (NodeInfos{}).All {
		t.Error("no nodes has a node")
	}
}

func TestSlots(t *testing.T) {
	var s slots[string]
	at := func(version, number uint32) (*slot[string], bool) { return s.at(abi.MakeRef(version, number)) }
	if e, renewed := at(1, 5); !renewed || e.view != "" {
		t.Errorf("a new slot holds %q, renewed %v", e.view, renewed)
	} else {
		e.view = "five"
	}
	at(1, 9)
	if e, renewed := at(1, 5); renewed || e.view != "five" {
		t.Errorf("the same version holds %q, renewed %v", e.view, renewed)
	}
	if e, renewed := at(2, 5); !renewed || e.view != "five" {
		t.Errorf("the next version holds %q, renewed %v", e.view, renewed)
	}
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "slot beyond the largest") {
			t.Errorf("got panic %q", r)
		}
	}()
	at(1, maxSlot)
}

// The parts that plugins are made of.
type (
	preFilters struct{}
	filters    struct{}
	scores     struct{}
	normalizes struct{}
)

func (preFilters) PreFilter(CycleState, core.Pod, NodeInfos) (*PreFilterResult, *Status) {
	return nil, nil
}
func (filters) Filter(CycleState, core.Pod, NodeInfo) *Status                 { return nil }
func (scores) Score(CycleState, core.Pod, NodeInfo) (int64, *Status)          { return 0, nil }
func (normalizes) NormalizeScore(CycleState, core.Pod, NodeScoreList) *Status { return nil }

type almost struct{}

// Filter lacks the state.
func (almost) Filter(core.Pod, NodeInfo) *Status { return nil }

type reserves struct{}

func (reserves) Reserve(CycleState, core.Pod, string) *Status { return nil }

type onPointer struct{}

func (*onPointer) Score(CycleState, core.Pod, NodeInfo) (int64, *Status) { return 0, nil }

// TestRegister registers one plugin after the other, as a guest with several
// would: so the order of the table counts.
func TestRegister(t *testing.T) {
	t.Cleanup(func() {
		registered.preFilter, registered.filter, registered.score, registered.normalize = nil, nil, nil, nil
	})
	tests := []struct {
		name   string
		plugin any
		panic  string
	}{
		{"nothing", nil, "implements no extension point"},
		{"no method", struct{}{}, "implements no extension point"},
		{"another signature", almost{}, "method Filter of sched.almost is a func(core.Pod, sched.NodeInfo) *sched.Status, want a func(sched.CycleState, core.Pod, "},
		{"another signature beside a good one", struct {
			preFilters
			almost
		}{}, "want a func(sched.CycleState, core.Pod, "},
		{"one of two", reserves{}, "sched.reserves has methods of sched.ReservePlugin, but not [Unreserve]"},
		{"a value whose pointer has the method", onPointer{}, "sched.onPointer implements sched.ScorePlugin on its pointer: register a pointer"},
		{"NormalizeScore without Score", normalizes{}, "NormalizeScore without Score"},
		{"Filter", filters{}, ""},
		{"Filter again", &filters{}, "two plugins implement filter"},
		{"the rest", struct {
			preFilters
			scores
			normalizes
		}{}, ""},
		{"one of them again", struct{ preFilters }{}, "two plugins implement prefilter"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			defer func() {
				got, _ := recover().(string)
				if test.panic == "" && got != "" || !strings.Contains(got, test.panic) {
					t.Errorf("panic %q, want %q", got, test.panic)
				}
			}()
			Register(test.plugin)
		})
	}
	if registered.preFilter == nil || registered.filter == nil || registered.score == nil || registered.normalize == nil {
		t.Errorf("registered %+v, want all", registered)
	}
}
