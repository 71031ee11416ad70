// Unique-hosts is an admission plugin that looks objects up: no two Ingresses have the same
// host. It needs the Ingresses in its configuration:
//
//	objects: [{resource: networking.k8s.io/v1/ingresses}]
//
// The host's copy of the Ingresses may be some moments old: two that are created at the
// same time may both pass.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o unique-hosts.wasm .
package main

import (
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/networking"
)

//kubewasm:matches CREATE,UPDATE ingresses.networking.k8s.io

type policy struct{}

func (policy) Validate(req *admission.Request) *admission.Response {
	rules := networking.IngressFromJSON(req.Object()).Spec().Rules()
	wanted := make(map[string]*field.Path, len(rules))
	for i, rule := range rules {
		if host := rule.Host(); host != "" {
			wanted[host] = field.NewPath("spec", "rules").Index(i).Child("host")
		}
	}
	response := admission.Allow()
	for other := range admission.List(networking.IngressFromJSON, "networking.k8s.io/v1/ingresses", "", "") {
		if len(wanted) == 0 {
			break
		}
		metadata := other.Metadata()
		if metadata.Namespace() == req.Namespace() && metadata.Name() == req.Name() {
			continue // The Ingress that is being updated.
		}
		for _, rule := range other.Spec().Rules() {
			host := rule.Host()
			if path, ok := wanted[host]; ok {
				delete(wanted, host) // One message for each.
				err := field.Invalid(path, host, "the Ingress "+metadata.Namespace()+"/"+metadata.Name()+" has it")
				response = response.WithFieldErrors(err)
			}
		}
	}
	return response
}

func init() { admission.Register(policy{}) }

func main() {}
