package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	type decision struct{ Shares, Quota, Memory int64 } // Zero is untouched.
	const both = `{"containers": {
		"a": {"requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}, "limits": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}},
		"b": {"requests": {"kubernetes.io/batch-cpu": 1000}, "limits": {"kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": 4096}}}}`
	const open = `{"containers": {
		"a": {"requests": {"kubernetes.io/batch-cpu": "500"}, "limits": {"kubernetes.io/batch-cpu": "1500"}},
		"b": {"limits": {"kubernetes.io/batch-memory": "4096"}},
		"c": {}}}`
	for _, c := range []struct {
		name, annotation, container, label string
		config                             batch
		level                              hooks.Level
		want                               decision
		err                                string
	}{
		{name: "a container", annotation: both, level: hooks.LevelContainer, container: "a", want: decision{512, 150_000, 1 << 30}},
		{name: "the pod has the sum", annotation: both, level: hooks.LevelPod, want: decision{1536, 250_000, 1<<30 + 4096}},
		{name: "a container that is not in the annotation", annotation: both, level: hooks.LevelContainer, container: "x"},
		{name: "a container without a memory limit", annotation: open, level: hooks.LevelContainer, container: "a", want: decision{512, 150_000, -1}},
		{name: "a container without a request", annotation: open, level: hooks.LevelContainer, container: "b", want: decision{2, -1, 4096}},
		{name: "a container with nothing", annotation: open, level: hooks.LevelContainer, container: "c", want: decision{2, -1, -1}},
		{name: "a pod whose containers are not all limited", annotation: open, level: hooks.LevelPod, want: decision{512, -1, -1}},
		{name: "quotas switched off", annotation: both, config: batch{CFSQuota: new(bool)}, level: hooks.LevelPod, want: decision{1536, -1, 1<<30 + 4096}},
		{name: "quotas switched on", annotation: both, config: batch{CFSQuota: new(true)}, level: hooks.LevelContainer, container: "a", want: decision{512, 150_000, 1 << 30}},
		{name: "faster CPUs", annotation: both, config: batch{RatioPercent: 120}, level: hooks.LevelContainer, container: "a", want: decision{512, 125_000, 1 << 30}},
		{name: "slower CPUs", annotation: both, config: batch{RatioPercent: 80}, level: hooks.LevelContainer, container: "a", want: decision{512, 150_000, 1 << 30}},
		{name: "not less than the kernel takes", annotation: `{"containers": {"a": {"requests": {"kubernetes.io/batch-cpu": "1"}, "limits": {"kubernetes.io/batch-cpu": "1"}}}}`,
			config: batch{RatioPercent: 200}, level: hooks.LevelContainer, container: "a", want: decision{2, 1000, -1}},
		{name: "not more than the kernel takes", annotation: `{"containers": {"a": {"requests": {"kubernetes.io/batch-cpu": "1M"}}}}`, level: hooks.LevelPod, want: decision{262_144, -1, -1}},
		{name: "without a label", annotation: both, label: "-", level: hooks.LevelPod},
		{name: "with another label", annotation: both, label: "LS", level: hooks.LevelPod},
		{name: "without the annotation", level: hooks.LevelPod},
		{name: "without containers", annotation: `{}`, level: hooks.LevelPod},
		{name: "the class itself", annotation: both, level: hooks.LevelQOS},
		{name: "not JSON", annotation: `{`, level: hooks.LevelPod, err: "annotation node.koordinator.sh/extended-resource-spec: not valid JSON"},
		{name: "not an amount", annotation: `{"containers": {"a": {"limits": {"kubernetes.io/batch-memory": "much"}}}}`, level: hooks.LevelPod, err: `container "a": kubernetes.io/batch-memory is "much"`},
		{name: "less than nothing", annotation: `{"containers": {"a": {"limits": {"kubernetes.io/batch-memory": "-1"}}}}`, level: hooks.LevelPod, want: decision{2, -1, -1}},
		{name: "more than there can be", annotation: `{"containers": {"a": {"limits": {"kubernetes.io/batch-cpu": "9E"}}}}`, level: hooks.LevelPod, err: "more than there can be"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hooks.Fields{Level: c.level, QOSClass: hooks.QOSBestEffort, ContainerName: c.container, PodAnnotations: map[string]string{}, PodLabels: map[string]string{}}
			if c.annotation != "" {
				f.PodAnnotations[specAnnotation] = c.annotation
			}
			if c.label == "" {
				c.label = "BE"
			}
			if c.label != "-" {
				f.PodLabels[qosLabel] = c.label
			}
			var d hooks.Decision
			err := c.config.Decide(hooks.NewRequest(f), &d)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got decision
			got.Shares, _ = d.CPUShares()
			got.Quota, _ = d.CFSQuota()
			got.Memory, _ = d.MemoryLimit()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
