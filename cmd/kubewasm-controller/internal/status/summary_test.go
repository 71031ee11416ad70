package status

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
)

// A policy whose first revision only monitors is not ready, unless it is to monitor.
func TestAPolicyThatMonitorsIsNotReady(t *testing.T) {
	one := &v1alpha1.RevisionRef{Revision: 1, Generation: 2}
	tests := map[string]struct {
		spec    string
		rollout v1alpha1.RolloutStatus
		// trials are those that two processes report.
		trials [2]int64
		want   string
	}{
		"in a step that monitors": {`{"rollout":{}}`, v1alpha1.RolloutStatus{Candidate: one, Step: 1, Trial: 2, Mode: "Monitor"}, [2]int64{2, 2}, "0/2"},
		"one is in the step":      {`{"rollout":{}}`, v1alpha1.RolloutStatus{Candidate: one, Step: 1, Trial: 2}, [2]int64{2, 0}, "1/2"},
		"it was rolled back":      {`{"rollout":{}}`, v1alpha1.RolloutStatus{Candidate: one, Failed: 1, Trial: 2}, [2]int64{2, 0}, "0/2"},
		"it is stable":            {`{"rollout":{}}`, v1alpha1.RolloutStatus{Stable: one, Trial: 2}, [2]int64{2, 0}, "2/2"},
		"it is to monitor":        {`{"mode":"Monitor","rollout":{}}`, v1alpha1.RolloutStatus{Candidate: one, Step: 1, Trial: 2, Mode: "Monitor"}, [2]int64{2, 2}, "2/2"},
	}
	for name, test := range tests {
		test.rollout.Generation, test.rollout.Wanted = 2, 1
		p, _ := plugin.Of(&v1alpha1.ClusterAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "u", Generation: 2}, Spec: runtime.RawExtension{Raw: []byte(test.spec)}, Status: v1alpha1.PluginStatus{Rollout: &test.rollout},
		})
		var all []process
		for _, trial := range test.trials {
			all = append(all, process{name: "webhook", report: reports.Of(&v1alpha1.PluginReport{
				Component: "kubewasm-webhook",
				Plugins:   []v1alpha1.PluginState{{Kind: plugin.ClusterAdmissionPolicy, Name: "p", UID: "u", Generation: 2, Revision: 1, Trial: trial, State: "Serving"}},
			})})
		}
		if diff := cmp.Diff(test.want, summary(p, all, nil).Ready); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
