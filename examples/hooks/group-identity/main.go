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
// With all of them off it decides nothing. The command in node takes the identities from the node.
package main

import (
	"github.com/kubewasm/kubewasm/examples/hooks/group-identity/identity"
	"github.com/kubewasm/kubewasm/guest/hooks"
)

// groupIdentity is the configuration.
type groupIdentity = identity.Identities

func init() {
	hooks.Register(&groupIdentity{LSR: new(int64(2)), LS: new(int64(2)), BE: new(int64(-1))})
}

func main() {}
