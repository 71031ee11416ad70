package clusterplugins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// Rollout is the member rollout of a spec: the way by which a change of it comes into service.
type Rollout struct {
	// Steps are taken one after the other. After the last, the change serves everywhere. Without steps,
	// there is one of 100 percent.
	Steps []RolloutStep `json:"steps,omitempty"`
	// Paused keeps the rollout in its step, or from beginning. A failure still rolls it back.
	Paused bool `json:"paused,omitempty"`
	// ProgressDeadline is the longest time that a step may take after its pause until its processes
	// serve the change; then it is rolled back. Default 10m.
	ProgressDeadline time.Duration `json:"progressDeadline,omitempty"`
	// Unavailable is the percentage of the processes of a step that it does not wait for, rounded down.
	// Default 5.
	Unavailable *int `json:"unavailable,omitempty"`
	// Analysis determines when a process reports that the change fails, which rolls it back.
	Analysis RolloutAnalysis `json:"analysis,omitzero"`
}

// RolloutStep is a step of a rollout. It adds processes to those of the steps before.
type RolloutStep struct {
	// Percent is the percentage of the processes that take the change, rounded up. A hash of their names
	// chooses them, and of the plugin's. Default 100, unless there is a nodeSelector.
	Percent int `json:"percent,omitempty"`
	// NodeSelector is a selector on the labels of nodes, whose agents take the change.
	NodeSelector string `json:"nodeSelector,omitempty"`
	// Mode is Shadow for a step in which the change is asked in the background beside the version in
	// service, or Monitor for one in which its decisions do not count. A first revision skips Shadow, and
	// the others skip Monitor.
	Mode TrialMode `json:"mode,omitempty"`
	// Pause is the shortest time that the step takes. Default 1m.
	Pause *time.Duration `json:"pause,omitempty"`
}

// RolloutAnalysis has the bounds of one process, and the number of processes that decide.
type RolloutAnalysis struct {
	// Failures is the number of failed calls with which the change fails. Default 1.
	Failures int64 `json:"failures,omitempty"`
	// Latency is the duration from which a call counts as failed, 0 for none.
	Latency time.Duration `json:"latency,omitempty"`
	// Differences is the number of different answers with which the change fails in a step with the
	// mode Shadow, 0 for no bound.
	Differences int64 `json:"differences,omitempty"`
	// Processes is the number of processes of a step that must report that the change fails, or all of a
	// step with fewer. Default 1: one process decides for all.
	Processes int `json:"processes,omitempty"`
}

// TrialMode is the mode of a step.
type TrialMode string

// The modes of a step, beside that of the spec.
const (
	Shadow  TrialMode = "Shadow"
	Monitor TrialMode = "Monitor"
)

// Places is the number of places. See [Place].
const Places = 1 << 32

// Place returns the place of a process, 0 to [Places], in the rollouts of a plugin: a step is for those
// below one. name is that of the agent's node, or of the webhook's Pod.
func Place(kind, namespace, plugin, name string) int64 {
	sum := sha256.Sum256([]byte(kind + "/" + namespace + "/" + plugin + "/" + name))
	return int64(binary.BigEndian.Uint32(sum[:]))
}

// rollout is the member status.rollout of an object.
type rollout struct {
	Stable        *version  `json:"stable,omitempty"`
	Candidate     *version  `json:"candidate,omitempty"`
	Trial         int64     `json:"trial,omitempty"`
	Below         int64     `json:"below,omitempty"`
	NodeSelectors []string  `json:"nodeSelectors,omitempty"`
	Mode          TrialMode `json:"mode,omitempty"`
	Failures      int64     `json:"failures,omitempty"`
	Differences   int64     `json:"differences,omitempty"`
	Latency       string    `json:"latency,omitempty"`
}

// version is a revision to serve.
type version struct {
	Revision   int64           `json:"revision"`
	Generation int64           `json:"generation"`
	Spec       json.RawMessage `json:"spec,omitempty"`
	Pin        string          `json:"pin,omitempty"`
}

// size is the number of bytes of the specs.
func (r *rollout) size() (n int) {
	if r != nil && r.Stable != nil {
		n += len(r.Stable.Spec)
	}
	if r != nil && r.Candidate != nil {
		n += len(r.Candidate.Spec)
	}
	return n
}

// Bounds are those of a version on trial.
type Bounds struct {
	// Trial is the generation with which the trial began, 0 for a version that is on none. Revision is
	// the revision on trial, which a shadow has if Shadow is set.
	Trial, Revision int64
	Shadow          bool `json:",omitempty"`
	// The others are those of RolloutAnalysis.
	Failures, Differences int64
	Latency               time.Duration
}

// Controlled are the members of a spec that are none of the plugin's.
var Controlled = []string{"rollout", "revision", "revisionHistoryLimit"}

