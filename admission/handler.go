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

	"github.com/kubewasm/kubewasm/admission/internal/serving"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Handler serves a [Validator] or a [Mutator] as an admission webhook of
// admission.k8s.io/v1, or a [Converter] as a conversion webhook of
// apiextensions.k8s.io/v1: POST of an AdmissionReview or a ConversionReview in JSON,
// whatever the path.
//
// A review is answered with 200 and a review, whether it is admitted, or converted, or not.
// Anything else gets a Status, a Status of the Kubernetes API: 405 for another method, 415 for
// another media type or an encoded body, 413 for a body that is too long, 408 for one
// that does not come in time, 429 or 503 with Retry-After if others have the memory
// for bodies, 400 for one that is not a review with a request and a uid.
//
// The query's timeout, which the API server sends, becomes the context's
// deadline, less a tenth of it for the way back, 50 ms at least and 500 ms at
// most. Of a conversion it sends none: it waits [MaxTimeout]. If the Validator or the
// Mutator panics, the request is denied with 500; a Converter that panics has failed.
type Handler struct {
	// Validator decides, if the handler is that of a validating webhook.
	Validator Validator
	// Mutator decides, if it is that of a mutating one.
	Mutator Mutator
	// Converter converts, if it is the conversion webhook of CustomResourceDefinitions.
	// Exactly one of the three is required.
	Converter Converter
	// MaxBodyBytes is the longest body that is read. Default
	// [DefaultMaxBodyBytes].
	MaxBodyBytes int64
	// Bodies bounds the memory of bodies over all requests. nil is one that all
	// handlers without one share, with the default limits.
	Bodies *Bodies
	// Logger receives panics, answers that could not be written, and which objects
	// are in reviews that are too long; nil drops them.
	Logger *slog.Logger
	// Panicked is called after a panic, to count it; nil is not called.
	Panicked func()
}

// What a review may hold of objects that an API server can store.
const (
	// storedBytes is the longest message that an API server sends to etcd, whatever
	// etcd's own limit is (1.5 MiB by default): go.etcd.io/etcd/client/v3 has it as
	// defaultMaxCallSendMsgSize, and k8s.io/apiserver's storage/storagebackend/factory
	// sets no other.
	storedBytes = 2 << 20
	// expansion is how many bytes of JSON one that is stored may become: encoding/json
	// writes '<', '>', '&', control characters and bytes that are no UTF-8 as \u003c.
	expansion = 6
	// envelopeBytes is room for the rest: users with their groups come in headers, of
	// which an API server reads 1 MiB.
	envelopeBytes = 1 << 20
)

const (
	// DefaultMaxBodyBytes is what a review may have unless the Handler says
	// otherwise, 25 MiB: any object that an API server can store fits, and so does
	// the one before it, which an update sends along.
	DefaultMaxBodyBytes = 2*expansion*storedBytes + envelopeBytes
	// defaultTimeout is how long a request may take that says nothing of a
	// timeout: the API server's default.
	defaultTimeout = 10 * time.Second
	// MaxTimeout is the longest timeout that a webhook may have in Kubernetes; a
	// longer one is cut.
	MaxTimeout = 30 * time.Second
)

// Bodies reads the bodies of requests into memory that is bounded over all of them. It is
// safe for use by several goroutines.
type Bodies serving.Bodies

// Held returns how many bytes of memory bodies have now.
func (b *Bodies) Held() int64 { return (*serving.Bodies)(b).Held() }

// BodyLimits bound what the bodies of requests may have. What is 0 has its default.
type BodyLimits struct {
	// Bytes is the memory of all bodies together. Default 256 MiB. What is made of
	// a body when it is decoded is not counted: about as much again.
	Bytes int64
	// AddressBytes is the memory of all bodies from one address, so that one client
	// does not take everything: an IPv4 address, or the first 64 bits of one of
	// IPv6. Default half of Bytes.
	AddressBytes int64
	// ConnectionBytes is the memory of all bodies of one connection, which has
	// several at a time by HTTP/2. Default an eighth of Bytes.
	ConnectionBytes int64
	// Wait is how long a body waits for memory that others have. Default 1 s.
	Wait time.Duration
	// Timeout is how long a body may take to arrive. Default 10 s.
	Timeout time.Duration
}

// NewBodies returns Bodies with limits.
func NewBodies(limits BodyLimits) *Bodies {
	return (*Bodies)(serving.NewBodies(serving.BodyLimits(limits)))
}

// sharedBodies are those of handlers that have none of their own.
var sharedBodies = NewBodies(BodyLimits{})

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timeout, refused := h.check(w, r)
	if refused != nil {
		serving.DropBody(w)
		serving.WriteStatus(w, refused.code, refused.message)
		return
	}
	// The time that the body takes counts too.
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	bodies := h.Bodies
	if bodies == nil {
		bodies = sharedBodies
	}
	limit := cmp.Or(h.MaxBodyBytes, DefaultMaxBodyBytes)
	body, unread := (*serving.Bodies)(bodies).Read(ctx, w, r, limit)
	if unread != nil {
		message := unread.Error()
		if unread.Code == http.StatusRequestEntityTooLarge {
			message = h.tooLong(unread, r.ContentLength, limit)
		}
		unread.Answer(w, jsonContent[0], string(serving.StatusBody(unread.Code, message)))
		return
	}
	// The request refers to the body.
	defer body.Release()
	ctx = serving.WithBody(ctx, body)
	if h.Converter != nil {
		h.serveConversion(ctx, w, body.Bytes)
		return
	}
	request, err := DecodeReview(body.Bytes)
	if err != nil {
		serving.WriteStatus(w, http.StatusBadRequest, err.Error())
		return
	}
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
		serving.WriteStatus(w, http.StatusInternalServerError, "encode admission review: "+marshalErr.Error())
		return
	}
	w.Header()["Content-Type"] = jsonContent
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(out); err != nil {
		h.log("write admission review", "uid", request.UID, "err", err)
	}
}

var jsonContent = []string{"application/json"}

// lines is the budget of what handlers log, which clients can repeat. A Handler may be made for
// one request.
var lines = lograte.New(lograte.DefaultBytes)

func (h *Handler) log(msg string, args ...any) {
	if l := lograte.Logger(h.Logger, lines); l != nil {
		l.Error(msg, args...)
	}
}

// tooLong notes that a review is too long, and returns what to tell of it. length is
// what was announced.
func (h *Handler) tooLong(e *serving.BodyError, length, limit int64) string {
	if h.Converter != nil {
		h.log("conversion review is too long", "bytes", length, "limit", limit, "err", e)
		return fmt.Sprintf("the conversion review is too long: %s; make the objects smaller, list fewer at a time, or raise the webhook's limits for reviews", e)
	}
	about := subjectOf(e.Beginning)
	h.log("review is too long", "uid", about.uid, "kind", about.kind, "namespace", about.namespace, "name", about.name,
		"operation", about.operation, "bytes", length, "limit", limit, "err", e)
	return fmt.Sprintf("the review of %s is too long: %s; make the object smaller, or raise the webhook's limits for reviews", about, e)
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
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		w.Header().Set("Accept-Encoding", "identity")
		return 0, refuse(http.StatusUnsupportedMediaType, "content encoding is %q, want none", encoding)
	}
	unsaid := defaultTimeout
	if h.Converter != nil {
		unsaid = MaxTimeout
	}
	timeout, err := serving.Timeout(r, unsaid, MaxTimeout)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "%v", err)
	}
	return timeout, nil
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
