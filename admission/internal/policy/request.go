// Package policy holds the requests and the calls of an engine.
package policy

import (
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// Request is the input of a guest. The engine owns it with all its bytes. It is valid until the
// verdicts of all policies are there, and must not be kept longer.
type Request struct {
	// Request is the part for dialects.
	dialect.Request
	// Envelope is the message kubewasm.admission.v1.Request.
	Envelope []byte
	// Index is that of the review, nil if it is not known.
	Index *Index

	// users is the number of holders of the request.
	users atomic.Int32
	proto protobuf
	stain stain
}

// stain holds the confidential values of the objects, once they were searched.
type stain struct {
	once  sync.Once
	found confidential.Stain
}

// protobuf holds the objects as protobuf, once they are encoded.
type protobuf struct {
	once           sync.Once
	object, oldObj []byte
	err            error
}

// requests holds freed requests with their buffers.
var requests = sync.Pool{New: func() any { return new(Request) }}

// keepEnvelope is the size of the largest buffer that is reused. Nearly all requests have less than
// 1 KiB; a user with very many groups has more.
const keepEnvelope = 64 << 10

// NewRequest returns the request for guests, with an index or nil. The caller must free it.
func NewRequest(request *admissionv1.AdmissionRequest, index *Index) *Request {
	r := requests.Get().(*Request)
	r.AdmissionRequest, r.Index = request, index
	r.users.Store(1)
	r.Envelope = index.appendTo(admissionmsg.AppendRequest(r.Envelope[:0], request), request)
	return r
}

// About returns a request that is not freed and has no Envelope.
func About(request *admissionv1.AdmissionRequest) *Request {
	return &Request{Request: dialect.Request{AdmissionRequest: request}}
}

// Hold keeps the request for another user, who must also free it.
func (r *Request) Hold() { r.users.Add(1) }

// Free ends the use of the request. The last user returns the buffers.
func (r *Request) Free() {
	if r.users.Add(-1) != 0 {
		return
	}
	if cap(r.Envelope) > keepEnvelope {
		return
	}
	*r = Request{Envelope: r.Envelope}
	requests.Put(r)
}

// Confidential returns the confidential values of the objects. find finds them, once for all policies.
func (r *Request) Confidential(find func(*confidential.Stain)) *confidential.Stain {
	r.stain.once.Do(func() { find(&r.stain.found) })
	return &r.stain.found
}

// Proto returns the object and the old object as protobuf, nil if they have none, or the reason
// that they are not encoded. They are encoded once for all plugins.
func (r *Request) Proto() (object, oldObject []byte, err error) {
	r.proto.once.Do(func() { r.proto.object, r.proto.oldObj, r.proto.err = protoObjects(r.AdmissionRequest) })
	return r.proto.object, r.proto.oldObj, r.proto.err
}
