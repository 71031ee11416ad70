// Command core-scheduling is a runtime hook that lets only containers of one group run on the
// hardware threads of a core at a time, after Koordinator's hook coresched. The rule is the node's,
// in its NodeSLO:
//
//	spec:
//	  resourceQOSStrategy:
//	    policies: {cpuPolicy: coreSched}
//	    lsClass: {cpuQOS: {enable: true, coreExpeller: true}}
//	    beClass: {cpuQOS: {enable: true, schedIdle: 1}}
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
// well.
//
// With schedIdle, the pods whose label has the class are idle (cpu.idle): the kernel runs others
// first. koordlet makes the cgroup of the QoS class idle instead, in which the kernel refuses the
// kubelet's writes of cpu.shares and cpu.weight, so that a kubelet does not start any more
// (koordinator-sh/koordinator#2732). The configuration
//
//	{"idleQOSClasses": true}
//
// does as koordlet does, with the grant idleQOSClasses. The processes of an idle class also yield to
// those of other classes at once; those of idle pods in a class that is not idle yield by its shares.
//
// A pod that leaves its group, and one that is idle no more, is as others again if the plugin owns
// core_sched_group and cpu_idle.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
)

//kubewasm:reads pod node_name
//kubewasm:reads pod_labels[koordinator.sh/qosClass] pod_labels[koordinator.sh/core-sched-group-id] pod_labels[koordinator.sh/core-sched-policy]
//kubewasm:decides core_sched_group cpu_idle

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
		SchedIdle    int64 `json:"schedIdle"`
	} `json:"cpuQOS"`
}

// param is whether pods of a class are in groups, in groups of the class's own, and idle.
type param struct{ enabled, expeller, idle bool }

// rule is that of a node. set is whether its policy is core scheduling.
type rule struct {
	set         bool
	lsr, ls, be param
}

// ruleOf returns the rule of an object, with Koordinator's defaults.
func ruleOf(o *nodeSLO) rule {
	s := &o.Spec.Strategy
	param := func(c *qosClass, expeller bool) (p param) {
		p.enabled = s.Policies.CPUPolicy == "coreSched" && c.CPUQOS.Enable != nil && *c.CPUQOS.Enable
		if c.CPUQOS.CoreExpeller != nil {
			expeller = *c.CPUQOS.CoreExpeller
		}
		p.expeller = p.enabled && expeller
		p.idle = p.enabled && c.CPUQOS.SchedIdle == 1
		return p
	}
	return rule{set: s.Policies.CPUPolicy == "coreSched", lsr: param(&s.LSR, true), ls: param(&s.LS, true), be: param(&s.BE, false)}
}

// labeled returns the parameters of a label; ok is false for others.
func (r *rule) labeled(label string) (p param, ok bool) {
	switch label {
	case "LSE", "LSR":
		return r.lsr, true
	case "LS":
		return r.ls, true
	case "BE":
		return r.be, true
	}
	return param{}, false
}

// of returns the parameters of a pod, or those of a class for the label "".
func (r *rule) of(label string, class abi.QOSClass) param {
	if p, ok := r.labeled(label); ok {
		return p
	}
	switch class {
	case abi.QOSBestEffort:
		return r.be
	case abi.QOSBurstable:
		return r.ls
	case abi.QOSGuaranteed:
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

// coreScheduling is the configuration.
type coreScheduling struct {
	// IdleQOSClasses makes QoS classes idle in the place of their pods.
	IdleQOSClasses bool `json:"idleQOSClasses"`
}

func (c *coreScheduling) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == abi.LevelQOS && !c.IdleQOSClasses || req.Level() == abi.LevelPod && c.IdleQOSClasses {
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
	switch req.Level() {
	case abi.LevelContainer:
		if group := r.group(req); group != "" {
			d.SetCoreSchedGroup(group)
		}
	case abi.LevelPod:
		p, ok := r.labeled(req.PodLabels().Get(qosLabel))
		if r.set && ok {
			d.SetCPUIdle(p.idle)
		}
	case abi.LevelQOS:
		if r.set {
			d.SetCPUIdle(r.of("", req.QOSClass()).idle)
		}
	}
	return nil
}

func init() { hooks.Register(&coreScheduling{}) }

func main() {}
