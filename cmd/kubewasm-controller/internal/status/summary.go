package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

// Bounds of texts of others in a condition. A condition's message may be 32 KiB long; a list of
// plugins shows it.
const (
	maxMessageBytes = 1024
	maxNameBytes    = 253
)

// The reasons of the condition Ready, beside the states of package host.
const (
	reasonNoProcess   = "NoProcess"
	reasonNoNode      = "NoNode"
	reasonNotReported = "NotReported"
	reasonUnknown     = "Unknown"
	reasonSelector    = "SelectorInvalid"
	reasonRollout     = "OtherRevision"
)

// why is the reason of a process not to serve a plugin as it was declared.
type why struct{ reason, message string }

// states are the reasons of states.
var states = map[string]bool{v1alpha1.StateRefused: true}

func init() {
	for _, s := range host.States() {
		states[string(s)] = true
	}
}

// summary adds the processes up that a plugin is for. nodes returns the labels of a node; it may be
// nil for policies.
func summary(p plugin.Plugin, processes []process, nodes func(string) labels.Set) v1alpha1.PluginStatus {
	status := v1alpha1.PluginStatus{ObservedGeneration: p.GetGeneration()}
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.GetGeneration()}
	selects := func(process) bool { return true }
	spec, err := p.Spec()
	if p.Key.Kind == plugin.NodeHook || p.Key.Kind == plugin.SchedulerPlugin {
		var selector labels.Selector
		if err == nil {
			selector, err = labels.Parse(spec.NodeSelector + spec.Schedulers.Selector) // A kind has one of them.
		}
		if err != nil {
			ready.Reason, ready.Message = reasonSelector, cut.Text(foreign.Line(err.Error()), maxMessageBytes)
			status.Ready, status.Conditions = "0/0", []metav1.Condition{ready}
			return status
		}
		selects = func(of process) bool { return selector.Matches(nodes(of.node)) }
		if p.Key.Kind == plugin.SchedulerPlugin {
			selects = func(of process) bool {
				names := spec.Schedulers.Names
				return selector.Matches(of.labels) && (len(names) == 0 || of.report == nil || slices.ContainsFunc(of.report.Schedulers, func(name string) bool { return slices.Contains(names, name) }))
			}
		}
	}
	// wanted is the revision to serve, nil if each process serves the newest generation.
	wanted := func() *v1alpha1.RolloutStatus {
		if err != nil || !spec.Controlled() {
			return nil
		}
		return cmp.Or(p.Status.Rollout, &v1alpha1.RolloutStatus{})
	}()
	reasons, examples := map[why]int32{}, map[why]string{}
	digests, revisions := map[string]int32{}, map[int64]int32{}
	for _, process := range processes {
		reason := why{reason: reasonNotReported, message: "the process has not reported on it"}
		listed := false
		if process.report != nil {
			s, ok := process.report.State(p.Key, p.GetUID())
			if listed = ok; ok {
				reason = why{s.State, s.Message}
				if !states[s.State] {
					reason.reason = reasonUnknown
				}
				switch {
				case wanted != nil && s.State == string(host.Serving) && (wanted.Generation != p.GetGeneration() || s.Revision != wanted.Wanted):
					reason = why{reasonRollout, fmt.Sprintf("the process serves revision %d", s.Revision)}
				case wanted != nil && s.State == string(host.Serving) && spec.Mode != host.Monitor && monitors(p.Key.Kind, wanted, &s):
					reason = why{reasonRollout, "the process only monitors, as the rollout of the first revision has it"}
				case wanted == nil && s.Generation != p.GetGeneration():
					reason = why{reasonNotReported, "the process has not reported on this generation"}
				}
				revisions[revisionOf(p.Status.Rollout, &s)]++
				if s.Digest != "" {
					digests[s.Digest]++
				}
			}
		}
		if !listed && !selects(process) {
			continue
		}
		status.Desired++
		if reason.reason == string(host.Serving) {
			status.Serving++
			continue
		}
		reasons[reason]++
		if name := process.name; examples[reason] == "" || name < examples[reason] {
			examples[reason] = name
		}
	}
	status.Ready = fmt.Sprintf("%d/%d", status.Serving, status.Desired)
	status.Digest = most(digests, strings.Compare)
	status.Revision = text(revisions)
	switch {
	case status.Desired == 0 && p.Key.Kind == plugin.NodeHook:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, reasonNoNode, "there is no agent on a node that nodeSelector selects"
	case status.Desired == 0:
		ready.Reason, ready.Message = reasonNoProcess, "there is no process that asks it"
	case status.Serving == status.Desired:
		ready.Status, ready.Reason = metav1.ConditionTrue, string(host.Serving)
	default:
		common := most(reasons, func(a, b why) int {
			return cmp.Or(strings.Compare(a.reason, b.reason), strings.Compare(a.message, b.message))
		})
		ready.Reason = common.reason
		example := " (" + cut.Text(foreign.Line(examples[common]), maxNameBytes) + ")"
		ready.Message = cut.Text(fmt.Sprintf("%d of %d: %s", reasons[common], status.Desired, cmp.Or(common.message, common.reason)), maxMessageBytes-len(example)) + example
	}
	status.Conditions = []metav1.Condition{ready}
	return status
}

// monitors reports whether a process has the first revision with the mode Monitor: in a step with that
// mode, and outside of a step, or after the last one has failed, if it is a policy.
func monitors(kind string, r *v1alpha1.RolloutStatus, s *reports.State) bool {
	switch {
	case r.Stable != nil:
		return false
	case r.Mode == string(clusterplugins.Monitor):
		return true
	}
	return plugin.Component(kind) == plugin.Webhook && (r.Step == 0 || s.Trial != r.Trial)
}

// revisionOf returns the number of the revision that a process serves, 0 if it is unknown.
func revisionOf(r *v1alpha1.RolloutStatus, s *reports.State) int64 {
	if s.Revision == 0 && s.State == string(host.Serving) && r != nil && r.Stable != nil && r.Generation == s.Generation {
		return r.Stable.Revision
	}
	return s.Revision
}

// text returns the numbers of revisions, with those of their processes if there are several. There are
// no more than a few.
func text(revisions map[int64]int32) string {
	delete(revisions, 0)
	numbers := slices.Sorted(maps.Keys(revisions))
	if len(numbers) == 1 {
		return strconv.FormatInt(numbers[0], 10)
	}
	var all []string
	for _, n := range numbers[max(0, len(numbers)-5):] {
		all = append(all, fmt.Sprintf("%d (%d)", n, revisions[n]))
	}
	return strings.Join(all, ", ")
}

// most returns the key with the largest value, and the least of several.
func most[K comparable](of map[K]int32, compare func(a, b K) int) (key K) {
	var best int32
	for k, n := range of {
		if n > best || n == best && compare(k, key) < 0 {
			key, best = k, n
		}
	}
	return key
}
