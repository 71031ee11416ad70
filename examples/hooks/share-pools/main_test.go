package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestTheCPUsOfARule(t *testing.T) {
	r := rule{pools: []pool{{0, "4-7"}, {1, "9-15"}}}
	r.system.CPUSet = "0-1"
	static := r
	static.policy.Policy = "static"
	for _, c := range []struct {
		name   string
		of     *rule
		qos    hooks.QOSClass
		label  string
		status string
		want   string
		ok     bool
	}{
		{"all pools", &r, hooks.QOSBurstable, "", "", "4-7,9-15", true},
		{"the pool of a NUMA node", &r, hooks.QOSBurstable, "LS", `{"numaNodeResources": [{"node": 1}]}`, "9-15", true},
		{"the pools of two NUMA nodes", &r, hooks.QOSBurstable, "", `{"numaNodeResources": [{"node": 1}, {"node": 0}]}`, "9-15,4-7", true},
		{"a NUMA node without a pool", &r, hooks.QOSBurstable, "", `{"numaNodeResources": [{"node": 3}]}`, "", true},
		{"the system", &r, hooks.QOSBestEffort, "SYSTEM", "", "0-1", true},
		{"latency sensitive", &static, hooks.QOSGuaranteed, "LS", "", "4-7,9-15", true},
		{"background", &r, hooks.QOSBestEffort, "BE", "", "", true},
		{"bound by the kubelet", &static, hooks.QOSGuaranteed, "", "", "", false},
	} {
		var s status
		if err := decode(c.status, statusAnnotation, &s); err != nil {
			t.Fatal(err)
		}
		req := hooks.NewRequest(hooks.Fields{Level: hooks.LevelContainer, QOSClass: c.qos, PodLabels: map[string]string{qosLabel: c.label}})
		if got, ok := c.of.cpus(req, &s); got != c.want || ok != c.ok {
			t.Errorf("%s: got %q, %t, want %q, %t", c.name, got, ok, c.want, c.ok)
		}
	}
}
