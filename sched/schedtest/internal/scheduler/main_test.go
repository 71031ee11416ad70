package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

func TestFilter(t *testing.T) {
	schedtest.Each(t, &zone{Label: "zone"}, func(t *testing.T, p *schedtest.Plugin) {
		tests := map[string]struct{ config, pod, node, want string }{
			"in the zone":          {"", `metadata: {labels: {zone: a}}`, `metadata: {labels: {zone: a}}`, "Success"},
			"in another zone":      {"", `metadata: {labels: {zone: a}}`, `metadata: {labels: {zone: b}}`, "Unschedulable: node is in zone b"},
			"by another label":     {"label: rack", `metadata: {labels: {zone: a}}`, `metadata: {labels: {zone: b, rack: a}}`, "Success"},
			"refused by PreFilter": {"", `metadata: {labels: {zone: none}}`, `{}`, "UnschedulableAndUnresolvable: no zone is allowed"},
			"skipped by PreFilter": {"", `{}`, `metadata: {labels: {zone: b}}`, "Success"},
		}
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				if got := p.Configure(t, test.config).Filter(t, test.pod, test.node).String(); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		}
	})
}

func TestCycle(t *testing.T) {
	schedtest.Each(t, &zone{}, func(t *testing.T, p *schedtest.Plugin) {
		c := p.Configure(t, "{label: zone, only: [n1, node-2]}").Begin(t, `metadata: {labels: {zone: a}}`)
		slices.Sort(c.NodeNames)
		if !c.Status.IsSuccess() || !slices.Equal(c.NodeNames, []string{"n1", "node-2"}) {
			t.Errorf("PreFilter: %s, nodes %v", c.Status, c.NodeNames)
		}
		scores := sched.NodeScoreList{sched.NewNodeScore("n1", 0), sched.NewNodeScore("node-2", 0)}
		for i := range scores {
			var status *sched.Status
			if scores[i].Score, status = c.Score(t, "metadata: {name: "+scores[i].Name()+"}"); !status.IsSuccess() {
				t.Error(status)
			}
		}
		got, status := c.NormalizeScore(t, scores)
		if want := (sched.NodeScoreList{sched.NewNodeScore("n1", 20), sched.NewNodeScore("node-2", 60)}); !status.IsSuccess() || !slices.Equal(got, want) {
			t.Errorf("NormalizeScore: %v, %s; want %v", got, status, want)
		}
		if scores[0].Score != 2 {
			t.Error("NormalizeScore changed what it was given")
		}
		if _, status := c.Score(t, "metadata: {name: bad-node}"); status.String() != "Error: no score for bad-node" {
			t.Errorf("got %s", status)
		}
	})
}

func TestConfigurationWithMistakes(t *testing.T) {
	schedtest.Each(t, &zone{}, func(t *testing.T, p *schedtest.Plugin) {
		_, err := p.TryConfigure(t, "{only: [7], labl: x}")
		if want := "only[0]: want string, got number"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "labl: unknown field") {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}

func TestConfigurationThatThePluginRefuses(t *testing.T) {
	schedtest.Each(t, &zone{Label: "zone"}, func(t *testing.T, p *schedtest.Plugin) {
		if _, err := p.TryConfigure(t, `label: ""`); err == nil || err.Error() != "label: Required value" {
			t.Errorf("got %v", err)
		}
	})
}

// TestUndeclaredField shows why a test runs both ways: the guest does not declare
// that it reads whether a node is cordoned.
func TestUndeclaredField(t *testing.T) {
	var got []string
	schedtest.Each(t, &zone{Label: "zone"}, func(t *testing.T, p *schedtest.Plugin) {
		got = append(got, p.Filter(t, `metadata: {labels: {zone: a}}`, `{metadata: {labels: {zone: a}}, spec: {unschedulable: true}}`).String())
	})
	if want := []string{"Unschedulable: node is cordoned", "Success"}; !slices.Equal(got, want[:len(got)]) {
		t.Errorf("natively and as WebAssembly: %q, want %q", got, want)
	}
}
