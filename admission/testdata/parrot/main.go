// The parrot does what the extra field "script" of the user says, and repeats what it has seen.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/log"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

type policy struct{}

func (policy) Validate(req *admission.Request) *admission.Response { return answer(req, nil) }

func (policy) Mutate(req *admission.Request, patch *admission.Patch) *admission.Response {
	return answer(req, patch)
}

func raw(b []byte) []byte { return b }

func answer(req *admission.Request, patch *admission.Patch) *admission.Response {
	s := parrot.Parse(req.UserInfo().Extra("script")[0])
	change := parrot.Change(s.ID, parrot.OfPolicy(s, patch != nil))
	var values []string
	for _, object := range [][]byte{req.Object(), req.OldObject()} {
		values = parrot.Strings(values, json.Value(object))
	}
	var deny, failed string
	var denied bool
	var warnings, notes []string
	var fields []*field.Error
	for _, op := range s.Ops {
		text := op.Text(values)
		switch op.Do {
		case "get":
			if b, ok := admission.Get(raw, "v1/secrets", "shop", fmt.Sprint("s", op.Value%5)); ok {
				values = parrot.Strings(values, json.Value(b))
			}
		case "list":
			for b := range admission.List(raw, "v1/secrets", "shop", "") {
				values = parrot.Strings(values, json.Value(b))
			}
		case "log":
			log.Info("seen", "value", text)
		case "print":
			fmt.Println("seen", text)
		case "warn":
			warnings = append(warnings, "seen "+text)
		case "audit":
			notes = append(notes, text)
		case "patch":
			if patch == nil {
				continue
			}
			if change == "patch" {
				text = "other " + text
			}
			patch.Set(field.NewPath("metadata", "annotations").Key("seen"), text)
		case "field":
			name := "password"
			if change == "field" {
				name = "secret"
			}
			fields, denied = append(fields, field.Invalid(field.NewPath("spec", name), text, "is no password")), true
		case "deny":
			deny, denied = "no: "+text, true
		case "error":
			failed = "failed: " + text
		case "exit":
			fmt.Println("seen", text)
			os.Exit(1)
		case "trap":
			panic(text)
		}
	}
	switch change {
	case "reason":
		deny = "another reason, " + deny
	case "warn":
		warnings = append(warnings, "another one")
	case "log":
		log.Info("another line")
	case "verdict":
		failed, denied, fields = "", !denied && failed == "", nil
	}
	if failed != "" {
		return admission.Errored(errors.New(failed))
	}
	response := admission.Allow()
	if denied {
		if response = admission.Deny(deny).WithFieldErrors(fields...); change == "code" {
			response = response.WithCode(451)
		}
	}
	for _, text := range warnings {
		response = response.WithWarning(text)
	}
	for _, text := range notes {
		response = response.WithAuditAnnotation("seen", text)
	}
	return response
}

func init() { admission.Register(policy{}) }

func main() {}
