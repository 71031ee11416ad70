package rollouts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/status"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// model is a plugin with its processes, and a controller that decides about it.
type model struct {
	random *rand.Rand
	key    plugin.Key
	now    time.Time
	status *v1alpha1.RolloutStatus
	reason string

	// The spec.
	generation int64
	wanted     int64
	rollout    *clusterplugins.Rollout
	// bad are the revisions that fail.
	bad map[int64]bool
	// declared are the revisions that the spec has wanted.
	declared map[int64]bool

	processes []*process
	named     int
	// log has what was done.
	log []string
}

// process serves what the status says, at the times at which it hears of it.
type process struct {
	name     string
	labels   labels.Set
	state    *reports.State
	revision int64 // 0 for none.
	took     int64 // The trial with which it took the revision.
}

func (m *model) note(format string, args ...any) { m.log = append(m.log, fmt.Sprintf(format, args...)) }

func (m *model) add() {
	m.named++
	p := &process{name: fmt.Sprintf("p%d", m.named), labels: labels.Set{"pool": []string{"a", "b", "c"}[m.random.IntN(3)]}}
	m.processes = append(m.processes, p)
}

// hear lets a process take the version of the status, as clusterplugins.Watch chooses it, and report.
func (m *model) hear(p *process) {
	s := m.status
	if s == nil {
		return
	}
	var revision, took int64
	if s.Stable != nil {
		revision = s.Stable.Revision
	}
	if s.Candidate != nil {
		r := &rollout{input: &input{key: m.key}, result: result{status: *s}}
		in := r.takes(&status.Process{Name: p.name, Labels: p.labels})
		switch {
		case in && s.Mode == string(clusterplugins.Shadow):
			took = s.Trial
		case in || s.Stable == nil && m.key.Kind != plugin.NodeHook:
			revision, took = s.Candidate.Revision, s.Trial
		}
	}
	p.revision, p.took = revision, took
	if revision == 0 {
		p.state = nil
		return
	}
	p.state = &reports.State{State: "Serving", Revision: revision, Trial: took}
	if took != 0 && m.bad[s.Candidate.Revision] && m.random.IntN(2) == 0 {
		p.state.Failing = "it fails"
	}
}

// decide has a controller decide: one that was killed before it wrote changes nothing.
func (m *model) decide(t *testing.T) {
	in := &input{key: m.key, generation: m.generation, rollout: m.rollout, now: m.now, wanted: v1alpha1.RevisionRef{Revision: m.wanted, Generation: m.wanted, Spec: &runtime.RawExtension{Raw: []byte("{}")}}}
	for _, p := range m.processes {
		in.processes = append(in.processes, status.Process{Name: p.name, Labels: p.labels, State: p.state})
	}
	before := m.status.DeepCopy()
	res := next(m.status, in)
	if !equality.Semantic.DeepEqual(before, m.status) {
		t.Fatalf("a decision has changed its input: %s", cmp.Diff(before, m.status))
	}
	if m.random.IntN(4) == 0 {
		m.note("the controller is killed")
		return
	}
	m.check(t, before, res, in)
	m.status = &res.status
	if res.reason != "" {
		m.reason = res.reason
	}
	m.note("%s: %s", m.reason, res.message)
	// Nothing is written again.
	if again := next(m.status, in); again.cause != "" && res.cause != "" || m.status.Step == res.status.Step && res.wait == 0 && !equality.Semantic.DeepEqual(again.status, *m.status) {
		t.Fatalf("a second decision differs (-first +second):\n%s", cmp.Diff(*m.status, again.status))
	}
}

