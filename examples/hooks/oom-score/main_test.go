package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/hooks/hookstest"
)

// The cases are those of Koordinator's helper_test.go and oom_score_adj_test.go.
func TestScores(t *testing.T) {
	const none = 9999
	for _, c := range []struct {
		name, score, spec string
		level             abi.Level
		want              int64
	}{
		{"no annotation", "", "", abi.LevelContainer, none},
		{"the pod's", "-500", "", abi.LevelContainer, -500},
		{"the container's own before the pod's", "-500", `{"web": 200}`, abi.LevelContainer, 200},
		{"another container's, and the pod's", "-500", `{"db": 200}`, abi.LevelContainer, -500},
		{"another container's alone", "", `{"db": 200}`, abi.LevelContainer, none},
		{"0 is a score", "-500", `{"web": 0}`, abi.LevelContainer, 0},
		{"the least", "-1000", "", abi.LevelContainer, -1000},
		{"the most", "1000", "", abi.LevelContainer, 1000},
		{"less than there is", "-1001", "", abi.LevelContainer, none},
		{"more than there is", "", `{"web": 1001}`, abi.LevelContainer, none},
		{"no number", "low", "", abi.LevelContainer, none},
		{"no JSON", "5", "{", abi.LevelContainer, none},
		{"a pod has no processes", "-500", "", abi.LevelPod, none},
	} {
		annotations := map[string]string{}
		for name, text := range map[string]string{scoreAnnotation: c.score, specAnnotation: c.spec} {
			if text != "" {
				annotations[name] = text
			}
		}
		var d hooks.Decision
		err := oomScore{}.Decide(hooks.NewRequest(hooks.Fields{Level: c.level, ContainerName: "web", PodAnnotations: annotations}), &d)
		if err != nil {
			t.Errorf("%s: got error %v", c.name, err)
		}
		got, ok := d.OOMScoreAdj()
		if !ok {
			got = none
		}
		if got != c.want {
			t.Errorf("%s: got %d, want %d", c.name, got, c.want)
		}
	}
}

func TestPlugin(t *testing.T) {
	hookstest.Each(t, oomScore{}, func(t *testing.T, p *hookstest.Plugin) {
		d, err := p.Decide(t, `{metadata: {name: web, annotations: {koordinator.sh/oom-score-adj: "300"}}, spec: {containers: [{name: web}]}}`, "web")
		if err != nil || d.Resources == nil || d.Resources.OOMScoreAdj == nil || *d.Resources.OOMScoreAdj != 300 {
			t.Errorf("got %+v, error %v", d, err)
		}
	})
}
