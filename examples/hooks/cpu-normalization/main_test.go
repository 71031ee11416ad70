package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name         string
		ratio, quota int64
		want         int64 // Zero is untouched.
		fails        bool
	}{
		{name: "faster", ratio: 125, quota: 100_000, want: 80_000},
		{name: "rounded up", ratio: 150, quota: 100_000, want: 66_667},
		{name: "not less than the kernel takes", ratio: 500, quota: 1000, want: 1000},
		{name: "as fast as reckoned", ratio: 100, quota: 100_000},
		{name: "no limit", ratio: 125, quota: -1},
		{name: "no quota", ratio: 125},
		{name: "slower", ratio: 80, quota: 100_000, fails: true},
	} {
		var r hooks.Resources
		if c.quota != 0 {
			r.SetCFSQuota(c.quota)
		}
		var d hooks.Decision
		err := (&normalization{RatioPercent: c.ratio}).Decide(hooks.RequestOf(hooks.Fields{Level: hooks.LevelContainer, Resources: &r}), &d)
		if (err != nil) != c.fails {
			t.Errorf("%s: error %v", c.name, err)
		}
		if got, _ := d.CFSQuota(); got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}