func (m *model) check(t *testing.T, before *v1alpha1.RolloutStatus, res *result, in *input) {
	t.Helper()
	s := &res.status
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\nbefore %+v\nafter %+v\n%s", fmt.Sprintf(format, args...), before, s, strings.Join(m.log, "\n"))
	}
	for _, ref := range []*v1alpha1.RevisionRef{s.Stable, s.Candidate} {
		if ref != nil && !m.declared[ref.Revision] {
			fail("revision %d was never declared", ref.Revision)
		}
	}
	stable := func(s *v1alpha1.RolloutStatus) int64 {
		if s == nil || s.Stable == nil {
			return 0
		}
		return s.Stable.Revision
	}
	if was, is := stable(before), stable(s); was != is {
		switch {
		case is != m.wanted:
			fail("revision %d became stable, and %d is wanted", is, m.wanted)
		case m.rollout == nil: // At once.
		case before == nil || before.Candidate == nil || before.Candidate.Revision != is || before.Step == 0:
			fail("revision %d became stable without a trial", is)
		}
	}
	failing := false
	for i := range in.processes {
		state := in.processes[i].State
		if before == nil || before.Step == 0 || state == nil || state.Failing == "" || state.Trial != before.Trial {
			continue
		}
		of := &rollout{input: in, result: result{status: *before}}
		failing = failing || of.takes(&in.processes[i]) || of.monitors()
	}
	if failing && before.Candidate.Revision == m.wanted && m.rollout != nil && (s.Step != 0 || s.Failed != m.wanted) {
		fail("it goes on, though it fails")
	}
	if s.Step == 0 || s.Candidate == nil {
		return
	}
	r := &rollout{input: in, result: result{status: *s}}
	taken, selected := 0, 0
	for i := range in.processes {
		p := &in.processes[i]
		if r.takes(p) {
			taken++
		}
		if slices.ContainsFunc(m.rollout.Steps[:min(int(s.Step), len(m.rollout.Steps))], func(one clusterplugins.RolloutStep) bool {
			selector, err := labels.Parse(one.NodeSelector)
			return err == nil && one.NodeSelector != "" && selector.Matches(p.Labels)
		}) {
			selected++
		}
		// Within one trial, processes are only added.
		if before != nil && before.Trial == s.Trial && before.Mode == s.Mode {
			was := &rollout{input: in, result: result{status: *before}}
			if was.takes(p) && !r.takes(p) {
				fail("%s has lost the candidate in the middle of its trial", p.Name)
			}
		}
	}
	// The first step is no larger than declared.
	if begun := before == nil || before.Trial != s.Trial; begun {
		var one clusterplugins.RolloutStep // All of the declared ones were skipped.
		if int(s.Step) <= len(m.rollout.Steps) {
			one = m.rollout.Steps[s.Step-1]
		}
		percent := one.Percent
		if percent == 0 && one.NodeSelector == "" {
			percent = 100
		}
		if most := (len(in.processes)*percent+99)/100 + selected; taken > most {
			fail("%d of %d processes take a step of %d percent and of %d selected nodes", taken, len(in.processes), percent, selected)
		}
	}
}

