// Package admission is the SDK of admission plugins: they decide whether the API
// server admits a request.
//
// A plugin has one method, which reads a [Request] and returns a [Response]. Its
// configuration is a struct:
//
//	package main
//
//	import (
//		"github.com/kubewasm/kubewasm/guest/admission"
//		"github.com/kubewasm/kubewasm/guest/api/core"
//	)
//
//	type owner struct {
//		Label string `json:"label"` // Filled from the plugin's configuration.
//	}
//
//	func (o *owner) Validate(req *admission.Request) *admission.Response {
//		pod := core.PodFromJSON(req.Object())
//		if _, ok := pod.Metadata().Labels().Lookup(o.Label); !ok {
//			return admission.Deny("the Pod has no label ", o.Label)
//		}
//		return admission.Allow()
//	}
//
//	func init() { admission.Register(&owner{Label: "owner"}) }
//	func main() {}
//
// It is built with the Go toolchain alone, by the command kubewasm:
//
//	go run github.com/kubewasm/kubewasm/guest/kubewasm build .
//
// and tested with it: under go test a request is made by [RequestFromReview],
// the method is called, and the response is read; or, natively and as WebAssembly
// in one test, by [github.com/kubewasm/kubewasm/guest/guesttest].
//
// A plugin with the method Mutate changes objects, by a [Patch]:
//
//	func (d *defaults) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
//		patch.Default(field.NewPath("spec", "priorityClassName"), d.Class)
//		return admission.Allow()
//	}
//
// Mistakes in single fields are best said with package
// [github.com/kubewasm/kubewasm/guest/admission/field], whose names are those of
// Kubernetes' own validation:
//
//	return admission.Invalid(field.Invalid(path, image, "must come from registry.example.com"))
//
// What a guest has of the world, of time, files and the network, and what build refuses
// and warns of, is in docs/guests.md.
package admission
