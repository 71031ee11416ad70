package policy

import (
	"sync"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/codec/admissionmsg"
)

// Request is the input of a guest. The engine owns it with all its bytes. It is valid until the
// verdicts of all policies are there, and must not be kept longer.
type Request struct {
	*admissionv1.AdmissionRequest
	// Envelope is the message kubewasm.admission.v1.Request.
	Envelope []byte
	// Raw is the request of a raw review, in JSON of the client's choice. It is nil for a request
	// of an API server. If it is set, AdmissionRequest has its uid, and Raw as its object.
	Raw []byte

	// users is the number of holders of the request.
	users  atomic.Int32
	mu     sync.Mutex
	bodies []body
	proto  protobuf
}

// body is the request in the form of a dialect.
type body struct {
	dialect string
	bytes   []byte
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

// NewRequest returns the request for guests. The caller must free it.
func NewRequest(request *admissionv1.AdmissionRequest) *Request {
	r := requests.Get().(*Request)
	r.AdmissionRequest = request
	r.users.Store(1)
	r.Envelope = admissionmsg.AppendRequest(r.Envelope[:0], request)
	return r
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
	clear(r.bodies)
	*r = Request{Envelope: r.Envelope, bodies: r.bodies[:0]}
	requests.Put(r)
}

// Proto returns the object and the old object as protobuf, nil if they have none, or the reason
// that they are not encoded. They are encoded once for all plugins.
func (r *Request) Proto() (object, oldObject []byte, err error) {
	r.proto.once.Do(func() { r.proto.object, r.proto.oldObj, r.proto.err = protoObjects(r.AdmissionRequest) })
	return r.proto.object, r.proto.oldObj, r.proto.err
}

// Body returns the request in the form of a dialect, encoded by encode once for all plugins of the
// dialect. It must not be changed.
func (r *Request) Body(dialect string, encode func() []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bodies {
		if b.dialect == dialect {
			return b.bytes
		}
	}
	r.bodies = append(r.bodies, body{dialect, encode()})
	return r.bodies[len(r.bodies)-1].bytes
}

// JSON returns the request in the form of Kubewarden's dialects: the AdmissionRequest, or Raw. It
// must not be changed.
func (r *Request) JSON() []byte {
	if r.Raw != nil {
		return r.Raw
	}
	return r.Body("admission request", func() []byte { return AppendRequest(nil, r.AdmissionRequest) })
}