func (m *model) change() {
	m.generation++
	var numbers []int64
	for n := range m.declared {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	if len(numbers) == 0 || m.random.IntN(2) == 0 {
		m.wanted = int64(len(numbers) + 1)
		m.bad[m.wanted] = m.random.IntN(3) == 0
	} else {
		m.wanted = numbers[m.random.IntN(len(numbers))]
	}
	m.declared[m.wanted] = true
	m.rollout = &clusterplugins.Rollout{Paused: m.random.IntN(8) == 0}
	zero := time.Duration(0)
	for range m.random.IntN(4) + 1 {
		one := clusterplugins.RolloutStep{Pause: []*time.Duration{nil, &zero}[m.random.IntN(2)]}
		switch m.random.IntN(4) {
		case 0:
			if m.key.Kind == plugin.NodeHook {
				one.NodeSelector = "pool=" + []string{"a", "b"}[m.random.IntN(2)]
			}
		case 1:
			one.Mode = []clusterplugins.TrialMode{clusterplugins.Shadow, clusterplugins.Monitor}[m.random.IntN(2)]
		default:
			one.Percent = m.random.IntN(100) + 1
		}
		m.rollout.Steps = append(m.rollout.Steps, one)
	}
	if m.random.IntN(10) == 0 {
		m.rollout = nil
	}
	m.note("generation %d wants %d, bad %v, by %+v", m.generation, m.wanted, m.bad[m.wanted], m.rollout)
}

// Random histories of changes, roll backs, pauses, failures, processes that come, go and are renamed,
// and controllers that are killed: what serves was declared, no step is larger than declared, none is
// skipped, a failure ends the trial, and without one each rollout ends.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(50) {
		for _, kind := range []string{plugin.NodeHook, plugin.ClusterAdmissionPolicy} {
			m := &model{
				random: rand.New(rand.NewPCG(seed, 1)), key: plugin.Key{Kind: kind, Name: "p"}, now: time.Unix(1e9, 0),
				bad: map[int64]bool{}, declared: map[int64]bool{},
			}
			for range m.random.IntN(30) {
				m.add()
			}
			m.change()
			for range 150 {
				switch m.random.IntN(20) {
				case 0:
					m.change()
				case 1:
					m.add()
				case 2:
					if n := len(m.processes); n > 0 {
						i := m.random.IntN(n)
						m.note("%s goes", m.processes[i].name)
						m.processes = slices.Delete(m.processes, i, i+1)
					}
				case 3, 4, 5, 6, 7, 8:
					m.decide(t)
				case 9:
					m.now = m.now.Add(time.Duration(m.random.IntN(200)) * time.Second)
				default:
					if n := len(m.processes); n > 0 {
						m.hear(m.processes[m.random.IntN(n)])
					}
				}
			}
			// In the end all hear, and time passes.
			if m.rollout != nil {
				m.rollout.Paused = false
				m.generation++
			}
			for range 200 {
				m.decide(t)
				for _, p := range m.processes {
					m.hear(p)
				}
				m.now = m.now.Add(20 * time.Second)
			}
			failed := m.status.Failed == m.wanted
			want := m.wanted
			if failed {
				if want = 0; m.status.Stable != nil {
					want = m.status.Stable.Revision
				} else if kind != plugin.NodeHook {
					want = m.wanted // It only monitors.
				}
			}
			if failed != (m.reason == reasonRolledBack) || failed && !m.bad[m.wanted] || !failed && m.reason != reasonComplete {
				t.Fatalf("seed %d, %s: it ends with %s of revision %d, bad %v\n%s", seed, kind, m.reason, m.wanted, m.bad[m.wanted], strings.Join(m.log, "\n"))
			}
			for _, p := range m.processes {
				if p.revision != want {
					t.Fatalf("seed %d, %s: %s serves %d, want %d\n%s", seed, kind, p.name, p.revision, want, strings.Join(m.log, "\n"))
				}
			}
		}
	}
}

