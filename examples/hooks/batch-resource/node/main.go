// Command node is the runtime hook batch-resource with the rule of the node. On one whose NodeSLO
// limits the class as a whole by its quota, pods have none of their own:
//
//	spec: {resourceUsedThresholdWithBE: {enable: true, cpuSuppressPolicy: cfsQuota}}
//
// Its Node may have a ratio that divides quotas (node.koordinator.sh/cpu-normalization-ratio). It
// needs the object:
//
//	objects: [{resource: slo.koordinator.sh/v1alpha1/nodeslos}]
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/examples/hooks/batch-resource/batch"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
)

//kubewasm:reads node_name node_annotations[node.koordinator.sh/cpu-normalization-ratio] pod container
//kubewasm:reads pod_labels[koordinator.sh/qosClass] pod_annotations[node.koordinator.sh/extended-resource-spec]
//kubewasm:decides cpu_shares cfs_quota_us cfs_period_us memory_limit_bytes

const nodeSLOs = "slo.koordinator.sh/v1alpha1/nodeslos"

// nodeSLO is the object, as far as the rule needs it.
type nodeSLO struct {
	Spec struct {
		Threshold struct {
			Enable bool   `json:"enable"`
			Policy string `json:"cpuSuppressPolicy"`
		} `json:"resourceUsedThresholdWithBE"`
	} `json:"spec"`
}

type plugin struct{ batch.Config }

func (p *plugin) Decide(req *hooks.Request, d *hooks.Decision) error {
	c := p.Config
	if object, ok := hooks.Get(func(b []byte) []byte { return b }, nodeSLOs, req.Node().Name()); ok {
		var slo nodeSLO
		if err := json.Unmarshal(object, &slo); err != nil {
			return errors.New("NodeSLO: " + err.Error())
		}
		if t := slo.Spec.Threshold; t.Enable && t.Policy == "cfsQuota" {
			c.CFSQuota = new(bool)
		}
	}
	return c.Decide(req, d)
}

func init() { hooks.Register(&plugin{}) }

func main() {}
