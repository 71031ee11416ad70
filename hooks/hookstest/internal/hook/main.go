// The hook guest is run by the tests of the harness, natively and as wasm.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

type share struct{}

func (share) Decide(req *hooks.Request, d *hooks.Decision) error {
	switch req.PodLabels().Get("tier") {
	case "wrong":
		return errors.New("tier is wrong")
	case "batch":
		if req.Level() == abi.LevelContainer {
			if quota, ok := req.Resources().CFSQuota(); ok && quota > 0 {
				d.SetCFSQuota(quota / 2)
			}
			d.SetContainerEnv("TIER", "batch")
		}
		d.SetCPUShares(128)
	}
	return nil
}

func init() { hooks.Register(share{}) }

func main() {}
