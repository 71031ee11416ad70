// Scripted is the guest of the tests: it does what the annotations of the Pod
// say.
package main

import (
	"errors"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

type scripted struct {
	// Warning is given on every request.
	Warning string `json:"warning"`
	// Mark is what Mutate adds to the annotation "trail".
	Mark string `json:"mark"`
}

func (s *scripted) Validate(req *admission.Request) *admission.Response {
	script := core.PodFromJSON(req.Object()).Metadata().Annotations()
	response := admission.Allow()
	if text, ok := script.Lookup("deny"); ok {
		response = admission.Deny(text)
	}
	if text, ok := script.Lookup("error"); ok {
		response = admission.Errored(errors.New(text))
	}
	if text, ok := script.Lookup("panic"); ok {
		panic(text)
	}
	if text, ok := script.Lookup("code"); ok {
		code, _ := strconv.Atoi(text)
		response = response.WithCode(code)
	}
	if text, ok := script.Lookup("reason"); ok {
		response = response.WithReason(text)
	}
	if text, ok := script.Lookup("warn"); ok {
		for _, warning := range strings.Split(text, "|") {
			response = response.WithWarning(warning)
		}
	}
	if s.Warning != "" {
		response = response.WithWarning(s.Warning)
	}
	if text, ok := script.Lookup("audit"); ok {
		key, value, _ := strings.Cut(text, "=")
		response = response.WithAuditAnnotation(key, value)
	}
	if _, ok := script.Lookup("fields"); ok {
		spec := field.NewPath("spec")
		response = response.WithFieldErrors(
			field.Invalid(spec.Child("containers").Index(1).Child("image"), `a"b`, "must be pinned"),
			field.Required(spec.Child("nodeSelector").Key("zone"), ""),
			field.NotSupported(spec.Child("dnsPolicy"), "Never", []string{"Default", "None"}),
			field.TooMany(spec.Child("containers"), 7, 5),
			field.Duplicate(spec.Child("ports"), []int{80, 80}),
		)
	}
	switch script.Get("echo") {
	case "request":
		response = admission.Deny(describe(req))
	case "object":
		response = admission.Deny(string(req.Object()))
	case "oldObject":
		response = admission.Deny(string(req.OldObject()))
	case "options":
		response = admission.Deny(string(req.Options()))
	case "sums":
		response = admission.Deny(sum(req.Object()), " ", sum(req.OldObject()))
	}
	return response
}

// Mutate does what the annotations say about mutation, and adds its mark to the
// trail.
func (s *scripted) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
	script := core.PodFromJSON(req.Object()).Metadata().Annotations()
	annotations := field.NewPath("metadata", "annotations")
	if trail, ok := script.Lookup("trail"); ok && s.Mark != "" {
		patch.Set(annotations.Key("trail"), trail+s.Mark)
	}
	if text, ok := script.Lookup("label"); ok {
		key, value, _ := strings.Cut(text, "=")
		patch.Default(field.NewPath("metadata", "labels").Key(key), value)
	}
	if text, ok := script.Lookup("set-object"); ok {
		patch.SetObject([]byte(text))
	}
	if _, ok := script.Lookup("whole"); ok {
		object := req.Object()
		patch.SetObject(append(object[:len(object)-1:len(object)-1], `,"whole":true}`...))
	}
	if _, ok := script.Lookup("bad-patch"); ok {
		patch.Set(field.NewPath("metadata", "name", "x"), 1)
	}
	if _, ok := script.Lookup("proto"); ok {
		name := core.PodFromProto(req.ObjectProto()).Metadata().Name()
		patch.Set(annotations.Key("proto"), "name "+name+", old "+strconv.Itoa(len(req.OldObjectProto())))
	}
	return s.Validate(req)
}

func describe(req *admission.Request) string {
	kind, resource, user := req.Kind(), req.Resource(), req.UserInfo()
	requestKind, requestResource := req.RequestKind(), req.RequestResource()
	return strings.Join([]string{
		req.UID(), string(req.Operation()),
		kind.Group, kind.Version, kind.Kind,
		resource.Group, resource.Version, resource.Resource, req.SubResource(),
		requestKind.Group, requestKind.Version, requestKind.Kind,
		requestResource.Group, requestResource.Version, requestResource.Resource, req.RequestSubResource(),
		req.Name(), req.Namespace(), strconv.FormatBool(req.DryRun()),
		user.Username(), user.UID(), strings.Join(user.Groups(), "+"), strings.Join(user.Extra("scopes"), "+"),
		strconv.FormatBool(user.InGroup("staff")),
	}, ",")
}

// sum returns the length of b and its FNV-1a hash.
func sum(b []byte) string {
	hash := uint64(14695981039346656037)
	for _, c := range b {
		hash = (hash ^ uint64(c)) * 1099511628211
	}
	return strconv.Itoa(len(b)) + ":" + strconv.FormatUint(hash, 16)
}

func init() { admission.Register(&scripted{}) }

func main() {}
