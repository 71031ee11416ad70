package rollouts

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/status"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// The defaults of a rollout.
const (
	defaultPause       = time.Minute
	defaultDeadline    = 10 * time.Minute
	defaultUnavailable = 5
	// again is the time after which a step that has begun is judged.
	again = 100 * time.Millisecond
)

// The reasons of the condition RolledOut.
const (
	reasonComplete    = "Complete"
	reasonProgressing = "Progressing"
	reasonPaused      = "Paused"
	reasonRolledBack  = "RolledBack"
	reasonGone        = "RevisionGone"
	reasonInvalid     = "Invalid"
	reasonNotResolved = "NotResolved"
	reasonTooLarge    = "TooLarge"
)

// reasons are all of them.
var reasons = []string{reasonComplete, reasonProgressing, reasonPaused, reasonRolledBack, reasonGone, reasonInvalid, reasonNotResolved, reasonTooLarge}

// input is what a decision depends on.
type input struct {
	key        plugin.Key
	generation int64
	pin        string
	// wanted is the revision that the spec wants, with its spec.
	wanted v1alpha1.RevisionRef
	// rollout is nil if the revision serves at once.
	rollout *clusterplugins.Rollout
	// off is set for a plugin that is disabled, whose rollout stands still.
	off       bool
	processes []status.Process
	now       time.Time
}

// result is a decision. Without a reason, the condition stays as it is.
type result struct {
	status          v1alpha1.RolloutStatus
	reason, message string
	// wait is the time after which the decision may be another, 0 for never.
	wait time.Duration
	// cause is set if the candidate is rolled back by this decision: Failing or DeadlineExceeded.
	cause string
}

// rollout is a decision being made.
type rollout struct {
	*input
	result
}

// next returns the decision that follows a status, nil for none.
func next(before *v1alpha1.RolloutStatus, in *input) *result {
	r := &rollout{input: in}
	if before != nil {
		before.DeepCopyInto(&r.status)
	}
	s := &r.status
	changed := s.Generation != in.generation
	s.Generation, s.Pin, s.Wanted = in.generation, in.pin, in.wanted.Revision
	if changed || s.Failed != in.wanted.Revision {
		s.Failed = 0
	}
	switch {
	case in.rollout == nil || s.Stable != nil && s.Stable.Revision == in.wanted.Revision:
		s.Stable = in.wanted.DeepCopy()
		r.end(nil)
		r.reason, r.message = reasonComplete, fmt.Sprintf("revision %d is stable", in.wanted.Revision)
		return &r.result
	case s.Failed != 0:
		return &r.result
	}
	steps := r.steps()
	switch paused := in.rollout.Paused || in.off; {
	case s.Candidate == nil || s.Candidate.Revision != in.wanted.Revision || s.Step == 0:
		r.end(r.parked())
		if paused {
			r.reason, r.message = reasonPaused, fmt.Sprintf("the rollout of revision %d has not begun%s", in.wanted.Revision, r.beside())
			return &r.result
		}
		// A tag that moves begins another trial of the generation, on which earlier reports are not.
		s.Candidate, s.Trial = in.wanted.DeepCopy(), max(in.generation, s.Trial+1)
		r.bounds()
		r.begin(steps[0])
		r.progress()
		return &r.result
	case changed:
		r.bounds()
		i := slices.IndexFunc(steps, func(one step) bool { return one.number >= s.Step })
		if i < 0 {
			i = len(steps) - 1
		}
		r.begin(steps[i])
	}
	r.judge(steps)
	return &r.result
}

// step is a step with its defaults, and its number in the list, from 1.
type step struct {
	clusterplugins.RolloutStep
	number int32
	pause  time.Duration
}

// steps returns the steps for the candidate, at least one.
func (r *rollout) steps() (steps []step) {
	for i, one := range r.rollout.Steps {
		if one.Mode == clusterplugins.Shadow && r.status.Stable == nil || one.Mode == clusterplugins.Monitor && r.status.Stable != nil {
			continue
		}
		pause := defaultPause
		if one.Pause != nil {
			pause = *one.Pause
		}
		steps = append(steps, step{one, int32(i + 1), pause})
	}
	if len(steps) == 0 {
		pause := defaultPause
		steps = append(steps, step{number: int32(len(r.rollout.Steps) + 1), pause: pause})
	}
	return steps
}

// parked returns the candidate while none is on trial: a policy without a stable revision monitors, so
// that the requests that have an entry for it do not fail.
func (r *rollout) parked() *v1alpha1.RevisionRef {
	if r.monitors() {
		return r.wanted.DeepCopy()
	}
	return nil
}

// end ends the trial. Its number stays, since processes go on to report on it.
func (r *rollout) end(candidate *v1alpha1.RevisionRef) {
	s := &r.status
	s.Candidate, s.Step, s.Since = candidate, 0, nil
	s.Below, s.NodeSelectors, s.Mode = 0, nil, ""
	s.Failures, s.Differences, s.Latency = 0, 0, ""
}

// bounds sets those of the analysis.
func (r *rollout) bounds() {
	a := &r.rollout.Analysis
	r.status.Failures, r.status.Differences, r.status.Latency = max(a.Failures, 1), a.Differences, ""
	if a.Latency != 0 {
		r.status.Latency = a.Latency.String()
	}
}

// begin begins a step, which adds processes to those that have the candidate.
func (r *rollout) begin(one step) {
	s := &r.status
	if one.Mode != "" || s.Mode != "" {
		s.Below, s.NodeSelectors = 0, nil
	}
	s.Step, s.Since, s.Mode = one.number, &metav1.Time{Time: r.now.Truncate(time.Second)}, string(one.Mode)
	if one.NodeSelector != "" && !slices.Contains(s.NodeSelectors, one.NodeSelector) {
		s.NodeSelectors = append(s.NodeSelectors, one.NodeSelector)
	}
	r.extend(one)
}

