// Command cpu-normalization is a runtime hook for a node whose CPUs are faster
// than those that requests assume: it divides the quotas of pods and containers by
// the ratio of the configuration, in hundredths, after Koordinator's hook of the
// same name:
//
//	{"ratioPercent": 125}
//
// A ratio of 100 or less restores the quotas that were requested, which undoes
// an earlier, larger ratio. Without a ratio it decides nothing.
//
// It changes pods that share CPUs: those with the label koordinator.sh/qosClass LS,
// and those without the label that have no CPUs of their own. The shares stay, since
// they are relative.
package main

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/json"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

const (
	qosLabel         = "koordinator.sh/qosClass"
	statusAnnotation = "scheduling.koordinator.sh/resource-status"
	maxRatioPercent  = 10_000
	minQuota         = 1000 // Microseconds: the kernel's minimum.
)

// normalization has the ratio, nil for none.
type normalization struct {
	RatioPercent *int64 `json:"ratioPercent"`
}

func (n *normalization) Decide(req *hooks.Request, d *hooks.Decision) error {
	if n.RatioPercent == nil || req.Level() == hooks.LevelQOS || !shares(req) {
		return nil
	}
	ratio := *n.RatioPercent
	if ratio < 0 || ratio > maxRatioPercent {
		return errors.New("ratioPercent is " + strconv.FormatInt(ratio, 10) + ", want 0 to " + strconv.Itoa(maxRatioPercent))
	}
	quota, ok := req.Resources().CFSQuota()
	if !ok || quota <= 0 {
		return nil
	}
	if ratio > 100 {
		// Rounded up, without a product that may be too large.
		quota = quota/ratio*100 + (quota%ratio*100+ratio-1)/ratio
	}
	d.SetCFSQuota(max(quota, minQuota))
	return nil
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