// A step waits for its processes until its deadline, but not for a few of many, and not while the
// rollout is paused.
func TestSteps(t *testing.T) {
	start := time.Unix(1e9, 0)
	zero := time.Duration(0)
	const serving, stale = "Serving", "Stale"
	for name, test := range map[string]struct {
		rollout clusterplugins.Rollout
		elapsed time.Duration
		serving int // Of 20 processes.
		off     bool
		want    string
	}{
		"before its pause ends":            {clusterplugins.Rollout{Steps: []clusterplugins.RolloutStep{{}}}, 59 * time.Second, 20, false, "Progressing in 1s"},
		"after its pause":                  {clusterplugins.Rollout{Steps: []clusterplugins.RolloutStep{{}}}, time.Minute, 20, false, "Complete in 0s"},
		"one of 20 is away":                {clusterplugins.Rollout{Steps: []clusterplugins.RolloutStep{{Pause: &zero}}}, 0, 19, false, "Complete in 0s"},
		"two of 20 are away":               {clusterplugins.Rollout{Steps: []clusterplugins.RolloutStep{{Pause: &zero}}}, 0, 18, false, "Progressing in 10m0s"},
		"two of 20, and a tenth may be":    {clusterplugins.Rollout{Unavailable: new(10), Steps: []clusterplugins.RolloutStep{{Pause: &zero}}}, 0, 18, false, "Complete in 0s"},
		"none serves, and all may be away": {clusterplugins.Rollout{Unavailable: new(100), Steps: []clusterplugins.RolloutStep{{Pause: &zero}}}, 0, 0, false, "Progressing in 10m0s"},
		"at the deadline":                  {clusterplugins.Rollout{ProgressDeadline: time.Minute, Steps: []clusterplugins.RolloutStep{{Pause: &zero}}}, time.Minute, 18, false, "RolledBack in 0s: DeadlineExceeded"},
		"paused at the deadline":           {clusterplugins.Rollout{Paused: true, ProgressDeadline: time.Minute, Steps: []clusterplugins.RolloutStep{{Pause: &zero}}}, time.Minute, 18, false, "Paused in 0s"},
		"disabled at the deadline":         {clusterplugins.Rollout{ProgressDeadline: time.Minute, Steps: []clusterplugins.RolloutStep{{Pause: &zero}}}, time.Minute, 18, true, "Paused in 0s"},
		"the clock was a day ahead":        {clusterplugins.Rollout{Steps: []clusterplugins.RolloutStep{{}}}, -24 * time.Hour, 20, false, "Progressing in 1m0s"},
		"another step follows":             {clusterplugins.Rollout{Steps: []clusterplugins.RolloutStep{{Pause: &zero}, {}}}, 0, 20, false, "Progressing in 100ms"},
	} {
		in := &input{key: plugin.Key{Kind: plugin.NodeHook, Name: "h"}, generation: 2, rollout: &test.rollout, off: test.off, now: start.Add(test.elapsed), wanted: v1alpha1.RevisionRef{Revision: 2, Generation: 2}}
		for i := range 20 {
			state := &reports.State{State: serving, Revision: 2, Trial: 2}
			if i >= test.serving {
				state = &reports.State{State: stale, Revision: 1}
			}
			in.processes = append(in.processes, status.Process{Name: fmt.Sprintf("n%02d", i), State: state})
		}
		res := next(&v1alpha1.RolloutStatus{
			Generation: 2, Wanted: 2, Stable: &v1alpha1.RevisionRef{Revision: 1, Generation: 1}, Candidate: &v1alpha1.RevisionRef{Revision: 2, Generation: 2}, Trial: 2,
			Step: 1, Since: &metav1.Time{Time: start}, Below: clusterplugins.Places, Failures: 1,
		}, in)
		got := fmt.Sprintf("%s in %s", res.reason, res.wait)
		if res.cause != "" {
			got += ": " + res.cause
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s: %s", name, got, test.want, res.message)
		}
	}
}

