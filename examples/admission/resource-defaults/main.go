// Resource-defaults is an admission plugin that mutates Pods. Containers and init
// containers without requests for CPU or memory get those of the configuration, and a
// label marks the Pod. A second call changes nothing.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o resource-defaults.wasm .
package main

import (
	"github.com/kubewasm/kubewasm/guest/admission"
)

//kubewasm:matches CREATE pods

type defaults struct {
	CPU    string `json:"cpu"`    // The request of a container that has none: "100m".
	Memory string `json:"memory"` // Likewise: "128Mi".
	Label  string `json:"label"`  // The label that marks a changed Pod; none if empty.
}

func (d *defaults) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
	pod, ok := admission.PodOf(req)
	if !ok || req.Operation() != admission.Create {
		return admission.Allow()
	}
	changed := false
	for container := range pod.AllContainers() {
		if container.List() == admission.EphemeralContainers {
			continue // They cannot ask for anything.
		}
		resources := container.Path().Child("resources")
		for _, r := range []struct{ name, value string }{{"cpu", d.CPU}, {"memory", d.Memory}} {
			if r.value == "" || patch.Has(resources.Child("limits").Key(r.name)) {
				continue // A missing request defaults to the limit.
			}
			changed = patch.Default(resources.Child("requests").Key(r.name), r.value) || changed
		}
	}
	if changed && d.Label != "" {
		patch.Set(pod.Path().Child("metadata", "labels").Key(d.Label), "true")
	}
	return admission.Allow()
}

func init() { admission.Register(&defaults{}) }

func main() {}
