// Command group-identity is a runtime hook that sets the group identity of
// kernels that have it (cpu.bvt_warp_ns): what serves users preempts what runs in
// the background. It decides on QoS classes and pods:
//
//	koordinator.sh/qosClass: BE           -1, the background
//	koordinator.sh/qosClass: LS, LSR, LSE  2, latency sensitive
//
// A pod without the label has the identity of its QoS class: BestEffort is
// background, Burstable is latency sensitive, Guaranteed is left at 0.
package main

import "github.com/kubewasm/kubewasm/guest/hooks"

const label = "koordinator.sh/qosClass"

// groupIdentity has the identities; the configuration may have others.
type groupIdentity struct {
	LatencySensitive int64 `json:"latencySensitive"`
	Background       int64 `json:"background"`
}

func (g *groupIdentity) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == hooks.LevelContainer {
		return nil
	}
	switch req.PodLabels().Get(label) {
	case "BE":
		d.SetCPUBvt(g.Background)
		return nil
	case "LS", "LSR", "LSE":
		d.SetCPUBvt(g.LatencySensitive)
		return nil
	}
	switch req.QOSClass() {
	case hooks.QOSBestEffort:
		d.SetCPUBvt(g.Background)
	case hooks.QOSBurstable:
		d.SetCPUBvt(g.LatencySensitive)
	case hooks.QOSGuaranteed:
		d.SetCPUBvt(0)
	}
	return nil
}

func init() { hooks.Register(&groupIdentity{LatencySensitive: 2, Background: -1}) }

func main() {}
