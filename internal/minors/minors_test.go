package minors_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/minors"
)

func TestMinors(t *testing.T) {
	group := abi.MaskOf(abi.PodGroupPostFilter, abi.PreQueueingHint)
	placements := abi.MaskOf(abi.GeneratePlacements, abi.ScorePlacement, abi.NormalizePlacementScore)
	type lack struct {
		Functions string
		Resources []string
		Actions   abi.ActionType
	}
	actions := abi.ActionUpdateNodePreemptionPolicy | abi.ActionUpdatePodScaleUp
	want := map[string]lack{
		"1.35": {(group | placements).String(), []string{"scheduling.k8s.io/PodGroup", "scheduling.k8s.io/CompositePodGroup"}, actions},
		"1.36": {group.String(), []string{"scheduling.k8s.io/CompositePodGroup"}, actions},
		"1.37": {},
		"1.38": {},
	}
	all := minors.All()
	newest := all[len(all)-1]
	got := map[string]lack{}
	for _, m := range all {
		l := lack{Functions: (newest.Functions &^ m.Functions).String(), Actions: newest.Actions &^ m.Actions}
		for _, r := range newest.Resources {
			if !m.Has(r, abi.ActionAdd) {
				l.Resources = append(l.Resources, r.String())
			}
		}
		got[m.Name] = l
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got, want := newest.Functions, abi.Mask(1<<64-1).Of(abi.KindScheduler); got != want {
		t.Errorf("the newest minor lacks %s", want&^got)
	}
}

func TestMinorCheck(t *testing.T) {
	tests := map[string]struct {
		minor     string
		functions abi.Mask
		want      string
	}{
		"a guest that filters":                {"1.35", abi.MaskOf(abi.Filter), ""},
		"a guest that also places Pod groups": {"1.35", abi.MaskOf(abi.Filter, abi.GeneratePlacements), ""},
		"a guest that only places Pod groups": {"1.35", abi.MaskOf(abi.GeneratePlacements, abi.CloneCycle, abi.EventsToRegister),
			"the guest has generateplacements, which the scheduler of Kubernetes 1.35 does not call"},
		"the same a minor later":                  {"1.36", abi.MaskOf(abi.GeneratePlacements, abi.CloneCycle, abi.EventsToRegister), ""},
		"a guest that only registers events":      {"1.35", abi.MaskOf(abi.EventsToRegister, abi.QueueingHint, abi.PreQueueingHint), ""},
		"a guest that preempts for Pod groups":    {"1.36", abi.MaskOf(abi.PodGroupPostFilter), "the guest has podgrouppostfilter, which the scheduler of Kubernetes 1.36 does not call"},
		"a guest of no kind that a scheduler has": {"1.36", abi.MaskOf(abi.Validate), ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := minors.Of(test.minor).Check(test.functions); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
