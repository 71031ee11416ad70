package nodewatch_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/hooks/nodewatch"
)

// The machine of the test is one.
func TestTheTopologyOfThisMachine(t *testing.T) {
	got, err := nodewatch.ReadTopology("/sys")
	if err != nil {
		t.Fatal(err)
	}
	if got.OnlineCPUs == "" || len(got.Sockets) == 0 || len(got.Cores) == 0 {
		t.Errorf("got %+v", got)
	}
}
