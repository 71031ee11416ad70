package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

// Where the class is limited as a whole, pods have no quotas of their own. The rules are those of
// Koordinator's rule_test.go.
func TestTheQuotasOfANode(t *testing.T) {
	slo := func(spec string) string {
		return "\napiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nmetadata: {name: node-1}\nspec: " + spec + "\n"
	}
	const pod = `{metadata: {name: job, labels: {koordinator.sh/qosClass: BE}, annotations: {node.koordinator.sh/extended-resource-spec: '{"containers": {"worker": {"limits": {"kubernetes.io/batch-cpu": "1500"}}}}'}}, spec: {containers: [{name: worker}]}}`
	hookstest.Each(t, &plugin{}, func(t *testing.T, p *hookstest.Plugin) {
		for _, c := range []struct {
			name, node, spec string
			want             int64
		}{
			{"the class is limited by its quota", "node-1", `{resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}}`, hooks.Unlimited},
			{"by its CPUs", "node-1", `{resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cpuset}}`, 150_000},
			{"it is not limited", "node-1", `{resourceUsedThresholdWithBE: {enable: false, cpuSuppressPolicy: cfsQuota}}`, 150_000},
			{"no rule", "node-1", `{}`, 150_000},
			{"no object", "node-2", `{}`, 150_000},
		} {
			d, err := p.On(t, c.node, slo(c.spec)).Decide(t, pod, "worker")
			if err != nil {
				t.Fatal(err)
			}
			if d.Resources == nil || d.Resources.CFSQuotaUS == nil || *d.Resources.CFSQuotaUS != c.want {
				t.Errorf("%s: got %+v, want a quota of %d", c.name, d.Resources, c.want)
			}
		}
	})
}

// The configuration is that of batch-resource.
func TestTheConfiguration(t *testing.T) {
	const pod = `{metadata: {name: job, labels: {koordinator.sh/qosClass: BE}, annotations: {node.koordinator.sh/extended-resource-spec: '{"containers": {"worker": {"limits": {"kubernetes.io/batch-cpu": "1500"}}}}'}}, spec: {containers: [{name: worker}]}}`
	const other = "\napiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeSLO\nmetadata: {name: node-2}\n"
	hookstest.Each(t, &plugin{}, func(t *testing.T, p *hookstest.Plugin) {
		d, err := p.On(t, "node-1", other).Configure(t, `{"ratioPercent": 150}`).Decide(t, pod, "worker")
		if err != nil || d.Resources == nil || d.Resources.CFSQuotaUS == nil || *d.Resources.CFSQuotaUS != 100_000 {
			t.Errorf("got %+v, error %v", d, err)
		}
	})
}
