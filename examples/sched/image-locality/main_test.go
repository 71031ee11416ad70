package main

import (
	"testing"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/sched/schedtest"
)

func TestScore(t *testing.T) {
	big := sched.ImageState{Name: "big:latest", Size: 1000 * mib, NumNodes: 1}
	tests := map[string]struct {
		images []sched.ImageState
		want   int64
	}{
		"all of it":           {[]sched.ImageState{big}, 100},
		"nothing":             {nil, 0},
		"another image":       {[]sched.ImageState{{Name: "small:1", Size: 1000 * mib, NumNodes: 1}}, 0},
		"too little to count": {[]sched.ImageState{{Name: "big:latest", Size: minThreshold, NumNodes: 1}}, 0},
		"half of it":          {[]sched.ImageState{{Name: "big:latest", Size: 500 * mib, NumNodes: 1}}, 48},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			state := sched.NewCycleState()
			pod := schedtest.Pod(t, `spec: {containers: [{name: c, image: big}]}`)
			state.Write(key, &wanted{images: []string{normalizedName("big")}, nodes: 1})
			node := sched.NewNodeInfo(core.Node{}).With(sched.NodeUsage{}, test.images, nil)
			got, status := imageLocality{}.Score(state, pod, node)
			if got != test.want || !status.IsSuccess() {
				t.Errorf("got %d, %s, want %d", got, status, test.want)
			}
		})
	}
}

func TestNormalizeScore(t *testing.T) {
	scores := sched.NodeScoreList{sched.NewNodeScore("a", 10), sched.NewNodeScore("b", 40), sched.NewNodeScore("c", 0)}
	if status := (imageLocality{}).NormalizeScore(sched.NewCycleState(), core.Pod{}, scores); !status.IsSuccess() {
		t.Fatal(status)
	}
	if scores[0].Score != 25 || scores[1].Score != 100 || scores[2].Score != 0 {
		t.Errorf("got %v", scores)
	}
}

func TestNormalizedName(t *testing.T) {
	for name, want := range map[string]string{
		"web": "web:latest", "web:1": "web:1", "registry:5000/web": "registry:5000/web:latest", "registry:5000/web:1": "registry:5000/web:1",
	} {
		if got := normalizedName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
