package dialect

import (
	"context"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/internal/answers"
	"github.com/kubewasm/kubewasm/internal/policyjson"
)

// Request is the input of a guest. The engine owns it with all its bytes. It is valid until Ask
// returns, and must not be changed.
type Request struct {
	*admissionv1.AdmissionRequest
	// Raw is the request of a raw review, in JSON of the client's choice. It is nil for a request
	// of an API server. If it is set, AdmissionRequest has its uid, and Raw as its object.
	Raw []byte

	mu     sync.Mutex
	bodies []body
	first  [3]body
}

// body is the request in the form of a dialect.
type body struct {
	form  string
	bytes []byte
}

// Body returns the request in a form, encoded by encode once for all plugins that want the form. It
// must not be changed.
func (r *Request) Body(form string, encode func() []byte) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bodies {
		if b.form == form {
			return b.bytes
		}
	}
	if r.bodies == nil {
		r.bodies = r.first[:0]
	}
	r.bodies = append(r.bodies, body{form, encode()})
	return r.bodies[len(r.bodies)-1].bytes
}

// JSON returns the request in JSON: the AdmissionRequest without empty fields, or Raw. It must not
// be changed.
func (r *Request) JSON() []byte {
	if r.Raw != nil {
		return r.Raw
	}
	return r.Body("admission request", func() []byte { return policyjson.AppendRequest(nil, r.AdmissionRequest) })
}

// Ask returns the answer of ask to a question of a guest: objects of the cluster, or the answer of a
// host capability. ctx is that of the call. A shadow gets the answer that the serving version got
// in the same call, and an error for other questions. The answer must not be changed.
func Ask[T any](ctx context.Context, question string, ask func() (T, error)) (T, error) {
	return answers.Ask(ctx, question, ask)
}
