// Required-labels is an admission plugin: Pods, and the Pod templates of workloads, must
// have certain labels and use images of certain registries. An image with the tag "latest"
// causes a warning. An update may leave violations that were there before: a controller
// must be able to scale an old ReplicaSet down.
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags="-s -w" -o required-labels.wasm .
package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
)

//kubewasm:matches CREATE,UPDATE pods pods/ephemeralcontainers pods/status replicationcontrollers podtemplates
//kubewasm:matches CREATE,UPDATE deployments.apps replicasets.apps statefulsets.apps daemonsets.apps jobs.batch cronjobs.batch

type policy struct {
	Labels     []string `json:"labels"`     // Keys that every Pod must have.
	Registries []string `json:"registries"` // Prefixes that images may have: "registry.example.com/".
}

func (p *policy) Validate(req *admission.Request) *admission.Response {
	if req.Operation() == admission.Delete {
		return admission.Allow() // It has no object.
	}
	pod, ok := admission.PodOf(req)
	if !ok {
		return admission.Errored(errors.New("a " + req.Kind().Kind + " is no Pod and has no template of one"))
	}
	old, updated := admission.OldPodOf(req)
	var had []string
	for container := range old.AllContainers() {
		had = append(had, container.Image())
	}
	response := admission.Allow()
	for _, key := range p.Labels {
		if !pod.Metadata().Labels().Has(key) && (!updated || old.Metadata().Labels().Has(key)) {
			path := pod.Path().Child("metadata", "labels").Key(key)
			response = response.WithFieldErrors(field.Required(path, "every Pod must have it"))
		}
	}
	for container := range pod.AllContainers() {
		image := container.Image()
		if !hasPrefix(image, p.Registries) && !slices.Contains(had, image) {
			response = response.WithFieldErrors(field.Invalid(container.Path().Child("image"), image, "must come from "+strings.Join(p.Registries, " or ")))
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
