package hookstest_test

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

// batch is a hook.
type batch struct{}

func (batch) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.PodLabels().Get("tier") == "batch" {
		d.SetCPUShares(2)
	}
	return nil
}

func Example() {
	// In the package of the hook this is func TestBatch(t *testing.T).
	testBatch := func(t *testing.T) {
		hookstest.Each(t, batch{}, func(t *testing.T, p *hookstest.Plugin) {
			d, err := p.Decide(t, `{metadata: {labels: {tier: batch}}, spec: {containers: [{name: main}]}}`, "main")
			if err != nil || d.Resources == nil || *d.Resources.CPUShares != 2 {
				t.Errorf("got %v, %v", d, err)
			}
		})
	}
	_ = testBatch
}
