// Command node is the runtime hook group-identity with the rule of the node: that of its NodeSLO, which
// Koordinator's manager writes.
//
//	spec:
//	  resourceQOSStrategy:
//	    lsClass: {cpuQOS: {enable: true, groupIdentity: 2}}
//	    beClass: {cpuQOS: {enable: true}}
//
// It needs the object, and the name of the node:
//
//	objects: [{resource: slo.koordinator.sh/v1alpha1/nodeslos}]
//
// A class is on if its cpuQOS is enabled and the cpuPolicy is groupIdentity, which it is by default.
// Without groupIdentity the identities are 2 for LSR and LS, and -1 for BE. If all are off, or the
// node has no NodeSLO, it decides nothing, and identities that it has decided are taken back.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/examples/hooks/group-identity/identity"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
)

//kubewasm:reads node_name pod_labels[koordinator.sh/qosClass] pod_annotations[koordinator.sh/cpuQOS]
//kubewasm:decides cpu_bvt

const nodeSLOs = "slo.koordinator.sh/v1alpha1/nodeslos"

// nodeSLO is the object, as far as the rule needs it.
type nodeSLO struct {
	Spec struct {
		Strategy struct {
			Policies struct {
				CPUPolicy string `json:"cpuPolicy"`
			} `json:"policies"`
			LSR qosClass `json:"lsrClass"`
			LS  qosClass `json:"lsClass"`
			BE  qosClass `json:"beClass"`
		} `json:"resourceQOSStrategy"`
	} `json:"spec"`
}

type qosClass struct {
	CPUQOS struct {
		Enable        *bool  `json:"enable"`
		GroupIdentity *int64 `json:"groupIdentity"`
	} `json:"cpuQOS"`
}

// ruleOf returns the identities of an object, with Koordinator's defaults.
func ruleOf(o *nodeSLO) *identity.Identities {
	s := &o.Spec.Strategy
	of := func(c *qosClass, otherwise int64) *int64 {
		switch policy := s.Policies.CPUPolicy; {
		case policy != "" && policy != "groupIdentity", c.CPUQOS.Enable == nil || !*c.CPUQOS.Enable:
			return nil
		case c.CPUQOS.GroupIdentity != nil:
			return c.CPUQOS.GroupIdentity
		}
		return &otherwise
	}
	return &identity.Identities{LSR: of(&s.LSR, 2), LS: of(&s.LS, 2), BE: of(&s.BE, -1)}
}

type plugin struct{}

func (plugin) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == abi.LevelContainer {
		return nil
	}
	object, ok := hooks.Get(func(b []byte) []byte { return b }, nodeSLOs, req.Node().Name())
	if !ok {
		return nil
	}
	var slo nodeSLO
	if err := json.Unmarshal(object, &slo); err != nil {
		return errors.New("NodeSLO: " + err.Error())
	}
	return ruleOf(&slo).Decide(req, d)
}

func init() { hooks.Register(plugin{}) }

func main() {}
