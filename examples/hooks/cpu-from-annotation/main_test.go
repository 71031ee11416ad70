package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	type decision struct{ Shares, Quota, Period int64 }
	for _, c := range []struct {
		name       string
		annotation string
		level      abi.Level
		qos        abi.QOSClass
		want       decision // Zero is untouched.
		err        string
	}{
		{name: "thousandths", annotation: "1500m", want: decision{1536, 150_000, 100_000}},
		{name: "whole CPUs", annotation: "2", want: decision{2048, 200_000, 100_000}},
		{name: "not less than the kernel takes", annotation: "1m", want: decision{2, 1000, 100_000}},
		{name: "nor more", annotation: "300", want: decision{262_144, 30_000_000, 100_000}},
		{name: "best effort yields to the others", annotation: "500m", qos: abi.QOSBestEffort, want: decision{2, 50_000, 100_000}},
		{name: "no annotation"},
		{name: "the pod's own cgroup is not ours", annotation: "2", level: abi.LevelPod},
		{name: "not an amount", annotation: "fast", err: `annotation kubewasm.dev/cpu is "fast"`},
		{name: "nothing", annotation: "0m", err: `"0m"`},
		{name: "less than nothing", annotation: "-1", err: `"-1"`},
		{name: "too much", annotation: "99999", err: `"99999"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := hooks.Fields{Level: abi.LevelContainer, QOSClass: c.qos}
			if c.level != 0 {
				f.Level = c.level
			}
			if c.annotation != "" {
				f.PodAnnotations = map[string]string{"kubewasm.dev/cpu": c.annotation}
			}
			var d hooks.Decision
			err := cpuFromAnnotation{}.Decide(hooks.NewRequest(f), &d)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v, want one with %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got decision
			got.Shares, _ = d.CPUShares()
			got.Quota, _ = d.CFSQuota()
			got.Period, _ = d.CFSPeriod()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
