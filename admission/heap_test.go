package admission_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// TestHeapOfAPolicyStaysSmall holds that a policy begins anew before what it leaves behind takes
// 1 MiB: a process may have a hundred of them.
func TestHeapOfAPolicyStaysSmall(t *testing.T) {
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	cfg := config(t, "labels", requiredLabels)
	cfg.GuestConfig = []byte(`{"labels": ["owner"]}`)
	p, err := admission.Load(t.Context(), rt, cfg)
	if err != nil {
		t.Fatal(err)
	}
	engine := admission.NewEngine(p)
	before := rt.MemoryInUse()
	for n := range 3000 {
		engine.Validate(t.Context(), request(t, "note", "x"))
		if grown := rt.MemoryInUse() - before; grown > 1<<20 {
			t.Fatalf("after %d calls the policy has %d bytes more than after its start, want at most 1 MiB", n+1, grown)
		}
	}
}
