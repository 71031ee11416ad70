// The admission guest of the conformance suite, by the SDK.
package main

import (
	"bytes"
	"errors"
	"strconv"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

//kubewasm:name conformance-admission

type guest struct{}

func (guest) Validate(req *admission.Request) *admission.Response {
	switch req.Name() {
	case "trap":
		panic("trap")
	case "fail":
		return admission.Errored(errors.New("no data"))
	case "bad":
		return admission.Deny("bad name")
	case "busy":
		return admission.Deny().WithCode(409)
	case "field":
		return admission.Invalid(field.Invalid(field.NewPath("metadata", "name"), "field", "is odd"))
	case "warn":
		return admission.Allow().WithWarning("careful").WithAuditAnnotation("k", "v")
	case "empty":
		if len(req.Object()) == 0 {
			return admission.Deny("no object")
		}
	case "same":
		if bytes.Equal(req.OldObject(), req.Object()) {
			return admission.Deny("unchanged")
		}
		return nil
	case "relabelled":
		app := func(b []byte) string { return core.PodFromProto(b).Metadata().Labels().Get("app") }
		return admission.Deny("was ", app(req.OldObjectProto()), ", is ", app(req.ObjectProto()))
	case "options":
		return admission.Deny(string(req.Options()))
	case "found":
		name := core.PodFromProto(req.ObjectProto()).Metadata().Labels().Get("app")
		object, ok := admission.Get(func(b []byte) string { return string(b) }, "v1/configmaps", "shop", name)
		if !ok {
			return admission.Deny("none")
		}
		return admission.Deny(object)
	case "listed":
		return admission.Deny(listed("", ""), ", ", listed("shop", ""), ", ", listed("shop", "tier=a"))
	case "secret":
		admission.Get(core.SecretFromJSON, "v1/secrets", "shop", "a")
		return nil
	}
	if len(req.Object()) > 100_000 {
		return admission.Deny().WithCode(413)
	}
	return nil
}

// listed counts ConfigMaps.
func listed(namespace, selector string) string {
	n := 0
	for range admission.List(core.ConfigMapFromJSON, "v1/configmaps", namespace, selector) {
		n++
	}
	return strconv.Itoa(n)
}

func (guest) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
	switch req.Name() {
	case "bad":
		return admission.Deny("bad name")
	case "patch":
		patch.Set(field.NewPath("metadata", "annotations"), map[string]string{"k": "v"})
	case "whole":
		patch.SetObject([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"whole","labels":{"k":"v"}}}`))
	}
	return nil
}

func (guest) Convert(c *admission.Conversion, patch *admission.Patch) error {
	switch c.To() {
	case "v1": // The SDK sets the version.
	case "v2":
		patch.SetObject([]byte(`{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"},"spec":{"size":2}}`))
	case "trap":
		panic("trap")
	default:
		return errors.New("bad version")
	}
	return nil
}

func init() { admission.Register(guest{}) }

func main() {}
