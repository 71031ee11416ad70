package kube137_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

func fetch(t testing.TB, dir string) []byte {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	module, err := host.File(file).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// Cycles with their clones, steps that are repeated on other instances, guests that trap and
// loop, host functions with effects, and a swap: all of it can be repeated from a recording.
func TestARecordingOfCyclesReplays(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(t, 3, fmt.Sprintf(`, "limits": {"timeout": "30ms"}, "record": {"path": %q, "sequenceCalls": 100}`, dir))
	module := fetch(t, "../testdata/extensions")
	other := append(append([]byte(nil), module...), 0, 3, 1, 'a', 0) // A custom section.
	h := &hammer{world: w, r: rand.New(rand.NewPCG(11, 21))}
	for i := range 4 {
		h.nodes = append(h.nodes, kube137test.NewNodeInfo(zoned(fmt.Sprint("n", i), "a")))
	}
	w.handle.Nodes = h.nodes
	var binding sync.WaitGroup
	for i := range 20 {
		if i == 10 {
			if err := w.p.Swap(t.Context(), host.Bytes(other), ""); err != nil {
				t.Fatal(err)
			}
		}
		h.schedule(i, &binding)
	}
	binding.Wait()
	if err := w.p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	replaying.Verify(t, shared, dir, 500, module, other)
}

// The calls of a plugin whose results are not shared, for Pods and Nodes that change.
func TestARecordingOfFiltersReplays(t *testing.T) {
	dir, calls := t.TempDir(), replaying.Calls(t, 3000)
	p := loadZone(t, "", 3, func(cfg *sched.PluginConfig) {
		cfg.Record = &record.Config{Path: dir, QueueBytes: 1 << 30}
	}, unshared)
	for recorded := 0; recorded < calls; recorded += 1440 {
		hammerZones(t, p)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	module, err := host.File(buildZone(t)).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replaying.Verify(t, shared, dir, calls, module)
}

// What a guest gets of the world outside, by the grants clock and random, is in the recording,
// also what it got while it started.
func TestARecordingOfTheClockReplays(t *testing.T) {
	for _, reset := range []host.ResetPolicy{host.ResetOnError, host.ResetNever} {
		t.Run(string(reset), func(t *testing.T) {
			dir := t.TempDir()
			p := loadZone(t, "", 2, func(cfg *sched.PluginConfig) {
				cfg.Record = &record.Config{Path: dir, SequenceCalls: 200}
				cfg.Grants, cfg.Reset = []string{host.GrantClock, host.GrantRandom}, reset
			})
			hammerZones(t, p)
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			module, err := host.File(buildZone(t)).Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			replaying.Verify(t, shared, dir, 1000, module)
		})
	}
}
