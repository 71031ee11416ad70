// Command cpu-normalization is a runtime hook for nodes whose CPUs are faster than those
// that requests assume: it divides the quotas of pods and containers by the ratio of the node,
// after Koordinator's hook of the same name. The ratio is in an annotation of the Node, which
// Koordinator's manager writes:
//
//	node.koordinator.sh/cpu-normalization-ratio: "1.20"
//
// A change of the annotation changes the quotas of what runs. A ratio of 1 or less restores
// the quotas that were requested, which undoes an earlier, larger ratio. The configuration may
// have a ratio for nodes without the annotation, in hundredths:
//
//	{"ratioPercent": 125}
//
// Without any ratio it decides nothing.
//
// It changes pods that share CPUs: those with the label koordinator.sh/qosClass LS,
// and those without the label that have no CPUs of their own. The shares stay, since
// they are relative.
package main

import (
	"errors"
	"math"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/json"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/log"
)

const (
	qosLabel         = "koordinator.sh/qosClass"
	statusAnnotation = "scheduling.koordinator.sh/resource-status"
	ratioAnnotation  = "node.koordinator.sh/cpu-normalization-ratio"
	maxRatioPercent  = 10_000
	minQuota         = 1000 // Microseconds: the kernel's minimum.
)

// normalization has the ratio of nodes without the annotation, nil for none.
type normalization struct {
	RatioPercent *int64 `json:"ratioPercent"`
}

func (n *normalization) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == abi.LevelQOS || !shares(req) {
		return nil
	}
	ratio, err := n.ratio(req)
	if err != nil || ratio == 0 {
		return err
	}
	quota, ok := req.Resources().CFSQuota()
	if !ok || quota <= 0 {
		return nil
	}
	if ratio > 1 {
		quota = int64(math.Ceil(float64(quota) / ratio))
	}
	d.SetCFSQuota(max(quota, minQuota))
	return nil
}

// ratio returns the ratio of the node, 0 if it has none.
func (n *normalization) ratio(req *hooks.Request) (float64, error) {
	if text, ok := req.Node().Annotations().Lookup(ratioAnnotation); ok {
		ratio, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ratio > 0) || math.IsInf(ratio, 0) {
			log.Warn("quotas are not divided: the annotation of the node is no number above 0", "annotation", ratioAnnotation, "value", text)
			return 0, nil
		}
		return ratio, nil
	}
	if n.RatioPercent == nil {
		return 0, nil
	}
	if r := *n.RatioPercent; r < 1 || r > maxRatioPercent {
		return 0, errors.New("ratioPercent is " + strconv.FormatInt(r, 10) + ", want 1 to " + strconv.Itoa(maxRatioPercent))
	}
	return float64(*n.RatioPercent) / 100, nil
}

// shares reports whether a pod shares CPUs with others.
func shares(req *hooks.Request) bool {
	switch req.PodLabels().Get(qosLabel) {
	case "LS":
		return true
	case "LSE", "LSR", "BE", "SYSTEM":
		return false
	}
	var status struct {
		CPUSet string `json:"cpuset"`
	}
	if text := req.PodAnnotations().Get(statusAnnotation); text != "" {
		json.Unmarshal([]byte(text), &status) // A malformed annotation names no CPUs.
	}
	return status.CPUSet == ""
}

func init() { hooks.Register(&normalization{}) }

func main() {}
