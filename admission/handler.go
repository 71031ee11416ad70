package admission

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// Handler serves a [Validator] or a [Mutator] as an admission webhook of
// admission.k8s.io/v1: POST of an AdmissionReview in JSON, whatever the path.
//
// A review is answered with 200 and a review, whether it is admitted or not.
// Anything else gets one line of text: 405 for another method, 415 for another
// media type, 413 for a body that is too long, 408 for one that does not come in
// time, 429 or 503 with Retry-After if others have the memory for bodies, 400 for
// one that is not a review with a request and a uid.
//
// The query's timeout, which the API server sends, becomes the context's
// deadline, less a tenth of it for the way back, 50 ms at least and 500 ms at
// most. If the Validator or the Mutator panics, the request is denied with 500.
type Handler struct {
	// Validator decides, if the handler is that of a validating webhook.
	Validator Validator
	// Mutator decides, if it is that of a mutating one. Exactly one of the two is
	// required.
	Mutator Mutator
	// MaxBodyBytes is the longest body that is read. Default
	// [DefaultMaxBodyBytes].
	MaxBodyBytes int64
	// Bodies bounds the memory of bodies over all requests. nil is one that all
	// handlers without one share, with the default limits.
	Bodies *Bodies
	// Logger receives panics and answers that could not be written; nil drops
	// them.
	Logger *slog.Logger
	// Panicked is called after a panic, to count it; nil is not called.
	Panicked func()
}

const (
	// DefaultMaxBodyBytes is what a review may have unless the Handler says
	// otherwise: the API server takes objects of 3 MiB, and a review may hold
	// two of them.
	DefaultMaxBodyBytes = 7 << 20
	// DefaultTimeout is how long a request may take that says nothing of a
	// timeout: the API server's default.
	DefaultTimeout = 10 * time.Second
	// MaxTimeout is the longest timeout that a webhook may have in Kubernetes; a
	// longer one is cut.
	MaxTimeout = 30 * time.Second
)

// firstRead is how much memory a body gets that announces more, until so much of it
// has come: a length is only a claim.
const firstRead = 128 << 10

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timeout, refused := h.check(w, r)
	if refused != nil {
		DropBody(w)
		http.Error(w, refused.message, refused.code)
		return
	}
	// The time that the body takes counts too.
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	bodies := h.Bodies
	if bodies == nil {
		bodies = sharedBodies
	}
	body, unread := bodies.Read(ctx, w, r, cmp.Or(h.MaxBodyBytes, DefaultMaxBodyBytes))
	if unread != nil {
		unread.Answer(w, "text/plain; charset=utf-8", unread.Error()+"\n")
		return
	}
	// The request refers to the body.
	defer body.Release()
	request, layout, err := decodeReview(body.Bytes)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx = layoutContext{ctx, &layout}
	response := h.decide(ctx, request)
	response.UID = request.UID
	if h.Mutator == nil || len(response.Patch) == 0 || !response.Allowed {
		// The API server takes a validating webhook that patches for broken, and
		// so it does a patch without a type.
		response.Patch, response.PatchType = nil, nil
	}
	out, marshalErr := appendReview(make([]byte, 0, 256+len(response.Patch)*4/3), response)
	if marshalErr != nil {
		// Only strings and numbers are in it, so this is not for the client.
		h.log("encode admission review", "uid", request.UID, "err", marshalErr)
		http.Error(w, "encode admission review: "+marshalErr.Error(), http.StatusInternalServerError)
		return
	}
	w.Header()["Content-Type"] = jsonContent
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(out); err != nil {
		h.log("write admission review", "uid", request.UID, "err", err)
	}
}

var jsonContent = []string{"application/json"}

func (h *Handler) log(msg string, args ...any) {
	if h.Logger != nil {
		h.Logger.Error(msg, args...)
	}
}

// httpError is an answer that is not a review.
type httpError struct {
	code    int
	message string
}

func refuse(code int, format string, args ...any) *httpError {
	return &httpError{code, fmt.Sprintf(format, args...)}
}

// check returns how long r may take, if it may be a review as far as its head tells.
func (h *Handler) check(w http.ResponseWriter, r *http.Request) (time.Duration, *httpError) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return 0, refuse(http.StatusMethodNotAllowed, "method is %s, want POST", r.Method)
	}
	if contentType := r.Header.Get("Content-Type"); contentType != jsonContent[0] {
		if media, _, err := mime.ParseMediaType(contentType); err != nil || media != jsonContent[0] {
			return 0, refuse(http.StatusUnsupportedMediaType, "content type is %q, want application/json", contentType)
		}
	}
	timeout, err := timeoutOf(r)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "%v", err)
	}
	return timeout, nil
}

// timeoutOf returns how long a request may take.
func timeoutOf(r *http.Request) (time.Duration, error) {
	timeout := DefaultTimeout
	if text := r.URL.Query().Get("timeout"); text != "" {
		var err error
		if timeout, err = time.ParseDuration(text); err != nil || timeout <= 0 {
			return 0, fmt.Errorf("timeout is %q, want a duration such as 10s", text)
		}
	}
	timeout = min(timeout, MaxTimeout)
	return timeout - min(max(timeout/10, 50*time.Millisecond), 500*time.Millisecond, timeout/2), nil
}

// decide asks the Validator or the Mutator and turns its faults into denials.
func (h *Handler) decide(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse) {
	defer func() {
		if r := recover(); r != nil {
			h.log("admission panicked", "uid", request.UID, "panic", r, "stack", string(debug.Stack()))
			if h.Panicked != nil {
				h.Panicked()
			}
			response = internalError(request.UID, "admission panicked")
		}
	}()
	if h.Mutator != nil {
		response = h.Mutator.Mutate(ctx, request)
	} else {
		response = h.Validator.Validate(ctx, request)
	}
	if response == nil {
		return internalError(request.UID, "admission gave no answer")
	}
	return response
}