// extend has the step include its share of the processes that there are. It takes the candidate from
// none.
func (r *rollout) extend(one step) {
	percent := one.Percent
	if percent == 0 && one.NodeSelector == "" {
		percent = 100
	}
	r.status.Below = max(r.status.Below, r.below(percent))
}

// below returns the place below which a percentage of the processes is, rounded up.
func (r *rollout) below(percent int) int64 {
	n := len(r.processes)
	switch {
	case percent >= 100:
		return clusterplugins.Places
	case percent == 0:
		return 0
	case n == 0:
		return int64(percent) * clusterplugins.Places / 100
	}
	places := make([]int64, n)
	for i := range r.processes {
		places[i] = r.place(&r.processes[i])
	}
	slices.Sort(places)
	return places[(n*percent+99)/100-1] + 1
}

func (r *rollout) place(p *status.Process) int64 {
	return clusterplugins.Place(r.key.Kind, r.key.Namespace, r.key.Name, p.Name)
}

// takes reports whether the step is for a process.
func (r *rollout) takes(p *status.Process) bool {
	return r.place(p) < r.status.Below || slices.ContainsFunc(r.status.NodeSelectors, func(text string) bool {
		selector, err := labels.Parse(text)
		return err == nil && selector.Matches(p.Labels)
	})
}

// monitors reports whether the processes outside of a step have the candidate, too.
func (r *rollout) monitors() bool {
	return r.status.Stable == nil && plugin.Component(r.key.Kind) == plugin.Webhook
}

// judge finds whether the step goes on, ends, or has failed.
func (r *rollout) judge(steps []step) {
	s := &r.status
	i := slices.IndexFunc(steps, func(one step) bool { return one.number == s.Step })
	if i < 0 { // Not while the spec is the same.
		i = 0
		r.begin(steps[0])
	}
	one := steps[i]
	r.extend(one) // Replicas may have other names by now.
	var all, serving, failing int
	var example *status.Process
	for i := range r.processes {
		p := &r.processes[i]
		in := r.takes(p)
		if in {
			all++
		}
		switch state := p.State; {
		case state == nil || state.Trial != s.Trial:
		case state.Failing != "" && !in && !r.monitors():
			// It has no part in the step, whatever it reports.
		case state.Failing != "":
			if failing++; example == nil {
				example = p
			}
		case in && state.State == string(host.Serving) && (s.Mode == string(clusterplugins.Shadow) || state.Revision == s.Candidate.Revision):
			serving++
		}
	}
	where := r.where()
	if failing != 0 && failing >= min(max(r.rollout.Analysis.Processes, 1), all) {
		r.back("Failing", fmt.Sprintf("%s: it fails on %d of %d processes, as on %s: %s", where, failing, all, example.Name, example.State.Failing))
		return
	}
	tolerated := all * defaultUnavailable / 100
	if u := r.rollout.Unavailable; u != nil {
		tolerated = all * *u / 100
	}
	complete := serving+tolerated >= all && (serving > 0 || all == 0)
	elapsed := r.now.Sub(s.Since.Time)
	if elapsed < 0 { // The clock was ahead when the step began.
		s.Since, elapsed = &metav1.Time{Time: r.now.Truncate(time.Second)}, 0
	}
	deadline := one.pause + cmp.Or(r.rollout.ProgressDeadline, defaultDeadline)
	switch {
	case r.rollout.Paused || r.off:
		r.reason, r.message = reasonPaused, fmt.Sprintf("the rollout of revision %d is paused %s%s", s.Wanted, where, r.beside())
		return
	case complete && elapsed >= one.pause && i+1 < len(steps):
		r.begin(steps[i+1])
		r.progress()
		return
	case complete && elapsed >= one.pause:
		s.Stable = s.Candidate
		r.end(nil)
		r.reason, r.message = reasonComplete, fmt.Sprintf("revision %d is stable", s.Wanted)
		return
	case complete:
		r.wait = one.pause - elapsed
	case elapsed >= deadline:
		r.back("DeadlineExceeded", fmt.Sprintf("%s: only %d of %d processes serve it after %s", where, serving, all, elapsed.Truncate(time.Second)))
		return
	default:
		r.wait = deadline - elapsed
	}
	wait := r.wait
	r.progress()
	r.wait = wait
}

// progress describes a step, which is judged again soon.
func (r *rollout) progress() {
	r.reason, r.message = reasonProgressing, fmt.Sprintf("revision %d is %s%s", r.status.Wanted, r.where(), r.beside())
	r.wait = again
}

// where describes the step.
func (r *rollout) where() string {
	return fmt.Sprintf("in step %d of %d", r.status.Step, max(len(r.rollout.Steps), int(r.status.Step)))
}

// beside describes the revision of the other processes.
func (r *rollout) beside() string {
	if r.status.Stable == nil {
		return ""
	}
	return fmt.Sprintf("; the stable revision is %d", r.status.Stable.Revision)
}

// back rolls the candidate back.
func (r *rollout) back(cause, why string) {
	s := &r.status
	s.Failed = s.Wanted
	r.end(r.parked())
	serves := "; no revision serves"
	switch {
	case s.Stable != nil:
		serves = fmt.Sprintf("; revision %d serves", s.Stable.Revision)
	case s.Candidate != nil:
		serves = "; it only monitors"
	}
	r.cause, r.wait = cause, 0
	r.reason, r.message = reasonRolledBack, fmt.Sprintf("revision %d was rolled back %s%s", s.Wanted, why, serves)
}
