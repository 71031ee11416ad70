// The hook guest of the conformance suite, by the SDK.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

//kubewasm:name conformance-hook

type guest struct{}

func (guest) Decide(req *hooks.Request, d *hooks.Decision) error {
	tier := req.PodLabels().Get("tier")
	if tier == "node" {
		tier = req.Node().Annotations().Get("tier")
	}
	switch tier {
	case "batch":
		d.SetCPUShares(128)
	case "idle":
		d.SetCPUShares(2)
		d.SetCFSQuota(-1)
	case "wrong":
		return errors.New("tier is wrong")
	}
	return nil
}

func init() { hooks.Register(guest{}) }

func main() {}
