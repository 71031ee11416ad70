// The policy of the soak: the name of a Pod says what becomes of the call.
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission"
)

type policy struct{}

var kept [][]byte

func (policy) Validate(req *admission.Request) *admission.Response {
	pod, _ := admission.PodOf(req)
	switch name := pod.Metadata().Name(); {
	case strings.HasPrefix(name, "trap"):
		panic("as asked")
	case strings.HasPrefix(name, "loop"):
		for n := 0; ; n++ {
			kept = kept[:0]
		}
	case strings.HasPrefix(name, "grow"):
		for {
			kept = append(kept, make([]byte, 1<<20))
		}
	case strings.HasPrefix(name, "deny"):
		return admission.Deny("the Pod ", name, " is not wanted")
	}
	return admission.Allow()
}

func init() { admission.Register(policy{}) }

func main() {}
