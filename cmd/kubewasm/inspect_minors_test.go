package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/sched"
)

func TestOnMinors(t *testing.T) {
	everywhere := []onMinor{{Minor: "1.35", Runs: true}, {Minor: "1.36", Runs: true}, {Minor: "1.37", Runs: true}, {Minor: "1.38", Runs: true}}
	tests := map[string]struct {
		functions abi.Mask
		events    []sched.Event
		want      []onMinor
	}{
		"a plugin that filters": {functions: abi.MaskOf(abi.PreFilter, abi.Filter, abi.CloneCycle, abi.Configure), want: everywhere},
		"a policy":              {functions: abi.MaskOf(abi.Validate, abi.Mutate), want: everywhere},
		"a hook":                {functions: abi.MaskOf(abi.Hook), want: everywhere},
		"a plugin that filters and places Pod groups": {
			functions: abi.MaskOf(abi.Filter, abi.GeneratePlacements, abi.PodGroupPostFilter),
			want: []onMinor{
				{Minor: "1.35", Runs: true, NotCalled: []string{"podgrouppostfilter", "generateplacements"}},
				{Minor: "1.36", Runs: true, NotCalled: []string{"podgrouppostfilter"}},
				{Minor: "1.37", Runs: true},
				{Minor: "1.38", Runs: true},
			},
		},
		"a plugin that only preempts for Pod groups": {
			functions: abi.MaskOf(abi.PodGroupPostFilter, abi.EventsToRegister),
			want: []onMinor{
				{Minor: "1.35", Why: "the guest has podgrouppostfilter, which the scheduler of Kubernetes 1.35 does not call"},
				{Minor: "1.36", Why: "the guest has podgrouppostfilter, which the scheduler of Kubernetes 1.36 does not call"},
				{Minor: "1.37", Runs: true},
				{Minor: "1.38", Runs: true},
			},
		},
		"a plugin that registers events": {
			functions: abi.MaskOf(abi.Filter, abi.EventsToRegister, abi.QueueingHint),
			events: []sched.Event{
				{Resource: abi.EventNode, Action: abi.ActionAdd | abi.ActionUpdateNodePreemptionPolicy},
				{Resource: abi.EventAssignedPod, Action: abi.ActionDelete},
				{Resource: abi.EventNamed, Object: "v1/configmaps", Action: abi.ActionUpdate},
				{Resource: abi.EventPod, Action: abi.ActionUpdatePodScaleUp},
				{Resource: abi.EventPodGroup, Action: abi.ActionAdd},
				{Resource: abi.EventCompositePodGroup, Action: abi.ActionAll},
			},
			want: []onMinor{
				{Minor: "1.35", Runs: true, NoEvents: []string{"Pod UpdatePodScaleUp", "scheduling.k8s.io/PodGroup", "scheduling.k8s.io/CompositePodGroup"}},
				{Minor: "1.36", Runs: true, NoEvents: []string{"Pod UpdatePodScaleUp", "scheduling.k8s.io/CompositePodGroup"}},
				{Minor: "1.37", Runs: true},
				{Minor: "1.38", Runs: true},
			},
		},
		"a policy that is a plugin for Pod groups, too": {
			functions: abi.MaskOf(abi.PodGroupPostFilter, abi.Validate),
			want: []onMinor{
				{Minor: "1.35", Runs: true, NotCalled: []string{"podgrouppostfilter"}},
				{Minor: "1.36", Runs: true, NotCalled: []string{"podgrouppostfilter"}},
				{Minor: "1.37", Runs: true},
				{Minor: "1.38", Runs: true},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, onMinors(test.functions, test.events)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
