// Command cpuset-from-annotation is a runtime hook that binds the containers of a
// pod to the CPUs that a scheduler picked for it:
//
//	kubewasm.dev/cpuset: "0-3,8"
//
// Bound containers have these CPUs to themselves, so their quota, which would
// only throttle them, is lifted: the pod's as well, or the containers' would be
// beyond it.
package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/hooks"
)

// cpuset names the annotation; the configuration may have another.
type cpuset struct {
	Annotation string `json:"annotation"`
}

func (c *cpuset) Decide(req *hooks.Request, d *hooks.Decision) error {
	cpus := req.PodAnnotations().Get(c.Annotation)
	if cpus == "" || req.Level() == hooks.LevelQOS {
		return nil
	}
	if strings.ContainsFunc(cpus, func(r rune) bool { return (r < '0' || r > '9') && r != '-' && r != ',' }) {
		return errors.New("annotation " + c.Annotation + " is " + strconv.Quote(cpus) + `, want CPUs like "0-3,8"`)
	}
	d.SetCFSQuota(hooks.Unlimited)
	if req.Level() == hooks.LevelContainer {
		d.SetCPUSet(cpus)
	}
	return nil
}

func init() { hooks.Register(&cpuset{Annotation: "kubewasm.dev/cpuset"}) }

func main() {}
