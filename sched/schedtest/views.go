package schedtest

import (
	"testing"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/internal/harness"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/guest/api/core"
)

// Pod returns a view of the Pod in manifest, YAML or JSON. The test fails if manifest is no Pod or
// has a field that Pods lack.
func Pod(t testing.TB, manifest string) core.Pod {
	t.Helper()
	return harness.PodView(t, harness.ReadPod(t, manifest))
}

// Node returns a view of the Node in manifest, YAML or JSON. The test fails if manifest is no Node
// or has a field that Nodes lack.
func Node(t testing.TB, manifest string) core.Node {
	t.Helper()
	var node corev1.Node
	if err := harness.Decode(manifest, &node); err != nil {
		t.Fatalf("read Node: %v", err)
	}
	raw, err := codec.Encode(&node)
	if err != nil {
		t.Fatal(err)
	}
	return core.NodeFromProto(raw)
}
