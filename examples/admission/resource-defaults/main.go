// Resource-defaults is an admission plugin that mutates: containers of a Pod that
// ask for no CPU or memory get what the configuration says, and the Pod is marked
// with a label. Called again, it has nothing left to do.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o resource-defaults.wasm .
package main

import (
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

//kubewasm:matches CREATE,UPDATE pods

type defaults struct {
	CPU    string `json:"cpu"`    // What a container requests that says nothing: "100m".
	Memory string `json:"memory"` // Likewise: "128Mi".
	Label  string `json:"label"`  // The label that marks a Pod which was changed; none if empty.
}

func (d *defaults) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
	if req.Operation() != admission.Create {
		return admission.Allow()
	}
	changed := false
	pod := core.PodFromJSON(req.Object())
	for _, list := range []struct {
		name  string
		count int
	}{{"initContainers", len(pod.Spec().InitContainers())}, {"containers", len(pod.Spec().Containers())}} {
		for i := range list.count {
			resources := field.NewPath("spec", list.name).Index(i).Child("resources")
			for _, r := range []struct{ name, value string }{{"cpu", d.CPU}, {"memory", d.Memory}} {
				if r.value == "" || patch.Has(resources.Child("limits").Key(r.name)) {
					continue // A request that is missing is what the limit is.
				}
				changed = patch.Default(resources.Child("requests").Key(r.name), r.value) || changed
			}
		}
	}
	if changed && d.Label != "" {
		patch.Set(field.NewPath("metadata", "labels").Key(d.Label), "true")
	}
	return admission.Allow()
}

func init() { admission.Register(&defaults{}) }

func main() {}
