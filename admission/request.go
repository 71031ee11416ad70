package admission

import (
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/internal/admissionmsg"
)

// requests are what guests are asked about, *policy.Request with the buffer of
// its envelope.
var requests = sync.Pool{New: func() any { return new(pooledRequest) }}

type pooledRequest struct {
	policy.Request
	proto protoCache
}

// protoCache makes the objects protobuf once, for all plugins.
type protoCache struct {
	once           sync.Once
	request        *admissionv1.AdmissionRequest
	object, oldObj []byte
	err            error
}

func (c *protoCache) get() (object, oldObject []byte, err error) {
	c.once.Do(func() { c.object, c.oldObj, c.err = protoObjects(c.request) })
	return c.object, c.oldObj, c.err
}

// keepEnvelope is the size of the largest buffer that is used again. Nearly all
// requests have less than 1 KiB; a user with very many groups has more.
const keepEnvelope = 64 << 10

// newRequest returns the request for guests. Its envelope lies in a buffer that
// free gives back.
func newRequest(request *admissionv1.AdmissionRequest) *pooledRequest {
	r := requests.Get().(*pooledRequest)
	r.AdmissionRequest = request
	r.Envelope = admissionmsg.AppendRequest(r.Envelope[:0], request)
	r.proto = protoCache{request: request}
	if r.Proto == nil {
		r.Proto = r.proto.get
	}
	return r
}

func (r *pooledRequest) free() {
	if cap(r.Envelope) > keepEnvelope {
		return
	}
	r.AdmissionRequest, r.Raw = nil, nil
	r.proto = protoCache{}
	r.Forget()
	requests.Put(r)
}
