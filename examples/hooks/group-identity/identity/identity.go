// Package identity has the identities of QoS classes and pods, for plugins that take their rule from a
// configuration or from the node.
package identity

import (
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
)

// QOSLabel is the label of a pod with its class, CPUAnnotation the annotation with an identity of its
// own.
const (
	QOSLabel      = "koordinator.sh/qosClass"
	CPUAnnotation = "koordinator.sh/cpuQOS"
)

// Identities are those of classes, nil for none.
type Identities struct {
	LSR *int64 `json:"lsr"`
	LS  *int64 `json:"ls"`
	BE  *int64 `json:"be"`
}

// Decide decides on a QoS class or a pod.
func (g *Identities) Decide(req *hooks.Request, d *hooks.Decision) error {
	if req.Level() == abi.LevelContainer || g.LSR == nil && g.LS == nil && g.BE == nil {
		return nil
	}
	var identity *int64
	switch label := req.PodLabels().Get(QOSLabel); {
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
	case label == "BE", req.QOSClass() == abi.QOSBestEffort:
		identity = g.BE
	case req.QOSClass() == abi.QOSBurstable:
		identity = g.LS
	case req.QOSClass() != abi.QOSGuaranteed:
		return nil
	case req.Level() == abi.LevelPod:
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
	text, ok := req.PodAnnotations().Lookup(CPUAnnotation)
	if !ok {
		return nil, nil
	}
	var own struct {
		Enable        bool   `json:"enable"`
		GroupIdentity *int64 `json:"groupIdentity"`
	}
	if err := json.Unmarshal([]byte(text), &own); err != nil {
		return nil, errors.New("annotation " + CPUAnnotation + ": " + err.Error())
	}
	switch v := own.GroupIdentity; {
	case v != nil && (*v < -1 || *v > 2):
		return nil, errors.New("annotation " + CPUAnnotation + ": groupIdentity is " + strconv.FormatInt(*v, 10) + ", want -1 to 2")
	case !own.Enable:
		return new(int64), nil
	default:
		return v, nil
	}
}
