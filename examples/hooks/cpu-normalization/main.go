// Command cpu-normalization is a runtime hook for a node whose CPUs are faster
// than those that requests are reckoned in: it divides the quotas of pods and
// containers by the ratio of the configuration, in hundredths:
//
//	{"ratioPercent": 125}
//
// The shares stay: they are relative anyway.
package main

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

type normalization struct {
	RatioPercent int64 `json:"ratioPercent"`
}

func (n *normalization) Decide(req *hooks.Request, d *hooks.Decision) error {
	if n.RatioPercent < 100 || n.RatioPercent > 500 {
		return errors.New("ratioPercent is " + strconv.FormatInt(n.RatioPercent, 10) + ", want 100 to 500")
	}
	quota, ok := req.Resources().CFSQuota()
	if !ok || quota <= 0 || n.RatioPercent == 100 {
		return nil
	}
	// Rounded up, and not below what the kernel takes.
	d.SetCFSQuota(max((quota*100+n.RatioPercent-1)/n.RatioPercent, 1000))
	return nil
}

func init() { hooks.Register(&normalization{RatioPercent: 100}) }

func main() {}
