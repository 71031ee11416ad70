package sched_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// TestSharingIsThatOfTheVersion swaps a guest that tells no Nodes apart for one that does, and back:
// each version is asked as if it had always served.
func TestSharingIsThatOfTheVersion(t *testing.T) {
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	made := new(calls)
	made.reset()
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{Config: host.Config{
		Name: "alike", Module: host.ModuleConfig{File: "testdata/alike.wasm"}, Observer: made, Limits: host.Limits{Instances: 1},
	}}, framework.Of(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	const nodes = 20
	infos := emptyNodes(nodes)
	var got []int
	for _, version := range []string{"alike", "apart", "alike"} {
		if err := p.Swap(t.Context(), host.File("testdata/"+version+".wasm"), ""); err != nil {
			t.Fatal(err)
		}
		made.reset()
		cycle := p.Begin(annotated("p"))
		for _, n := range infos {
			if status := p.Filter(cycle, n); status != nil {
				t.Fatal(status.Message())
			}
		}
		got = append(got, made.made["filter"])
	}
	if diff := cmp.Diff([]int{1, nodes, 1}, got); diff != "" {
		t.Errorf("calls of each version (-want +got):\n%s", diff)
	}
}
