package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	type decision struct{ Shares, Quota, Memory int64 } // Zero is untouched.
	both := map[string]string{cpuPrefix + "a": "1500m", cpuPrefix + "b": "1", memoryPrefix + "a": "4096", memoryPrefix + "b": "8192", "other": "x"}
	for _, c := range []struct {
		name        string
		annotations map[string]string
		level       hooks.Level
		class       hooks.QOSClass
		container   string
		want        decision
		err         string
	}{
		{name: "a container", annotations: both, level: hooks.LevelContainer, container: "a", want: decision{1536, 150_000, 4096}},
		{name: "the pod has the sum", annotations: both, level: hooks.LevelPod, want: decision{2560, 250_000, 12_288}},
		{name: "a container that has none", annotations: both, level: hooks.LevelContainer, container: "c"},
		{name: "a pod whose containers are not all limited", annotations: map[string]string{cpuPrefix + "a": "1", cpuPrefix + "b": "1", memoryPrefix + "a": "4096"},
			level: hooks.LevelPod, want: decision{Shares: 2048, Quota: 200_000}},
		{name: "not less than the kernel takes", annotations: map[string]string{cpuPrefix + "a": "1m"}, level: hooks.LevelContainer, container: "a", want: decision{2, 1000, 0}},
		{name: "another class", annotations: both, level: hooks.LevelPod, class: hooks.QOSBurstable},
		{name: "the class itself", annotations: both, level: hooks.LevelQOS},
		{name: "not an amount", annotations: map[string]string{memoryPrefix + "a": "1Gi"}, level: hooks.LevelContainer, container: "a", err: `annotation batch.kubewasm.dev/memory.a: "1Gi" is not an amount`},
		{name: "less than nothing", annotations: map[string]string{cpuPrefix + "a": "-1"}, level: hooks.LevelPod, err: `"-1" is not an amount`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.class == 0 {
				c.class = hooks.QOSBestEffort
			}
			var d hooks.Decision
			err := decide(hooks.RequestOf(hooks.Fields{Level: c.level, QOSClass: c.class, ContainerName: c.container, PodAnnotations: c.annotations}), &d)
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
