package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/guest/admission/field"
)

// TestResponseOnTheWire holds that the host reads what a response says.
func TestResponseOnTheWire(t *testing.T) {
	value := func(s string) *string { return &s }
	tests := map[string]struct {
		response *Response
		packed   uint64
		result   admissionmsg.Result
	}{
		"allow":          {Allow(), abi.Pack(0, abi.VerdictAllow), admissionmsg.Result{}},
		"deny":           {Deny("no"), abi.Pack(0, abi.VerdictDeny), admissionmsg.Result{}},
		"deny with code": {Deny("no").WithCode(409).WithReason("Conflict"), abi.Pack(409, abi.VerdictDeny), admissionmsg.Result{Reason: "Conflict"}},
		"allow with all that it may carry": {
			Allow().WithWarning("old").WithWarning("odd").WithAuditAnnotation("k", "v"),
			abi.Pack(0, abi.VerdictAllow),
			admissionmsg.Result{Warnings: []string{"old", "odd"}, AuditAnnotations: map[string]string{"k": "v"}},
		},
		"field errors": {
			Invalid(field.Invalid(field.NewPath("spec"), "x", "is wrong"), field.Required(field.NewPath("kind"), "")),
			abi.Pack(0, abi.VerdictDeny),
			admissionmsg.Result{FieldErrors: []admissionmsg.FieldError{
				{Field: "spec", Type: "FieldValueInvalid", Message: "is wrong", BadValue: value(`"x"`)},
				{Field: "kind", Type: "FieldValueRequired"},
			}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.response.packed(); got != test.packed {
				t.Errorf("packed result is %#x, want %#x", got, test.packed)
			}
			got, err := admissionmsg.ParseResult(test.response.appendResult(nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.result, got); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRegister(t *testing.T) {
	panics := func(f func()) (value any) {
		defer func() { value = recover() }()
		f()
		return nil
	}
	if got := panics(func() { Register[any](nil) }); got != "kubewasm: admission.Register: the plugin is no Validator, no Mutator and no Converter; are its methods on the pointer, and with the right signatures?" {
		t.Errorf("no plugin: panic %v", got)
	}
	Register(validatorFunc(func(*Request) *Response { return Deny("no") }))
	if validator.Validate(nil).Allowed() || mutator != nil || converter != nil {
		t.Error("another plugin is registered")
	}
	if got := panics(func() { Register(validator) }); got != "kubewasm: two plugins implement validate" {
		t.Errorf("two validators: panic %v", got)
	}
}

// validatorFunc is a function as a Validator.
type validatorFunc func(req *Request) *Response

func (f validatorFunc) Validate(req *Request) *Response { return f(req) }
