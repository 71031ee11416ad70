package facts_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

func quota(us int64) *hookmsg.Resources { return &hookmsg.Resources{CFSQuotaUS: &us} }

func TestFactsFollowEvents(t *testing.T) {
	shares := func(n int64) *hookmsg.Resources { return &hookmsg.Resources{CPUShares: &n} }
	cpus := func(list string) *hookmsg.Resources { return &hookmsg.Resources{CPUSetCPUs: &list} }
	unified := func(pairs ...string) *hookmsg.Resources {
		r := &hookmsg.Resources{Unified: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			r.Unified[pairs[i]] = pairs[i+1]
		}
		return r
	}
	// Each event is answered by what is told from then on, nil for what it has itself.
	type event struct{ event, told *hookmsg.Resources }
	for _, c := range []struct {
		name string
		// cgroup is what the cgroup has while nothing is known to be told.
		cgroup *hookmsg.Resources
		events []event
		want   *hookmsg.Resources
		// keeps says that the sender takes nothing back.
		keeps bool
	}{
		{"the own answer", nil, []event{{quota(80), quota(40)}, {quota(40), quota(40)}, {quota(40), quota(40)}}, quota(80), false},
		{"another value", nil, []event{{quota(80), quota(40)}, {quota(60), quota(30)}, {quota(30), nil}}, quota(60), false},
		{"another field", nil, []event{{quota(80), quota(40)}, {quota(40).Overlay(cpus("0-1")), nil}}, quota(80).Overlay(cpus("0-1")), false},
		{"what was answered before", nil, []event{{quota(80), quota(40)}, {quota(160), quota(80)}, {quota(40), nil}}, quota(80), false},
		{"what was answered before, as news", nil, []event{{quota(80), quota(40)}, {quota(160), quota(80)}, {quota(40), nil}}, quota(40), true},
		{"what was asked before", nil, []event{{quota(80), quota(40)}, {quota(60), quota(30)}, {quota(80), nil}}, quota(80), false},
		{"nothing", nil, []event{{quota(80), quota(40)}, {nil, nil}}, quota(80), false},
		{"an entry that is another", nil, []event{{unified("a", "1", "b", "2"), unified("a", "5", "b", "2")}, {unified("a", "5", "b", "3", "c", "4"), nil}}, unified("a", "1", "b", "3", "c", "4"), false},
		{"after a restart, what the cgroup has", quota(40), []event{{quota(40), nil}}, nil, false},
		{"after a restart, what the cgroup has and another", quota(40), []event{{quota(40).Overlay(shares(5)), nil}}, shares(5), false},
		{"after a restart, another value", quota(40), []event{{quota(60), quota(30)}, {quota(30), nil}}, quota(60), false},
		{"after a restart, twice the own answer and then another", quota(40), []event{{quota(40), quota(40)}, {quota(40), quota(40)}, {quota(50), nil}}, quota(50), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f facts.Facts
			for _, e := range c.events {
				before := e.event
				f.Hear(e.event, !c.keeps, func(r *hookmsg.Resources) *hookmsg.Resources {
					others := new(hookmsg.Resources)
					if r.CFSQuotaUS != nil && (c.cgroup == nil || *c.cgroup.CFSQuotaUS != *r.CFSQuotaUS) {
						others.CFSQuotaUS = r.CFSQuotaUS
					}
					others.CPUShares, others.CPUSetCPUs, others.Unified = r.CPUShares, r.CPUSetCPUs, r.Unified
					return others
				})
				if e.told == nil {
					e.told = before
				}
				f.Told = e.told
			}
			if diff := cmp.Diff(c.want, f.Asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestListsCorrectFacts(t *testing.T) {
	now := time.Now()
	type list struct {
		listed *hookmsg.Resources
		after  time.Duration // The event.
	}
	for _, c := range []struct {
		name     string
		event    *hookmsg.Resources // nil for none.
		inferred bool
		lists    []list
		want     *hookmsg.Resources
	}{
		{"lists alone", nil, false, []list{{quota(80), 0}, {quota(60), 0}}, quota(60)},
		{"a limit that is gone", nil, false, []list{{quota(80), 0}, {new(hookmsg.Resources), 0}}, new(hookmsg.Resources)},
		{"inferred, and not any more", nil, true, []list{{quota(80), 0}, {new(hookmsg.Resources), 0}}, new(hookmsg.Resources)},
		{"a resize that is pending", nil, false, []list{{quota(80), 0}, {nil, 0}}, quota(80)},
		{"a list from before the event", quota(160), false, []list{{quota(80), -time.Second}}, quota(160)},
		{"a list that is late", quota(160), false, []list{{quota(80), -time.Second}, {quota(80), time.Second}}, quota(160)},
		{"a list that has changed since", quota(160), false, []list{{quota(80), -time.Second}, {quota(80), time.Second}, {quota(60), 2 * time.Second}}, quota(60)},
		{"a list that says so for a long time", quota(160), false, []list{{quota(80), -time.Second}, {quota(80), 2 * time.Minute}}, quota(80)},
		{"an inferred list", quota(160), true, []list{{quota(80), 2 * time.Minute}}, quota(160)},
		{"a list of more", quota(160), true, []list{{&hookmsg.Resources{CPUShares: new(int64(5))}, time.Second}}, &hookmsg.Resources{CPUShares: new(int64(5)), CFSQuotaUS: new(int64(160))}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f facts.Facts
			if c.event != nil {
				f.Asked, f.Heard = c.event, now
			}
			for _, l := range c.lists {
				f.List(l.listed, now.Add(l.after), c.inferred)
			}
			if diff := cmp.Diff(c.want, f.Asked); diff != "" {
				t.Error(diff)
			}
		})
	}
}
