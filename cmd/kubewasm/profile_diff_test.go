package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host/profile"
)

func TestDiffProfiles(t *testing.T) {
	a, b, c := &profile.Function{Name: "a"}, &profile.Function{Name: "b"}, &profile.Function{Name: "c"}
	path := func(fuel, bytes int64, stack ...*profile.Function) profile.Sample {
		return profile.Sample{Stack: stack, Fuel: fuel, Bytes: bytes}
	}
	old := &profile.Profile{Samples: []profile.Sample{path(5, 0, b, a), path(3, 64, a), path(2, 0, b, a, b, a)}}
	changes := diffProfiles(old, &profile.Profile{Samples: []profile.Sample{path(5, 0, c, a), path(3, 64, a), path(9, 0, b, a)}})
	if diff := cmp.Diff([]costChange{
		{Function: "c", Old: profile.Cost{Function: "c"}, New: profile.Cost{Function: "c", Flat: 5, Cumulative: 5}},
		{Function: "b", Old: profile.Cost{Function: "b", Flat: 7, Cumulative: 7}, New: profile.Cost{Function: "b", Flat: 9, Cumulative: 9}},
	}, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}
