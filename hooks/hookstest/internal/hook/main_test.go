package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

func TestDecide(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	hookstest.Each(t, share{}, func(t *testing.T, p *hookstest.Plugin) {
		const pod = `{metadata: {name: web, labels: {tier: batch}}, spec: {containers: [{name: web, resources: {limits: {cpu: "2"}}}]}}`
		for name, test := range map[string]struct {
			pod, container string
			want           *hookstest.Decision
		}{
			"the Pod":        {pod, "", &hookstest.Decision{Resources: &hookmsg.Resources{CPUShares: n(128)}}},
			"its container":  {pod, "web", &hookstest.Decision{Resources: &hookmsg.Resources{CPUShares: n(128), CFSQuotaUS: n(100_000)}, ContainerEnvs: map[string]string{"TIER": "batch"}}},
			"one of no tier": {`{metadata: {name: web}}`, "", &hookstest.Decision{}},
		} {
			t.Run(name, func(t *testing.T) {
				got, err := p.Decide(t, test.pod, test.container)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("decision (-want +got):\n%s", diff)
				}
				if err := (&hooks.Grants{Env: []string{"TIER"}}).Check(got); err != nil {
					t.Errorf("with the plugin's grants: %v", err)
				}
				if err := (&hooks.Grants{}).Check(got); (err != nil) != (len(got.ContainerEnvs) != 0) {
					t.Errorf("without grants: %v", err)
				}
			})
		}
		if _, err := p.Decide(t, `metadata: {name: web, labels: {tier: wrong}}`, ""); err == nil || err.Error() != "tier is wrong" {
			t.Errorf("got error %v", err)
		}
		if _, err := p.TryConfigure(t, "a: 1"); err == nil || err.Error() != "the plugin takes no configuration, but has been given some" {
			t.Errorf("a configuration that it cannot have: %v", err)
		}
	})
}
