// Package policy defines the interface between the engine and the dialects of policies: the input
// of guests, and their verdicts.
package policy

import (
	"context"

	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Verdict is the verdict of a guest on a request. It is read after the instance has moved on to
// another request, so none of its strings and bytes share memory with a guest.
type Verdict struct {
	Allowed bool
	// Code is the HTTP code of a denial, 0 for the default.
	Code uint32
	// Message is the reason of a denial.
	Message string
	// Result is nil if the guest adds nothing.
	Result *admissionmsg.Result
	// Patch is the change of the object as a JSON Patch, and Object the whole new object; at most
	// one of them is set.
	Patch, Object []byte
}

// Mutates reports whether the guest changes the object.
func (v *Verdict) Mutates() bool { return v.Patch != nil || v.Object != nil }

// Dialect is an ABI of policies other than that of package abi.
type Dialect struct {
	// Host recognizes modules of the dialect and offers their imports.
	Host host.Dialect
	// Check is called with the first instance of a plugin: it lets the guest validate its settings,
	// if it can, and returns the reason to refuse them. nil accepts all settings.
	Check func(ctx context.Context, inst host.DialectInstance, settings []byte) error
	// Ask asks a guest for its verdict, with copies of the guest's strings and bytes.
	Ask func(ctx context.Context, inst host.DialectInstance, settings []byte, req *Request) (Verdict, error)
	// Mutating reports whether guests of the dialect may change objects.
	Mutating bool
	// Raw reports whether guests of the dialect accept requests that are not an AdmissionRequest.
	Raw bool
}

// Call is the state of an instance: the current request, and copies of the guest's answers.
type Call struct {
	Request *Request
	// Mutating reports whether the object may be changed.
	Mutating bool
	// Desired is the apiVersion to which the object is to be converted, empty if the call is not a
	// conversion. The object may also be changed in a conversion.
	Desired string
	// Object and OldObject are the objects in protobuf, once Fetched.
	Object, OldObject []byte
	Fetched           bool

	Result        *admissionmsg.Result
	Patch, Mutant []byte
	// Input and Output are the buffers for reading and writing in dialects that have one of each.
	Input, Output []byte
	// Looked holds the objects that the guest has looked up in the cluster.
	Looked any
	// Asked is the number of the guest's questions that the host has passed on.
	Asked int
	// Own belongs to the dialect, and survives the call.
	Own any
}

// CallOf returns the call of an instance.
func CallOf(inst *host.Instance) *Call { return inst.State().(*Call) }

// Reset ends a call.
func (c *Call) Reset() { *c = Call{Own: c.Own} }
