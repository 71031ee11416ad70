package policy

import (
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
)

// Call is the state of an instance: the current request, and copies of the guest's answers.
type Call struct {
	// Call is the part for a dialect. Its request is that of Request.
	dialect.Call
	// Request is the current request, nil between calls.
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
	// Looked holds the objects that the guest has looked up in the cluster.
	Looked any
}

// CallOf returns the call of an instance.
func CallOf(inst *host.Instance) *Call { return inst.State().(*Call) }

// Begin begins a call about a request.
func (c *Call) Begin(req *Request) {
	c.Request, c.Call.Request = req, &req.Request
}

// Reset ends a call.
func (c *Call) Reset() { *c = Call{Call: dialect.Call{Own: c.Own}} }
