// Package policy is what the engine and the languages of policies know of each
// other: what a guest is asked, and what it says.
package policy

import (
	"context"

	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Verdict is what a guest says about a request. It is read after the instance has gone to
// another request, so none of its strings and bytes lie in the memory of a guest.
type Verdict struct {
	Allowed bool
	// Code is the HTTP code of a denial, 0 for the default.
	Code uint32
	// Message is why the request is denied.
	Message string
	// Result is nil if the guest has nothing more to say.
	Result *admissionmsg.Result
	// Patch is what to change about the object as a JSON Patch, Object the object
	// as it should be; at most one of them is there.
	Patch, Object []byte
}

// Mutates reports whether the guest changes the object.
func (v *Verdict) Mutates() bool { return v.Patch != nil || v.Object != nil }

// Dialect is a language of policies other than that of package abi.
type Dialect struct {
	// Host tells modules of the dialect apart and what to offer them.
	Host host.Dialect
	// Check is called with the first instance of a plugin: it asks the guest
	// about its settings, if it can be asked, and returns why they will not do.
	// nil takes all settings.
	Check func(ctx context.Context, inst host.DialectInstance, settings []byte) error
	// Ask asks a guest for its verdict, whose strings and bytes are copies of those of the guest.
	Ask func(ctx context.Context, inst host.DialectInstance, settings []byte, req *Request) (Verdict, error)
	// Mutating reports whether guests of the dialect may change objects.
	Mutating bool
	// Raw reports whether guests of the dialect take requests that are no AdmissionRequest.
	Raw bool
}

// Call is the state of an instance: the request that it is asked about, and copies of what
// it answered.
type Call struct {
	Request *Request
	// Mutating reports whether the object may be changed.
	Mutating bool
	// Desired is the apiVersion to which the object is to be converted, empty if the call
	// is no conversion. The object may be changed then, too.
	Desired string
	// Object and OldObject are the protobuf of the objects, once Fetched.
	Object, OldObject []byte
	Fetched           bool

	Result        *admissionmsg.Result
	Patch, Mutant []byte
	// Input and Output are what guests read and write in dialects that have one
	// buffer for each.
	Input, Output []byte
	// Looked is what the guest has looked up of the cluster.
	Looked any
	// Asked is how many questions the guest has asked that the host asks of others.
	Asked int
	// Own belongs to the dialect, and outlives the call.
	Own any
}

// CallOf returns the call of an instance.
func CallOf(inst *host.Instance) *Call { return inst.State().(*Call) }

// Reset ends a call.
func (c *Call) Reset() { *c = Call{Own: c.Own} }
