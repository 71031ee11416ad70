// The policy guest is run by the tests of the harness, natively and as wasm.
package main

import (
	"errors"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

type policy struct {
	Label string `json:"label"`
}

func (p *policy) Validate(req *admission.Request) *admission.Response {
	labels := field.NewPath("metadata", "labels")
	switch object := core.PodFromJSON(req.Object()).Metadata(); object.Labels().Get("case") {
	case "deny":
		return admission.Deny("not on ", object.Name())
	case "conflict":
		return admission.Deny("busy").WithCode(409)
	case "reason":
		return admission.Deny("busy").WithCode(429).WithReason("Slow")
	case "nothing":
		return admission.Deny()
	case "field":
		return admission.Invalid(field.Required(labels.Key(p.Label), "every Pod has one"))
	case "fields":
		return admission.Deny("wrong").WithFieldErrors(field.Required(labels.Key(p.Label), ""), field.Invalid(labels.Key("case"), "fields", "is odd"))
	case "warn":
		return admission.Allow().WithWarning("old").WithAuditAnnotation("who", req.UserInfo().Username())
	case "fail":
		return admission.Errored(errors.New("no data"))
	}
	return nil
}

// Mutate gives every object the label, with the value of the annotation.
func (p *policy) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
	label := field.NewPath("metadata", "labels").Key(p.Label)
	object := core.PodFromJSON(req.Object()).Metadata()
	switch object.Labels().Get("case") {
	case "deny":
		patch.Set(label, "x")
		return admission.Deny("not on ", object.Name())
	case "wrong":
		patch.Set(field.NewPath("kind", "of"), "x")
		return nil
	}
	patch.Default(label, "none")
	return nil
}

func init() { admission.Register(&policy{}) }

func main() {}
