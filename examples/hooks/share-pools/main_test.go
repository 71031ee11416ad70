package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

// The rule of a node is in an object with its name.
func TestShares(t *testing.T) {
	const topology = `
apiVersion: topology.node.k8s.io/v1alpha1
kind: NodeResourceTopology
metadata:
  name: node-1
  annotations: {node.koordinator.sh/cpu-shared-pools: '[{"node": 0, "cpuset": "4-7"}, {"node": 1, "cpuset": "9-15"}]'}
`
	const pod = `{metadata: {name: web, labels: {koordinator.sh/qosClass: LS}}, spec: {containers: [{name: web, resources: {requests: {cpu: 500m}}}]}}`
	hookstest.Each(t, &sharePools{}, func(t *testing.T, p *hookstest.Plugin) {
		for _, c := range []struct{ name, node, want string }{
			{"the node has a rule", "node-1", "4-7,9-15"},
			{"the node has none", "node-2", ""},
		} {
			t.Run(c.name, func(t *testing.T) {
				d, err := p.On(t, c.node, topology).Decide(t, pod, "web")
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if d.Resources != nil && d.Resources.CPUSetCPUs != nil {
					got = *d.Resources.CPUSetCPUs
				}
				if got != c.want {
					t.Errorf("the CPUs are %q, want %q", got, c.want)
				}
			})
		}
	})
}

func TestTheCPUsOfARule(t *testing.T) {
	r := rule{pools: []pool{{0, "4-7"}, {1, "9-15"}}, bePools: []pool{{0, "2-7"}, {1, "8-15"}}}
	r.system.CPUSet = "0-1"
	static, be := r, r
	static.policy.Policy = "static"
	for _, c := range []struct {
		name   string
		of     *rule
		qos    abi.QOSClass
		label  string
		status string
		want   string
		ok     bool
	}{
		{"all pools", &r, abi.QOSBurstable, "", "", "4-7,9-15", true},
		{"the pool of a NUMA node", &r, abi.QOSBurstable, "LS", `{"numaNodeResources": [{"node": 1, "resources": {"cpu": "2"}}]}`, "9-15", true},
		{"the pools of two NUMA nodes", &r, abi.QOSBurstable, "", `{"numaNodeResources": [{"node": 1, "resources": {"cpu": "2"}}, {"node": 0}]}`, "9-15,4-7", true},
		{"a NUMA node without a pool", &r, abi.QOSBurstable, "", `{"numaNodeResources": [{"node": 3, "resources": {"cpu": 2}}]}`, "", true},
		{"a NUMA node with memory alone", &r, abi.QOSBurstable, "", `{"numaNodeResources": [{"node": 1, "resources": {"memory": "1Gi", "cpu": "0"}}]}`, "4-7,9-15", true},
		{"background on a NUMA node, without the feature", &r, abi.QOSBestEffort, "BE", `{"numaNodeResources": [{"node": 1, "resources": {"kubernetes.io/batch-cpu": "2000"}}]}`, "", true},
		{"background on a NUMA node", &be, abi.QOSBestEffort, "BE", `{"numaNodeResources": [{"node": 1, "resources": {"kubernetes.io/batch-cpu": "2000"}}]}`, "8-15", true},
		{"latency sensitive beside it", &be, abi.QOSBurstable, "LS", `{"numaNodeResources": [{"node": 1, "resources": {"cpu": "2"}}]}`, "9-15", true},
		{"the system", &r, abi.QOSBestEffort, "SYSTEM", "", "0-1", true},
		{"latency sensitive", &static, abi.QOSGuaranteed, "LS", "", "4-7,9-15", true},
		{"background", &r, abi.QOSBestEffort, "BE", "", "", true},
		{"bound by the kubelet", &static, abi.QOSGuaranteed, "", "", "", false},
	} {
		var s status
		if err := decode(c.status, statusAnnotation, &s); err != nil {
			t.Fatal(err)
		}
		req := hooks.NewRequest(hooks.Fields{Level: abi.LevelContainer, QOSClass: c.qos, PodLabels: map[string]string{qosLabel: c.label}})
		if got, ok := c.of.cpus(req, &s, c.of == &be); got != c.want || ok != c.ok {
			t.Errorf("%s: got %q, %t, want %q, %t", c.name, got, ok, c.want, c.ok)
		}
	}
}
