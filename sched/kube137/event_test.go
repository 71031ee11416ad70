package kube137_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
)

// TestEventsAreThoseOfTheFramework holds that the numbers of the ABI mean what
// the framework means.
func TestEventsAreThoseOfTheFramework(t *testing.T) {
	var got []fwk.EventResource
	for r := abi.EventPod; r.Known(); r++ {
		got = append(got, fwk.EventResource(r.String()))
	}
	want := []fwk.EventResource{
		fwk.Pod, fwk.AssignedPod, fwk.UnscheduledPod, fwk.TargetPod, fwk.Node, fwk.PersistentVolume, fwk.PersistentVolumeClaim,
		fwk.CSINode, fwk.CSIDriver, fwk.VolumeAttachment, fwk.CSIStorageCapacity, fwk.StorageClass,
		fwk.ResourceClaim, fwk.ResourceSlice, fwk.DeviceClass, fwk.PodGroup, fwk.CompositePodGroup, fwk.WildCard,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	for theirs, ours := range map[fwk.ActionType]abi.ActionType{
		fwk.Add: abi.ActionAdd, fwk.Delete: abi.ActionDelete, fwk.Update: abi.ActionUpdate, fwk.All: abi.ActionAll,
		fwk.UpdateNodeAllocatable: abi.ActionUpdateNodeAllocatable, fwk.UpdateNodeLabel: abi.ActionUpdateNodeLabel,
		fwk.UpdateNodeTaint: abi.ActionUpdateNodeTaint, fwk.UpdateNodeCondition: abi.ActionUpdateNodeCondition,
		fwk.UpdateNodeAnnotation: abi.ActionUpdateNodeAnnotation, fwk.UpdateNodeDeclaredFeature: abi.ActionUpdateNodeDeclaredFeature,
		fwk.UpdateNodePreemptionPolicy: abi.ActionUpdateNodePreemptionPolicy, fwk.UpdatePodLabel: abi.ActionUpdatePodLabel,
		fwk.UpdatePodScaleDown: abi.ActionUpdatePodScaleDown, fwk.UpdatePodScaleUp: abi.ActionUpdatePodScaleUp,
		fwk.UpdatePodToleration: abi.ActionUpdatePodToleration, fwk.UpdatePodSchedulingGatesEliminated: abi.ActionUpdatePodSchedulingGatesEliminated,
		fwk.UpdatePodGeneratedResourceClaim: abi.ActionUpdatePodGeneratedResourceClaim,
	} {
		if int64(theirs) != int64(ours) {
			t.Errorf("%s is %#x, want %#x", theirs, uint32(ours), int64(theirs))
		}
	}
	for code := abi.Success; code.Known(); code++ {
		if got, want := code.String(), fwk.Code(code).String(); got != want {
			t.Errorf("code %d is %s, want %s", code, got, want)
		}
	}
}
