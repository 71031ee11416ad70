package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

func TestLinesAboutAPlugin(t *testing.T) {
	tests := map[string]bool{
		`time=1 level=INFO msg="policy denied the request" policy=zone uid=1`:    true,
		`time=1 level=INFO msg="plugin is loaded" plugin=zone`:                   true,
		`{"level":"INFO","msg":"plugin is loaded","plugin":"zone","digest":"a"}`: true,
		`time=1 level=INFO msg=a plugin=zone-of-others`:                          false,
		`{"msg":"a","plugin":"zones"}`:                                           false,
		`time=1 msg="zone" uid=zone`:                                             false,
		`time=1 msg=a policy="zone"`:                                             true,
	}
	for line, want := range tests {
		if got := names(line, "zone"); got != want {
			t.Errorf("%s: got %v, want %v", line, got, want)
		}
	}
}

func TestProcessesInTheSameStateAreOneRow(t *testing.T) {
	var list []processState
	add := func(n int, state, message string) {
		for range n {
			list = append(list, processState{Namespace: "kube-system", Process: "agent-" + string(rune('a'+len(list))), PluginState: v1alpha1.PluginState{State: state, Generation: 3, Digest: strings.Repeat("ab", 32), Message: message}})
		}
	}
	add(1, "Unavailable", "no route to host")
	add(7, "Serving", "")
	tests := map[string]struct {
		all  bool
		want []string
	}{
		"grouped": {false, []string{"kube-system/agent-a", "7 processes such as kube-system/agent-b"}},
		"all":     {true, []string{"kube-system/agent-a", "kube-system/agent-b", "kube-system/agent-c", "kube-system/agent-d", "kube-system/agent-e", "kube-system/agent-f", "kube-system/agent-g", "kube-system/agent-h"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			(&statusFlags{all: test.all}).processes(&out, list)
			var got []string
			for line := range strings.Lines(out.String()) {
				first, _, _ := strings.Cut(line, "\t")
				got = append(got, first)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
