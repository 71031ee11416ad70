package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
)

func TestOnMinors(t *testing.T) {
	everywhere := []onMinor{{Minor: "1.35", Runs: true}, {Minor: "1.36", Runs: true}, {Minor: "1.37", Runs: true}, {Minor: "1.38", Runs: true}}
	tests := map[string]struct {
		functions abi.Mask
		want      []onMinor
	}{
		"a plugin that filters": {abi.MaskOf(abi.PreFilter, abi.Filter, abi.CloneCycle, abi.Configure), everywhere},
		"a policy":              {abi.MaskOf(abi.Validate, abi.Mutate), everywhere},
		"a hook":                {abi.MaskOf(abi.Hook), everywhere},
		"a plugin that filters and places Pod groups": {
			abi.MaskOf(abi.Filter, abi.GeneratePlacements, abi.PodGroupPostFilter),
			[]onMinor{
				{Minor: "1.35", Runs: true, NotCalled: []string{"podgrouppostfilter", "generateplacements"}},
				{Minor: "1.36", Runs: true, NotCalled: []string{"podgrouppostfilter"}},
				{Minor: "1.37", Runs: true},
				{Minor: "1.38", Runs: true},
			},
		},
		"a plugin that only preempts for Pod groups": {
			abi.MaskOf(abi.PodGroupPostFilter, abi.EventsToRegister),
			[]onMinor{
				{Minor: "1.35", Why: "kube-scheduler 1.35 has no extension point for podgrouppostfilter, and the guest implements nothing else"},
				{Minor: "1.36", Why: "kube-scheduler 1.36 has no extension point for podgrouppostfilter, and the guest implements nothing else"},
				{Minor: "1.37", Runs: true},
				{Minor: "1.38", Runs: true},
			},
		},
		"a policy that is a plugin for Pod groups, too": {
			abi.MaskOf(abi.PodGroupPostFilter, abi.Validate),
			[]onMinor{
				{Minor: "1.35", Runs: true, NotCalled: []string{"podgrouppostfilter"}},
				{Minor: "1.36", Runs: true, NotCalled: []string{"podgrouppostfilter"}},
				{Minor: "1.37", Runs: true},
				{Minor: "1.38", Runs: true},
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, onMinors(test.functions)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
