// Command group-identity is a runtime hook that sets the group identity of
// kernels that have it (cpu.bvt_warp_ns), after Koordinator's hook of the same
// name: pods that serve users preempt those that run in the background. It
// decides on QoS classes and pods. The configuration has the identity of each
// value of the label koordinator.sh/qosClass; these are the defaults:
//
//	{"lsr": 2, "ls": 2, "be": -1}
//
// lsr is LSE's as well, and null switches one off, which makes it 0. A pod without
// one of these labels has the identity of its QoS class: BestEffort is be, Burstable
// ls, and Guaranteed lsr, or ls if that is off. The class Guaranteed itself, above
// the others, stays 0. A pod that is LS may set another identity in an annotation;
// it gets 0 if the annotation does not enable it:
//
//	koordinator.sh/cpuQOS: '{"enable": true, "groupIdentity": -1}'
//
// With all of them off it decides nothing.
package main

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/json"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

const (
	qosLabel      = "koordinator.sh/qosClass"
	cpuAnnotation = "koordinator.sh/cpuQOS"
)

// groupIdentity has the identities, nil for none.
type groupIdentity struct {
	LSR *int64 `json:"lsr"`
	LS  *int64 `json:"ls"`
	BE  *int64 `json:"be"`
}

func (g *groupIdentity) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == hooks.LevelContainer || g.LSR == nil && g.LS == nil && g.BE == nil {
		return nil
	}
	var identity *int64
	switch label := req.PodLabels().Get(qosLabel); {
	case label == "LSE", label == "LSR":
		identity = g.LSR
	case label == "LS":
		own, err := annotated(req)
		if err != nil {
			return err
		}
		if identity = own; own == nil {
			identity = g.LS
		}
	case label == "BE", req.QOSClass() == hooks.QOSBestEffort:
		identity = g.BE
	case req.QOSClass() == hooks.QOSBurstable:
		identity = g.LS
	case req.QOSClass() != hooks.QOSGuaranteed:
		return nil
	case req.Level() == hooks.LevelPod:
		if identity = g.LSR; identity == nil {
			identity = g.LS
		}
	}
	if identity == nil {
		identity = new(int64)
	}
	d.SetCPUBvt(*identity)
	return nil
}

// annotated returns the identity of a pod's own annotation, nil if there is
// none.
func annotated(req *hooks.Request) (*int64, error) {
	text, ok := req.PodAnnotations().Lookup(cpuAnnotation)
	if !ok {
		return nil, nil
	}
	var own struct {
		Enable        bool   `json:"enable"`
		GroupIdentity *int64 `json:"groupIdentity"`
	}
	if err := json.Unmarshal([]byte(text), &own); err != nil {
		return nil, errors.New("annotation " + cpuAnnotation + ": " + err.Error())
	}
	switch v := own.GroupIdentity; {
	case v != nil && (*v < -1 || *v > 2):
		return nil, errors.New("annotation " + cpuAnnotation + ": groupIdentity is " + strconv.FormatInt(*v, 10) + ", want -1 to 2")
	case !own.Enable:
		return new(int64), nil
	default:
		return v, nil
	}
}

func init() {
	hooks.Register(&groupIdentity{LSR: new(int64(2)), LS: new(int64(2)), BE: new(int64(-1))})
}

func main() {}
