package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	type decision struct {
		CPUs  string // "-" is untouched.
		Quota int64  // Zero is untouched.
	}
	untouched := decision{CPUs: "-"}
	const bound, onNode1, memoryOnNode1 = `{"cpuset": "0-3,8"}`, `{"numaNodeResources": [{"node": 1, "resources": {"cpu": "2"}}]}`, `{"numaNodeResources": [{"node": 1, "resources": {"memory": "1Gi", "cpu": "0"}}]}`
	const batchOnBoth = `{"numaNodeResources": [{"node": 1, "resources": {"kubernetes.io/batch-cpu": 500}}, {"node": 0}]}`
	pools := cpuset{SharePools: []pool{{0, "4-7"}, {1, "9-15"}}}
	both := cpuset{SharePools: pools.SharePools, BESharePools: []pool{{0, "2-7"}, {1, "8-15"}}, SystemCPUSet: "0-1"}
	static := cpuset{SharePools: pools.SharePools, KubeletPolicy: "static"}
	for _, c := range []struct {
		name, annotation, label string
		config                  cpuset
		class                   abi.QOSClass
		level                   abi.Level
		want                    decision
	}{
		{name: "a container", annotation: bound, want: decision{"0-3,8", -1}},
		{name: "its pod is not bound, but must have room", annotation: bound, level: abi.LevelPod, want: decision{"-", -1}},
		{name: "quotas kept", annotation: bound, config: cpuset{KeepQuota: true}, want: decision{"0-3,8", 0}},
		{name: "beside pools", annotation: bound, config: pools, label: "LSR", want: decision{"0-3,8", -1}},
		{name: "no annotation", want: untouched},
		{name: "a class has no annotation", annotation: bound, level: abi.LevelQOS, want: untouched},
		{name: "not CPUs", annotation: `{"cpuset": "all"}`, want: untouched},
		{name: "not JSON", annotation: `{`, want: untouched},
		{name: "not JSON, with pools", annotation: `{`, config: pools, label: "LS", want: untouched},
		{name: "latency sensitive", config: pools, label: "LS", want: decision{"4-7,9-15", 0}},
		{name: "latency sensitive with a static kubelet", config: static, label: "LS", want: decision{"4-7,9-15", 0}},
		{name: "without a label", config: pools, want: decision{"4-7,9-15", 0}},
		{name: "without a label, with a static kubelet", config: static, want: untouched},
		{name: "a pod is not bound to pools", config: pools, label: "LS", level: abi.LevelPod, want: untouched},
		{name: "of one NUMA node", annotation: onNode1, config: pools, want: decision{"9-15", 0}},
		{name: "of one NUMA node, with a static kubelet", annotation: onNode1, config: static, label: "LS", want: decision{"9-15", 0}},
		{name: "with memory of one NUMA node", annotation: memoryOnNode1, config: pools, want: decision{"4-7,9-15", 0}},
		{name: "background of NUMA nodes, in their order", annotation: batchOnBoth, config: both, class: abi.QOSBestEffort, label: "BE", want: decision{"8-15,2-7", 0}},
		{name: "background of NUMA nodes without pools of its own", annotation: batchOnBoth, config: pools, class: abi.QOSBestEffort, label: "BE", want: decision{"", 0}},
		{name: "background", config: both, class: abi.QOSBestEffort, label: "BE", want: decision{"", 0}},
		{name: "best effort", config: static, class: abi.QOSBestEffort, want: decision{"", 0}},
		{name: "the system's", config: both, label: "SYSTEM", want: decision{"0-1", 0}},
		{name: "the system's without any", config: pools, label: "SYSTEM", want: decision{"4-7,9-15", 0}},
		{name: "empty pools", config: cpuset{SharePools: []pool{}}, label: "LS", want: decision{"", 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hooks.Fields{Level: c.level, QOSClass: c.class, PodAnnotations: map[string]string{}, PodLabels: map[string]string{}}
			if f.Level == 0 {
				f.Level = abi.LevelContainer
			}
			if f.QOSClass == 0 {
				f.QOSClass = abi.QOSBurstable
			}
			if c.annotation != "" {
				f.PodAnnotations[statusAnnotation] = c.annotation
			}
			if c.label != "" {
				f.PodLabels[qosLabel] = c.label
			}
			var d hooks.Decision
			err := c.config.Decide(hooks.NewRequest(f), &d)
			if err != nil {
				t.Fatal(err)
			}
			got := untouched
			if cpus, ok := d.CPUSet(); ok {
				got.CPUs = cpus
			}
			got.Quota, _ = d.CFSQuota()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
