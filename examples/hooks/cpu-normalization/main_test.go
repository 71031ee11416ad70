package main

import (
	"math"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	const absent = math.MinInt64
	for _, c := range []struct {
		name         string
		ratio, quota int64
		label        string
		annotation   string
		node         string // The annotation of the Node.
		want         int64  // Zero is untouched.
		fails        bool
	}{
		{name: "faster", ratio: 125, quota: 100_000, want: 80_000},
		{name: "rounded up", ratio: 150, quota: 100_000, want: 66_667},
		{name: "rounded up from nearly nothing", ratio: 101, quota: 102_010_101, want: 101_000_100},
		{name: "exact", ratio: 120, quota: 120_000, want: 100_000},
		{name: "the largest ratio", ratio: 10_000, quota: 1_000_000, want: 10_000},
		{name: "the largest quota", ratio: 200, quota: math.MaxInt64, want: math.MaxInt64/2 + 1},
		{name: "not less than the kernel takes", ratio: 500, quota: 1000, want: 1000},
		{name: "as fast as reckoned undoes it", ratio: 100, quota: 100_000, want: 100_000},
		{name: "just faster", ratio: 101, quota: 100_000, want: 99_010},
		{name: "slower undoes it, too", ratio: 80, quota: 100_000, want: 100_000},
		{name: "the smallest ratio", ratio: 1, quota: 100_000, want: 100_000},
		{name: "the node's own", ratio: absent, node: "1.20", quota: 100_000, want: 83_334},
		{name: "the node's own first", ratio: 125, node: "2", quota: 100_000, want: 50_000},
		{name: "the node's own, with more digits than it is written with", ratio: absent, node: "1.3333", quota: 100_000, want: 75_002},
		{name: "a node as fast as reckoned", ratio: 125, node: "1.00", quota: 100_000, want: 100_000},
		{name: "a slower node", ratio: 125, node: "0.8", quota: 100_000, want: 100_000},
		{name: "a node's ratio of nothing", ratio: 125, node: "0", quota: 100_000},
		{name: "a node's ratio below nothing", ratio: 125, node: "-1", quota: 100_000},
		{name: "a node's ratio that is no number", ratio: 125, node: "fast", quota: 100_000},
		{name: "a node's ratio that is not a number", ratio: 125, node: "NaN", quota: 100_000},
		{name: "a node's ratio without end", ratio: 125, node: "Inf", quota: 100_000},
		{name: "background on a node with a ratio", ratio: absent, node: "1.20", quota: 100_000, label: "BE"},
		{name: "no limit", ratio: 125, quota: -1},
		{name: "no quota", ratio: 125},
		{name: "no ratio", ratio: absent, quota: 100_000},
		{name: "nothing", ratio: 0, quota: 100_000, fails: true},
		{name: "less than nothing", ratio: -1, quota: 100_000, fails: true},
		{name: "too large", ratio: 10_001, quota: 100_000, fails: true},
		{name: "latency sensitive", ratio: 125, quota: 100_000, label: "LS", want: 80_000},
		{name: "background", ratio: 125, quota: 100_000, label: "BE"},
		{name: "with CPUs reserved", ratio: 125, quota: 100_000, label: "LSR"},
		{name: "a word that is none", ratio: 125, quota: 100_000, label: "fast", want: 80_000},
		{name: "with CPUs of its own", ratio: 125, quota: 100_000, annotation: `{"cpuset": "0-3"}`},
		{name: "latency sensitive with CPUs of its own", ratio: 125, quota: 100_000, label: "LS", annotation: `{"cpuset": "0-3"}`, want: 80_000},
		{name: "an annotation that cannot be read", ratio: 125, quota: 100_000, annotation: `{"cpuset"`, want: 80_000},
	} {
		f := hooks.Fields{Level: abi.LevelContainer, Resources: new(hooks.Resources), PodLabels: map[string]string{}, PodAnnotations: map[string]string{}}
		if c.quota != 0 {
			f.Resources.SetCFSQuota(c.quota)
		}
		if c.label != "" {
			f.PodLabels[qosLabel] = c.label
		}
		if c.annotation != "" {
			f.PodAnnotations[statusAnnotation] = c.annotation
		}
		if c.node != "" {
			f.NodeAnnotations = map[string]string{ratioAnnotation: c.node}
		}
		n := &normalization{RatioPercent: &c.ratio}
		if c.ratio == absent {
			n.RatioPercent = nil
		}
		var d hooks.Decision
		err := n.Decide(hooks.NewRequest(f), &d)
		if (err != nil) != c.fails {
			t.Errorf("%s: error %v", c.name, err)
		}
		if got, _ := d.CFSQuota(); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}