// controls reads the members of [Controlled] and enabled from a spec. rest is the spec without
// them; by reports whether the controller decides about the revision that serves.
func controls(spec json.RawMessage) (rest, enabled json.RawMessage, by bool) {
	if !slices.ContainsFunc(Controlled, func(name string) bool { return bytes.Contains(spec, []byte(`"`+name+`"`)) }) {
		return spec, nil, false
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(spec, &members) != nil {
		return spec, nil, false // Its mistakes are found when it is applied.
	}
	by = members["rollout"] != nil || members["revision"] != nil
	for _, name := range Controlled {
		delete(members, name)
	}
	rest, err := json.Marshal(members)
	if err != nil {
		return spec, nil, false // There is no error of these types.
	}
	return rest, members["enabled"], by
}

// with returns a spec with another value of a member, without it for nil.
func with(spec json.RawMessage, name string, value any) json.RawMessage {
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(spec))
	d.UseNumber()
	if d.Decode(&members) != nil || members == nil {
		return spec
	}
	if members[name] = value; value == nil {
		delete(members, name)
	}
	text, err := json.Marshal(members)
	if err != nil {
		return spec // There is no error of these types.
	}
	return text
}

// choose returns the version that the rollout of an object has for a process. of has the members that
// all versions share, and before is the version that the process has, nil for none. ok is false while the
// controller has not written the version.
func (w *Watch) choose(of Object, before *Object, enabled json.RawMessage, r *rollout) (chosen Object, ok bool) {
	none := of
	none.Held, none.Spec = true, nil
	if r == nil || r.Stable != nil && len(r.Stable.Spec) == 0 || r.Candidate != nil && len(r.Candidate.Spec) == 0 {
		return none, false
	}
	object := func(v *version) Object {
		o := of
		o.Generation, o.Revision, o.Pinned = v.Generation, v.Revision, v.Pin
		o.Spec = v.Spec
		if enabled != nil {
			o.Spec = with(o.Spec, "enabled", enabled)
		}
		return o
	}
	outside := none
	switch {
	case r.Stable != nil:
		outside = object(r.Stable)
	case before != nil && before.Revision == 0 && before.Spec != nil:
		outside = *before // The controller has never seen it.
	case r.Candidate != nil && of.Kind != NodeHooks.Kind:
		// A policy without an entry would fail the requests that others have one for.
		outside = object(r.Candidate)
		outside.Spec = with(outside.Spec, "mode", Monitor)
	}
	if r.Candidate == nil {
		return outside, true
	}
	inside := object(r.Candidate)
	latency, _ := time.ParseDuration(r.Latency) // The controller has checked it.
	bounds := Bounds{Trial: r.Trial, Revision: r.Candidate.Revision, Failures: max(r.Failures, 1), Differences: r.Differences, Latency: latency}
	switch {
	case r.Mode == Shadow && r.Stable != nil:
		inside = outside
		bounds.Shadow = true
		inside.Spec = with(inside.Spec, "shadow", shadowOf(r.Candidate))
	case r.Mode == Monitor && r.Stable == nil:
		inside.Spec = with(inside.Spec, "mode", Monitor)
	}
	inside.Bounds = bounds
	switch {
	case Place(of.Kind, of.Namespace, of.Name, w.cfg.Name) < r.Below:
		return inside, true
	case len(r.NodeSelectors) != 0:
		inside.NodeSelectors, inside.Else = r.NodeSelectors, &outside
		return inside, true
	}
	return outside, true
}

// shadowOf returns the settings of a shadow with a revision.
func shadowOf(v *version) map[string]any {
	var s struct {
		Module      map[string]any  `json:"module"`
		GuestConfig json.RawMessage `json:"guestConfig,omitempty"`
		From        json.RawMessage `json:"guestConfigFrom,omitempty"`
	}
	if json.Unmarshal(v.Spec, &s) != nil || s.Module == nil {
		return map[string]any{}
	}
	if v.Pin != "" && s.Module["oci"] != nil {
		s.Module["oci"] = v.Pin
	}
	delete(s.Module, "follow")
	settings := map[string]any{"module": s.Module, "rate": 1}
	if s.GuestConfig != nil {
		settings["guestConfig"] = s.GuestConfig
	}
	if s.From != nil {
		settings[ConfigFrom] = s.From
	}
	return settings
}

// Same reports whether two objects are equal.
func (o *Object) Same(other *Object) bool { return o.Serves(other) && o.Bounds == other.Bounds }

// Serves reports whether a process that serves o serves other, too: only the bounds may differ.
func (o *Object) Serves(other *Object) bool {
	return o.UID == other.UID && o.Generation == other.Generation && o.Pinned == other.Pinned && (o.Spec == nil) == (other.Spec == nil) &&
		o.Revision == other.Revision && o.Held == other.Held && slices.Equal(o.NodeSelectors, other.NodeSelectors) &&
		(o.Revision == 0 || bytes.Equal(o.Spec, other.Spec)) && o.resolved.same(other.resolved) && (o.Else == nil) == (other.Else == nil) && (o.Else == nil || o.Else.Serves(other.Else))
}

// size is the number of bytes of the object's specs.
func (o *Object) size() (n int) {
	if o.Else != nil {
		n = len(o.Else.Spec)
	}
	return n + len(o.Spec)
}

