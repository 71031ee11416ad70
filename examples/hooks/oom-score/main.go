// Command oom-score is a runtime hook that sets the OOM score of containers, after Koordinator's
// hook oomscoreadj. An annotation has that of all containers of a pod, another those of some by
// their names:
//
//	koordinator.sh/oom-score-adj: "-500"
//	koordinator.sh/oom-score-adj-spec: '{"sidecar": 500}'
//
// A container that neither names keeps the score of the kubelet, and so does one whose annotation
// cannot be read, which is logged. Scores below -997, which no pod has otherwise, need the grant
// oomScoreAdj.
package main

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
	"github.com/kubewasm/kubewasm/guest/log"
)

//kubewasm:reads pod container pod_annotations[koordinator.sh/oom-score-adj] pod_annotations[koordinator.sh/oom-score-adj-spec]
//kubewasm:decides oom_score_adj

const (
	scoreAnnotation = "koordinator.sh/oom-score-adj"
	specAnnotation  = "koordinator.sh/oom-score-adj-spec"

	minScore, maxScore = -1000, 1000
)

type oomScore struct{}

func (oomScore) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() != abi.LevelContainer {
		return nil
	}
	score, ok, err := scoreOf(req)
	switch {
	case err != nil:
		log.Warn("the kubelet's OOM score stays", "pod", req.Pod().Name(), "container", req.Container().Name(), "err", err)
		return nil
	case !ok:
		return nil
	case score < minScore || score > maxScore:
		log.Warn("the kubelet's OOM score stays", "pod", req.Pod().Name(), "container", req.Container().Name(), "score", score, "want", "-1000 to 1000")
		return nil
	}
	d.SetOOMScoreAdj(score)
	return nil
}

// scoreOf returns the score of a container; ok is false if it has none.
func scoreOf(req *hooks.Request) (score int64, ok bool, err error) {
	if text := req.PodAnnotations().Get(specAnnotation); text != "" {
		var scores map[string]int64
		if err := json.Unmarshal([]byte(text), &scores); err != nil {
			return 0, false, errors.New("annotation " + specAnnotation + ": " + err.Error())
		}
		if score, ok := scores[req.Container().Name()]; ok {
			return score, true, nil
		}
	}
	text := req.PodAnnotations().Get(scoreAnnotation)
	if text == "" {
		return 0, false, nil
	}
	if score, err = strconv.ParseInt(text, 10, 64); err != nil {
		return 0, false, errors.New("annotation " + scoreAnnotation + " is " + strconv.Quote(text) + ", want a number")
	}
	return score, true, nil
}

func init() { hooks.Register(oomScore{}) }

func main() {}
