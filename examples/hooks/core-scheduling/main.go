// Command core-scheduling is a runtime hook that lets only containers of one group run on the
// hardware threads of a core at a time, after Koordinator's hook coresched. The rule is the node's,
// in its NodeSLO:
//
//	spec:
//	  resourceQOSStrategy:
//	    policies: {cpuPolicy: coreSched}
//	    lsClass: {cpuQOS: {enable: true, coreExpeller: true}}
//	    beClass: {cpuQOS: {enable: true}}
//
// It needs the object, and the name of the node:
//
//	objects: [{resource: slo.koordinator.sh/v1alpha1/nodeslos}]
//
// A class is that of the label koordinator.sh/qosClass, where lsrClass is LSE's as well. A pod
// without such a label has the class of its QoS class: BestEffort is BE, Burstable LS, and
// Guaranteed LSR, or LS if LSR is not enabled. Pods with the label SYSTEM are left alone.
//
// The group of a pod is that of its label koordinator.sh/core-sched-group-id, by default one for all.
// With the label koordinator.sh/core-sched-policy none a pod is in no group, with exclusive it is in
// one by itself. Classes with coreExpeller, which LSR and LS have by default, have groups of their
// own.
//
// The names of groups begin with "koordinator/", since a group without an identifier has a name as
// well. Koordinator also makes the cgroup of a QoS class idle (schedIdle). That is not decided: in
// an idle cgroup the kubelet can no longer write cpu.weight.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
)

//kubewasm:reads pod node_name
//kubewasm:reads pod_labels[koordinator.sh/qosClass] pod_labels[koordinator.sh/core-sched-group-id] pod_labels[koordinator.sh/core-sched-policy]
//kubewasm:decides core_sched_group

const (
	qosLabel    = "koordinator.sh/qosClass"
	groupLabel  = "koordinator.sh/core-sched-group-id"
	policyLabel = "koordinator.sh/core-sched-policy"
	nodeSLOs    = "slo.koordinator.sh/v1alpha1/nodeslos"
)

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
		Enable       *bool `json:"enable"`
		CoreExpeller *bool `json:"coreExpeller"`
	} `json:"cpuQOS"`
}

// param is whether pods of a class are in groups, and in groups of the class's own.
type param struct{ enabled, expeller bool }

// rule is that of a node.
type rule struct{ lsr, ls, be param }

// ruleOf returns the rule of an object, with Koordinator's defaults.
func ruleOf(o *nodeSLO) rule {
	s := &o.Spec.Strategy
	param := func(c *qosClass, expeller bool) (p param) {
		p.enabled = s.Policies.CPUPolicy == "coreSched" && c.CPUQOS.Enable != nil && *c.CPUQOS.Enable
		if c.CPUQOS.CoreExpeller != nil {
			expeller = *c.CPUQOS.CoreExpeller
		}
		p.expeller = p.enabled && expeller
		return p
	}
	return rule{lsr: param(&s.LSR, true), ls: param(&s.LS, true), be: param(&s.BE, false)}
}

// of returns the parameters of a pod.
func (r *rule) of(label string, class hooks.QOSClass) param {
	switch label {
	case "LSE", "LSR":
		return r.lsr
	case "LS":
		return r.ls
	case "BE":
		return r.be
	}
	switch class {
	case hooks.QOSBestEffort:
		return r.be
	case hooks.QOSBurstable:
		return r.ls
	case hooks.QOSGuaranteed:
		if r.lsr.enabled {
			return r.lsr
		}
		return r.ls
	}
	return param{}
}

// group returns the group of a pod, empty for none.
func (r *rule) group(req *hooks.Request) string {
	labels := req.PodLabels()
	p := r.of(labels.Get(qosLabel), req.QOSClass())
	policy := labels.Get(policyLabel)
	if !p.enabled || policy == "none" || labels.Get(qosLabel) == "SYSTEM" {
		return ""
	}
	group := labels.Get(groupLabel)
	if policy == "exclusive" {
		group = req.Pod().UID()
	}
	if p.expeller {
		group += "-expeller"
	}
	return "koordinator/" + group
}

type coreScheduling struct{}

func (coreScheduling) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() != hooks.LevelContainer {
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
	r := ruleOf(&slo)
	if group := r.group(req); group != "" {
		d.SetCoreSchedGroup(group)
	}
	return nil
}

func init() { hooks.Register(coreScheduling{}) }

func main() {}
