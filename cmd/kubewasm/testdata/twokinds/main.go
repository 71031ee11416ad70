// This guest is a plugin of two kinds, which is one too many.
package main

import (
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/sched"
)

type both struct{}

func (both) Filter(sched.CycleState, core.Pod, sched.NodeInfo) *sched.Status { return nil }

func (both) Validate(*admission.Request) *admission.Response { return nil }

func init() {
	sched.Register(both{})
	admission.Register(both{})
}

func main() {}