// A tag that moves begins another trial of the same generation: what processes still report on the one
// before is not about it.
func TestAnotherTrialOfAGeneration(t *testing.T) {
	in := &input{
		key: plugin.Key{Kind: plugin.ClusterAdmissionPolicy, Name: "p"}, generation: 5, rollout: &clusterplugins.Rollout{}, now: time.Unix(1e9, 0),
		wanted: v1alpha1.RevisionRef{Revision: 2, Generation: 5}, processes: []status.Process{{Name: "a"}},
	}
	state := &v1alpha1.RolloutStatus{Generation: 4, Wanted: 1, Stable: &v1alpha1.RevisionRef{Revision: 1, Generation: 4}}
	var got []string
	decide := func() {
		res := next(state, in)
		state = &res.status
		got = append(got, fmt.Sprintf("%s of %d, trial %d", res.reason, state.Wanted, state.Trial))
	}
	decide()
	in.processes[0].State = &reports.State{State: "Serving", Revision: 1, Trial: 5, Failing: "3 of 10 answers differ"}
	decide()
	in.wanted.Revision, in.pin = 3, "r@sha256:b"
	decide()
	decide()
	in.generation, in.wanted.Revision = 6, 4
	decide()
	want := []string{"Progressing of 2, trial 5", "RolledBack of 2, trial 5", "Progressing of 3, trial 6", "Progressing of 3, trial 6", "Progressing of 4, trial 7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestWhatAProcessCanVeto holds that only processes of the step stop a rollout, and as many as the
// analysis says.
func TestWhatAProcessCanVeto(t *testing.T) {
	step := clusterplugins.RolloutStep{NodeSelector: "pool=a"}
	for name, tt := range map[string]struct {
		kind      string
		processes int
		failing   []int // Those with an even number are in the step.
		first     bool
		want      string
	}{
		"one of the step":                      {kind: plugin.NodeHook, failing: []int{0}, want: "RolledBack"},
		"all that are in no step":              {kind: plugin.NodeHook, failing: []int{1, 3, 5, 7}, want: "Progressing"},
		"fewer than those that decide":         {kind: plugin.NodeHook, processes: 3, failing: []int{0, 2, 1, 3}, want: "Progressing"},
		"as many as decide":                    {kind: plugin.NodeHook, processes: 3, failing: []int{0, 2, 6}, want: "RolledBack"},
		"all of a step with fewer than decide": {kind: plugin.NodeHook, processes: 9, failing: []int{0, 2, 4, 6}, want: "RolledBack"},
		"the first revision of a policy":       {kind: plugin.ClusterAdmissionPolicy, first: true, failing: []int{1}, want: "RolledBack"},
		"a further revision of a policy":       {kind: plugin.ClusterAdmissionPolicy, failing: []int{1}, want: "Progressing"},
	} {
		in := &input{
			key: plugin.Key{Kind: tt.kind, Name: "p"}, generation: 5, now: time.Unix(1e9, 0), wanted: v1alpha1.RevisionRef{Revision: 2, Generation: 5},
			rollout: &clusterplugins.Rollout{Steps: []clusterplugins.RolloutStep{step}, Analysis: clusterplugins.RolloutAnalysis{Processes: tt.processes}},
		}
		for i := range 8 {
			in.processes = append(in.processes, status.Process{Name: fmt.Sprint(i), Labels: labels.Set{"pool": string("ab"[i%2])}})
		}
		before := &v1alpha1.RolloutStatus{Generation: 4, Wanted: 1, Stable: &v1alpha1.RevisionRef{Revision: 1, Generation: 4}}
		if tt.first {
			before = nil
		}
		begun := next(before, in)
		for _, i := range tt.failing {
			in.processes[i].State = &reports.State{State: "Serving", Revision: 2, Trial: begun.status.Trial, Failing: "it fails"}
		}
		if got := next(&begun.status, in); got.reason != tt.want {
			t.Errorf("%s: %s, want %s: %s", name, got.reason, tt.want, got.message)
		}
	}
}

// The places of a percentage are exact for the processes that there are, and differ by plugin.
func TestBelow(t *testing.T) {
	firsts := map[string]bool{}
	for i := range 20 {
		r := &rollout{input: &input{key: plugin.Key{Kind: plugin.NodeHook, Name: fmt.Sprintf("h%d", i)}}}
		for n := range 30 {
			r.processes = append(r.processes, status.Process{Name: fmt.Sprintf("n%d", n)})
		}
		for _, percent := range []int{0, 1, 3, 4, 50, 99, 100} {
			r.status.Below = r.below(percent)
			got := 0
			for n := range r.processes {
				if r.takes(&r.processes[n]) {
					if got++; percent == 1 {
						firsts[r.processes[n].Name] = true
					}
				}
			}
			if want := (30*percent + 99) / 100; got != want {
				t.Errorf("%d percent of 30 processes are %d, want %d", percent, got, want)
			}
		}
	}
	if len(firsts) < 5 {
		t.Errorf("the first processes of 20 plugins are %v", firsts)
	}
}
