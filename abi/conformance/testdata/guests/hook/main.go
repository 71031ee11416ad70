// The hook guest of the conformance suite, by the SDK.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

//kubewasm:name conformance-hook

type guest struct{}

func (guest) Decide(req *hooks.Request, d *hooks.Decision) error {
	tier := req.PodLabels().Get("tier")
	if tier == "node" {
		tier = req.Node().Annotations().Get("tier")
	}
	if tier == "object" {
		tier = ""
		if node, ok := hooks.Get(core.NodeFromJSON, "v1/nodes", req.Node().Name()); ok {
			tier = node.Metadata().Labels().Get("tier")
		}
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