// Trials count the failures of versions on trial. The zero value has none. It is safe for use by
// several goroutines.
type Trials struct {
	mu sync.Mutex
	of map[string]*Trial
}

// Trial counts the failures of a version. A nil Trial counts nothing.
type Trial struct {
	uid      string
	revision int64
	shadow   bool
	latency  atomic.Int64

	mu       sync.Mutex
	bounds   Bounds
	failures int64
	first    string
	failing  string
}

// Apply begins the trials of objects, and drops those of other ones.
func (t *Trials) Apply(objects []Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.of
	t.of = map[string]*Trial{}
	for i := range objects {
		o := &objects[i]
		key := o.Kind + " " + o.Plugin()
		trial := before[key]
		if trial != nil && trial.uid != o.UID {
			trial = nil
		}
		switch {
		case o.Trial != 0 && (trial == nil || trial.revision != o.Bounds.Revision || trial.shadow != o.Shadow):
			trial = &Trial{uid: o.UID, revision: o.Bounds.Revision, shadow: o.Shadow}
		case o.Trial == 0 && o.Revision != 0 && (trial == nil || !trial.shadow && trial.revision != o.Revision):
			// It may come on trial as it is: a first revision that monitors outside of a step, too. What
			// counts its failures is there by then.
			trial = &Trial{uid: o.UID, revision: o.Revision}
		}
		if trial == nil {
			continue
		}
		t.of[key] = trial
		if o.Trial != 0 {
			trial.begin(o.Bounds)
		}
	}
}

// begin sets the bounds. Another trial of the same version counts anew.
func (t *Trial) begin(b Bounds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bounds.Trial != b.Trial {
		t.failures, t.first, t.failing = 0, "", ""
	}
	t.bounds = b
	t.latency.Store(int64(b.Latency))
}

// Of returns the Trial of the version of an object, nil if it is on none.
func (t *Trials) Of(o *Object) *Trial {
	t.mu.Lock()
	defer t.mu.Unlock()
	trial := t.of[o.Kind+" "+o.Plugin()]
	switch {
	case trial == nil || trial.uid != o.UID:
	case o.Shadow && !trial.shadow, trial.shadow && o.Shadow && trial.revision != o.Bounds.Revision:
		// The shadow is of an earlier trial.
	case trial.shadow || trial.revision == o.Revision:
		return trial
	}
	return nil
}

// Report sets the members of a state that are about the trial of a version. It goes on to do so after
// the trial, so that its end is no change.
func (t *Trial) Report(s *State) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Trial, s.Failing = t.bounds.Trial, t.failing
}

// Called counts a call that took a time and has failed with an error, nil for none. It takes some
// nanoseconds for those that have not failed.
func (t *Trial) Called(err error, took time.Duration) {
	if t == nil || t.shadow {
		return
	}
	if latency := t.latency.Load(); err == nil && (latency == 0 || int64(took) < latency) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.bounds.Trial == 0 {
		return
	}
	if t.failures++; t.first == "" {
		if t.first = fmt.Sprintf("a call took %s", took.Round(time.Millisecond)); err != nil {
			t.first = publicerr.Redact(err.Error())
		}
	}
	if t.failing == "" && t.failures >= t.bounds.Failures {
		t.failing = cut.Marked(fmt.Sprintf("%d failed calls, the first: %s", t.failures, t.first), maxMessage)
	}
}

// Compared takes the counts of a shadow: those of calls on which both versions differ, and on which
// the candidate alone has failed.
func (t *Trial) Compared(s shadow.Status) {
	if t == nil || !t.shadow {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	differ := s.Compared - min(s.Same, s.Compared)
	example := ""
	if len(s.Groups) != 0 {
		example = ", most of them " + s.Groups[0].Change
	}
	switch {
	case t.failing != "":
	case s.State == shadow.Stopped:
		t.failing = cut.Marked("the shadow has stopped: "+s.Reason, maxMessage)
	case s.Failed >= uint64(t.bounds.Failures):
		t.failing = fmt.Sprintf("%d calls failed in the shadow alone", s.Failed)
	case t.bounds.Differences > 0 && differ >= uint64(t.bounds.Differences):
		t.failing = cut.Marked(fmt.Sprintf("%d of %d answers differ in the shadow%s", differ, s.Compared, example), maxMessage)
	}
}

// Observer returns an observer of the guest of the version. It is nil if none is needed.
func (t *Trial) Observer() host.Observer {
	if t == nil || t.shadow {
		return nil
	}
	return slow{t}
}

// slow counts the calls that take too long. The adapters know those that fail.
type slow struct{ trial *Trial }

func (s slow) Called(_ context.Context, c host.CallEvent) {
	if c.Err == nil {
		s.trial.Called(nil, c.Duration)
	}
}
func (slow) Built(context.Context, host.BuildEvent) {}
func (slow) CacheHits(_, _ string, _ uint64)        {}
func (slow) Refused(context.Context, string, error) {}
func (slow) Restarted(_ string, _ bool)             {}
