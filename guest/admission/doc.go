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
//	//kubewasm:matches CREATE,UPDATE pods
//
//	type owner struct {
//		Label string `json:"label"` // Filled from the plugin's configuration.
//	}
//
//	func (o *owner) Validate(req *admission.Request) *admission.Response {
//		if req.Operation() == admission.Delete {
//			return admission.Allow() // Only OldObject is set.
//		}
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
// The directive matches names the operations and resources that the plugin is for. A
// server whose configuration sends it others warns.
//
// It is built with the Go toolchain alone, by the command
// [github.com/kubewasm/kubewasm/cmd/kubewasm]:
//
//	kubewasm build
//
// and tested with it: under go test a request is made by [RequestFromReview],
// the method is called, and the response is read; or, natively and as WebAssembly
// in one test, by [github.com/kubewasm/kubewasm/admission/admissiontest].
//
// A plugin with the method Mutate changes objects, by a [Patch]:
//
//	func (d *defaults) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
//		patch.Default(field.NewPath("spec", "priorityClassName"), d.Class)
//		return admission.Allow()
//	}
//
// A plugin with the method Convert, a [Converter], converts custom resources from one
// version to another, for the conversion webhook of their CustomResourceDefinition.
//
// A policy about containers checks all of them, including init containers and those that kubectl
// debug adds, and also the Pod template of a workload:
//
//	pod, ok := admission.PodOf(req)
//	for container := range pod.AllContainers() {
//		if !strings.HasPrefix(container.Image(), registry) {
//			response = response.WithFieldErrors(field.Invalid(container.Path().Child("image"), container.Image(), "…"))
//		}
//	}
//
// The webhook configuration and the rules of the policy select the requests that the
// plugin gets. [github.com/kubewasm/kubewasm/cmd/kubewasm-webhook] has both, for
// pods/ephemeralcontainers as well.
//
// [Get] and [List] look other objects of the cluster up, if the configuration names them.
//
// Mistakes in single fields are best reported with package
// [github.com/kubewasm/kubewasm/guest/admission/field], whose names are those of
// Kubernetes' own validation:
//
//	return admission.Invalid(field.Invalid(path, image, "must come from registry.example.com"))
//
// docs/guests.md describes the time, files and network that a guest can use, and the errors and
// warnings of build.
package admission
