package schedtest_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

// ready is a plugin.
type ready struct{}

func (ready) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
	if !node.Node().Metadata().Labels().Has("example.com/ready") {
		return sched.Unschedulable("node is not ready")
	}
	return nil
}

func Example() {
	// In the package of the plugin this is func TestReady(t *testing.T).
	testReady := func(t *testing.T) {
		schedtest.Each(t, ready{}, func(t *testing.T, p *schedtest.Plugin) {
			want := "Unschedulable: node is not ready"
			if got := p.Filter(t, `metadata: {name: web}`, `metadata: {name: n1}`).String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	_ = testReady
}
