package main

import (
	"cmp"
	"slices"

	"github.com/kubewasm/kubewasm/host/profile"
)

// costChange is the cost of a function in two profiles.
type costChange struct {
	Function string       `json:"function"`
	Old      profile.Cost `json:"old"`
	New      profile.Cost `json:"new"`
}

// diffProfiles returns the functions whose flat fuel, or growth of the memory, differs between two
// profiles, those that differ most first. Functions are the same if their names are.
func diffProfiles(old, new *profile.Profile) []costChange {
	before, after := costsByFunction(old), costsByFunction(new)
	var changes []costChange
	names := map[string]bool{}
	for _, costs := range []map[string]profile.Cost{before, after} {
		for name := range costs {
			names[name] = true
		}
	}
	for name := range names {
		c := costChange{Function: name, Old: profile.Cost{Function: name}, New: profile.Cost{Function: name}}
		if cost, ok := before[name]; ok {
			c.Old = cost
		}
		if cost, ok := after[name]; ok {
			c.New = cost
		}
		if c.Old.Flat != c.New.Flat || c.Old.Bytes != c.New.Bytes {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b costChange) int {
		return cmp.Or(
			cmp.Compare(abs(b.New.Flat-b.Old.Flat), abs(a.New.Flat-a.Old.Flat)),
			cmp.Compare(abs(b.New.Bytes-b.Old.Bytes), abs(a.New.Bytes-a.Old.Bytes)),
			cmp.Compare(a.Function, b.Function))
	})
	return changes
}

func abs(n int64) int64 { return max(n, -n) }

// costsByFunction returns the costs of the functions by their names.
func costsByFunction(p *profile.Profile) map[string]profile.Cost {
	costs := map[string]profile.Cost{}
	for _, c := range p.Top(0) {
		costs[c.Function] = c
	}
	return costs
}
