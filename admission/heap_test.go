package admission_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// TestHeapOfAPolicyStaysSmall holds that a policy begins anew before what it leaves behind takes
// 1 MiB, if there are as many as a process may have, and before it takes 2 MiB if it is alone.
func TestHeapOfAPolicyStaysSmall(t *testing.T) {
	for _, test := range []struct {
		name   string
		others int
		most   uint64
	}{
		{"alone", 0, 2 << 20},
		{"beside 63 others", 63, 1 << 20},
	} {
		t.Run(test.name, func(t *testing.T) {
			rt, err := host.NewRuntime(compiled.Config())
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close(t.Context())
			cfg := config(t, "labels", requiredLabels)
			cfg.GuestConfig = []byte(`{"labels": ["owner"]}`)
			var p *admission.Plugin
			for range 1 + test.others {
				if p, err = admission.Load(t.Context(), rt, cfg); err != nil {
					t.Fatal(err)
				}
			}
			engine := admission.NewEngine(p)
			before := rt.MemoryInUse()
			for n := range 3000 {
				engine.Validate(t.Context(), request(t, "note", "x"))
				if grown := rt.MemoryInUse() - before; grown > test.most {
					t.Fatalf("after %d calls the policy has %d bytes more than after its start, want at most %d", n+1, grown, test.most)
				}
			}
		})
	}
}
