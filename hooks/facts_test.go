package hooks_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
)

func quota(us int64) *hookmsg.Resources { return &hookmsg.Resources{CFSQuotaUS: &us} }

func TestFactsHear(t *testing.T) {
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
		{"another field", nil, []event{{quota(80), quota(40)}, {hooks.Overlay(quota(40), cpus("0-1")), nil}}, hooks.Overlay(quota(80), cpus("0-1")), false},
		{"what was answered before", nil, []event{{quota(80), quota(40)}, {quota(160), quota(80)}, {quota(40), nil}}, quota(80), false},
		{"what was answered before, as news", nil, []event{{quota(80), quota(40)}, {quota(160), quota(80)}, {quota(40), nil}}, quota(40), true},
		{"what was asked before", nil, []event{{quota(80), quota(40)}, {quota(60), quota(30)}, {quota(80), nil}}, quota(80), false},
		{"nothing", nil, []event{{quota(80), quota(40)}, {nil, nil}}, quota(80), false},
		{"an entry that is another", nil, []event{{unified("a", "1", "b", "2"), unified("a", "5", "b", "2")}, {unified("a", "5", "b", "3", "c", "4"), nil}}, unified("a", "1", "b", "3", "c", "4"), false},
		{"after a restart, what the cgroup has", quota(40), []event{{quota(40), nil}}, nil, false},
		{"after a restart, what the cgroup has and another", quota(40), []event{{hooks.Overlay(quota(40), shares(5)), nil}}, shares(5), false},
		{"after a restart, another value", quota(40), []event{{quota(60), quota(30)}, {quota(30), nil}}, quota(60), false},
		{"after a restart, twice the own answer and then another", quota(40), []event{{quota(40), quota(40)}, {quota(40), quota(40)}, {quota(50), nil}}, quota(50), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f hooks.Facts
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

func TestFactsList(t *testing.T) {
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
			var f hooks.Facts
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

// What is known of pods and containers goes with them.
func TestFactsAreForgotten(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"kubepods/podu1/c1", "kubepods/podu2"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	applier, err := hooks.NewApplier(hooks.ApplierConfig{Root: root, Version: hooks.V2})
	if err != nil {
		t.Fatal(err)
	}
	defer applier.Close()
	state := new(hooks.State)
	enforcer := hooks.NewEnforcer(state, applier, hooks.EnforcerConfig{})
	defer enforcer.Close()
	learn := func(uid, id, parent, cgroup string) {
		state.Learn(hooks.Subject{PodUID: uid, ContainerID: id}, func(f *hooks.Facts) { f.Asked, f.Parent, f.Cgroup = quota(80), parent, cgroup })
	}
	known := func(uid, id string) bool {
		return state.Facts(hooks.Subject{PodUID: uid, ContainerID: id}).Asked != nil
	}
	learn("u1", "", "kubepods/podu1", "kubepods/podu1")
	learn("u1", "c1", "kubepods/podu1", "kubepods/podu1/c1")
	learn("u1", "c0", "kubepods/podu1", "kubepods/podu1/c0")
	learn("u1", "soon", "kubepods/podu1", "") // It has no cgroup yet.
	learn("u3", "c3", "kubepods/podu3", "")
	learn("", "c4", "", "") // Nothing to remember it by.
	pods := enforcer.Prune(func(string) bool { return false })
	if diff := cmp.Diff([]string{"u3"}, pods); diff != "" {
		t.Error(diff)
	}
	for id, want := range map[string]bool{"": true, "c1": true, "c0": false, "soon": true} {
		if got := known("u1", id); got != want {
			t.Errorf("of %q is known: %t", id, got)
		}
	}
	if known("", "c4") {
		t.Error("a pod without a UID is remembered")
	}
	state.Forget(hooks.Subject{PodUID: "u1", ContainerID: "c1"})
	if known("u1", "c1") || !known("u1", "") {
		t.Error("a container that is forgotten")
	}
	state.RemovePod("u1")
	if known("u1", "") || known("u1", "soon") {
		t.Error("a pod that is removed")
	}
}

func TestEnforcerOthers(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cpu.max": "40000 100000\n", "cpu.weight": "59\n", "cpuset.cpus": "0-1\n", "memory.max": "max\n", "io.weight": "default 5\n"} {
		if err := os.WriteFile(filepath.Join(root, "c", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	applier, err := hooks.NewApplier(hooks.ApplierConfig{Root: root, Version: hooks.V2})
	if err != nil {
		t.Fatal(err)
	}
	defer applier.Close()
	enforcer := hooks.NewEnforcer(new(hooks.State), applier, hooks.EnforcerConfig{})
	defer enforcer.Close()
	same := &hookmsg.Resources{
		CFSQuotaUS: new(int64(40_000)), CFSPeriodUS: new(int64(100_000)), CPUShares: new(int64(512)), CPUSetCPUs: new("0,1"), MemoryLimitBytes: new(int64(-1)),
		Unified: map[string]string{"io.weight": "default 5"},
	}
	if got := enforcer.Others("c", same); got != nil {
		t.Errorf("of what it has, it has otherwise %+v", got)
	}
	limits := &hookmsg.Resources{CFSQuotaUS: same.CFSQuotaUS, CFSPeriodUS: same.CFSPeriodUS, MemoryLimitBytes: same.MemoryLimitBytes}
	if diff := cmp.Diff(limits, enforcer.Limits("c")); diff != "" {
		t.Errorf("its limits: %s", diff)
	}
	if diff := cmp.Diff(new(hookmsg.Resources), enforcer.Limits("../c")); diff != "" {
		t.Errorf("of a cgroup that is not below the root: %s", diff)
	}
	if got := enforcer.Others("nowhere", same); got != nil {
		t.Errorf("a cgroup that is not there has otherwise %+v", got)
	}
	// memory.high is not there.
	other := &hookmsg.Resources{CFSQuotaUS: new(int64(60_000)), CPUShares: new(int64(512)), CPUSetCPUs: new("0"), MemoryHighBytes: new(int64(4096))}
	if diff := cmp.Diff(&hookmsg.Resources{CFSQuotaUS: new(int64(60_000)), CPUSetCPUs: new("0")}, enforcer.Others("c", other)); diff != "" {
		t.Error(diff)
	}
}
