package differential

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// A Pod that a guest refuses is tried again after the same events as one that the plugin refuses.
// After any other event it could be tried too early when it preempts Pods, and get stuck:
// docs/upstream.md, "Kubernetes".
func TestGuestsRegisterForTheEventsOfThePlugins(t *testing.T) {
	metrics.Register()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	for name, guest := range inTree {
		// ImageLocality refuses no Pod, and the example of PodTopologySpread names no events.
		if name == "ImageLocality" || name == "PodTopologySpread" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			lister := &snapshot{Snapshot: internalcache.NewEmptySnapshot()}
			want := eventsOf(t, newFramework(t, rt, lister, name, "", ""), name)
			delete(want, fwk.DeviceClass) // The guest knows no devices.
			got := eventsOf(t, newFramework(t, rt, lister, name, guest, ""), name)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("events (-%s +%s):\n%s", name, guest, diff)
			}
		})
	}
}

// eventsOf returns the actions by resource for which a plugin of a framework registers.
func eventsOf(t *testing.T, f framework.Framework, plugin string) map[fwk.EventResource]fwk.ActionType {
	t.Helper()
	events := map[fwk.EventResource]fwk.ActionType{}
	for _, e := range f.EnqueueExtensions() {
		if e.Name() != plugin {
			continue
		}
		list, err := e.EventsToRegister(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			events[e.Event.Resource] |= e.Event.ActionType
		}
	}
	return events
}
