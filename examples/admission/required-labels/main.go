// Required-labels is an admission plugin: Pods must carry certain labels and run
// images of certain registries. An image with the tag "latest" is warned about.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o required-labels.wasm .
package main

import (
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

//kubewasm:matches CREATE,UPDATE pods

type policy struct {
	Labels     []string `json:"labels"`     // Keys that every Pod must have.
	Registries []string `json:"registries"` // Where images may come from: "registry.example.com/".
}

func (p *policy) Validate(req *admission.Request) *admission.Response {
	pod := core.PodFromJSON(req.Object())
	response := admission.Allow()
	for _, key := range p.Labels {
		if _, ok := pod.Metadata().Labels().Lookup(key); !ok {
			path := field.NewPath("metadata", "labels").Key(key)
			response = response.WithFieldErrors(field.Required(path, "every Pod must have it"))
		}
	}
	for i, container := range pod.Spec().Containers() {
		image := container.Image()
		if !hasPrefix(image, p.Registries) {
			path := field.NewPath("spec", "containers").Index(i).Child("image")
			response = response.WithFieldErrors(field.Invalid(path, image, "must come from "+strings.Join(p.Registries, " or ")))
		}
		if strings.HasSuffix(image, ":latest") {
			response = response.WithWarning("container ", container.Name(), ": the tag latest may be another image tomorrow")
		}
	}
	return response
}

func hasPrefix(image string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(image, prefix) {
			return true
		}
	}
	return len(prefixes) == 0
}

func init() { admission.Register(&policy{}) }

func main() {}
