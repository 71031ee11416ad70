// Command slo is a guest for tests: it decides the group identity of the object that the pod's
// annotation "get" names by its resource and its name.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/hooks"
	"github.com/kubewasm/kubewasm/guest/json"
)

//kubewasm:reads pod_annotations[get]

type slo struct{}

type nodeSLO struct {
	Spec struct {
		GroupIdentity int64 `json:"groupIdentity"`
	} `json:"spec"`
}

func (slo) Decide(req *hooks.Request, d *hooks.Decision) error {
	resource, name, _ := strings.Cut(req.PodAnnotations().Get("get"), " ")
	object, ok := hooks.Get(func(b []byte) []byte { return b }, resource, name)
	if !ok {
		return nil
	}
	var of nodeSLO
	if err := json.Unmarshal(object, &of); err != nil {
		return err
	}
	d.SetCPUBvt(of.Spec.GroupIdentity)
	return nil
}

func init() { hooks.Register(slo{}) }

func main() {}
