// Member is a member of the groups of the tests: it allows objects that have the
// label of its name.
package main

import (
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

type member struct {
	Name string `json:"name"`
}

func (m *member) Validate(req *admission.Request) *admission.Response {
	labels := core.PodFromJSON(req.Object()).Metadata().Labels()
	if labels.Get("panic") == m.Name {
		panic("asked to")
	}
	if labels.Get(m.Name) != "yes" {
		return admission.Deny(m.Name, " says no")
	}
	return admission.Allow()
}

func init() { admission.Register(&member{}) }

func main() {}
