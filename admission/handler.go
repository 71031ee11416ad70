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

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/internal/lograte"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Handler serves a [Validator] or a [Mutator] as an admission webhook of admission.k8s.io/v1, or a
// [Converter] as a conversion webhook of apiextensions.k8s.io/v1: POST of an AdmissionReview or a
// ConversionReview in JSON, at any path.
//
// The handler answers a review with 200 and a review, whether it is admitted, or converted, or not.
// Other requests get a Status of the Kubernetes API: 405 for another method, 415 for another media
// type or an encoded body, 413 for a body that is too long, 408 for one that does not arrive in
// time, 429 or 503 with Retry-After if other requests use the memory for bodies, 400 for a body
// without a review, a request or a uid.
//
// The API server sends a timeout in the query. It becomes the context's deadline, less a tenth for
// the response: at least 50 ms and at most 500 ms. For a conversion the API server sends none, and
// waits 30 s, the longest timeout of a webhook. If the Validator or the Mutator panics, the request is denied with 500; a
// panic of a Converter counts as a failure.
type Handler struct {
	// Validator serves a validating webhook.
	Validator Validator
	// Mutator serves a mutating webhook.
	Mutator Mutator
	// Converter serves the conversion webhook of CustomResourceDefinitions. Exactly one of the
	// three is required.
	Converter Converter
	// MaxBodyBytes is the maximum length of a body. Default [DefaultMaxBodyBytes].
	MaxBodyBytes int64
	// Bodies bounds the memory of bodies over all requests. If it is nil, the handler shares one
	// with the default limits with all other such handlers.
	Bodies *Bodies
	// Logger receives panics, answers that could not be written, and the objects of reviews that
	// are too long; nil drops them.
	Logger *slog.Logger
	// Panicked is called after a panic, to count it. It may be nil.
	Panicked func()
}

// Bounds of a review, derived from the objects that an API server can store.
const (
	// storedBytes is the longest message that an API server sends to etcd, regardless of etcd's
	// limit (1.5 MiB by default): go.etcd.io/etcd/client/v3 defines it as
	// defaultMaxCallSendMsgSize, and k8s.io/apiserver's storage/storagebackend/factory sets no
	// other.
	storedBytes = 2 << 20
	// expansion is the number of bytes of JSON for one stored byte, at most: encoding/json writes
	// '<', '>', '&', control characters and bytes that are not UTF-8 as six characters such as
	// \u003c.
	expansion = 6
	// envelopeBytes is room for the rest: users and their groups come in headers, and an API server
	// reads at most 1 MiB of headers.
	envelopeBytes = 1 << 20
)

const (
	// DefaultMaxBodyBytes is the default of Handler.MaxBodyBytes, 25 MiB. Any object that an API
	// server can store fits, together with the old object of an update.
	DefaultMaxBodyBytes = 2*expansion*storedBytes + envelopeBytes
	// defaultTimeout is the timeout of a request that names none: the API server's default.
	defaultTimeout = 10 * time.Second
)

// Bodies reads the bodies of requests into memory with a common bound. It is safe for use by
// several goroutines.
type Bodies serving.Bodies

// Held returns the memory of bodies now, in bytes.
func (b *Bodies) Held() int64 { return (*serving.Bodies)(b).Held() }

// BodyLimits bounds the memory and the time of request bodies. Zero fields have their defaults.
type BodyLimits struct {
	// Bytes is the memory of all bodies together. Default 256 MiB. It does not count the decoded
	// form, which takes about as much again.
	Bytes int64
	// AddressBytes is the memory of all bodies from one address, so that one client cannot use up
	// the memory. An address is an IPv4 address, or the first 64 bits of an IPv6 address. Default
	// half of Bytes.
	AddressBytes int64
	// ConnectionBytes is the memory of all bodies of one connection, since HTTP/2 has several at a
	// time. Default an eighth of Bytes.
	ConnectionBytes int64
	// Wait is the time for which a body waits for memory used by others. Default 1 s.
	Wait time.Duration
	// Timeout is the time in which a body must arrive. Default 10 s.
	Timeout time.Duration
}

// NewBodies returns Bodies with limits.
func NewBodies(limits BodyLimits) *Bodies {
	return (*Bodies)(serving.NewBodies(serving.BodyLimits(limits)))
}

// sharedBodies are the Bodies of handlers without Bodies.
var sharedBodies = NewBodies(BodyLimits{})

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	timeout, refused := h.check(w, r)
	if refused != nil {
		serving.DropBody(w)
		serving.WriteStatus(w, refused.code, refused.message)
		return
	}
	// The timeout includes the time to read the body.
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
	// The request refers to the body's memory.
	defer body.Release()
	ctx = serving.WithBody(ctx, body)
	if h.Converter != nil {
		h.serveConversion(ctx, w, body.Bytes)
		return
	}
	index, valid := policy.ValidIndex(body.Bytes)
	request, err := decodeReview(body.Bytes, valid)
	if err != nil {
		serving.WriteStatus(w, http.StatusBadRequest, err.Error())
		return
	}
	response := h.decide(policy.WithIndex(ctx, index), request)
	response.UID = request.UID
	if h.Mutator == nil || len(response.Patch) == 0 || !response.Allowed {
		// The API server considers a validating webhook with a patch broken, and also a patch
		// without a type.
		response.Patch, response.PatchType = nil, nil
	}
	out, marshalErr := appendReview(make([]byte, 0, 256+len(response.Patch)*4/3), response)
	if marshalErr != nil {
		// This cannot be the client's fault, since the review has only strings and numbers.
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

// lines is the budget for log lines that clients can provoke. It is global, since a Handler may be
// created for a single request.
var lines = lograte.New(lograte.DefaultBytes)

func (h *Handler) log(msg string, args ...any) {
	if l := lograte.Logger(h.Logger, lines); l != nil {
		l.Error(msg, args...)
	}
}

// tooLong logs that a review is too long, and returns the message for the client. length is the
// announced length.
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

// check returns the timeout of r, or an error if its method and headers are not those of a review.
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
		unsaid = serving.MaxTimeout
	}
	timeout, err := serving.Timeout(r, unsaid, serving.MaxTimeout)
	if err != nil {
		return 0, refuse(http.StatusBadRequest, "%v", err)
	}
	return timeout, nil
}

// decide calls the Validator or the Mutator and turns panics into denials.
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
		return internalError(request.UID, "admission returned no answer")
	}
	return response
}
