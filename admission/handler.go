package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Handler serves a [Validator] as a validating admission webhook of
// admission.k8s.io/v1: POST of an AdmissionReview in JSON, whatever the path.
//
// A review is answered with 200 and a review, whether it is admitted or not.
// Anything else gets one line of text: 405 for another method, 415 for another
// media type, 413 for a body that is too long, 400 for one that is not a review
// with a request and a uid.
//
// The query's timeout, which the API server sends, becomes the context's
// deadline, less a tenth of it for the way back, 50 ms at least and 500 ms at
// most. If the Validator panics, the request is denied with 500.
type Handler struct {
	// Validator decides. Required.
	Validator Validator
	// MaxBodyBytes is the longest body that is read. Default
	// [DefaultMaxBodyBytes].
	MaxBodyBytes int64
	// Logger receives panics and answers that could not be written; nil drops
	// them.
	Logger *slog.Logger
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

var (
	reviewType = metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}
	// bodies are the buffers that bodies are read into.
	bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}
)

// keepBody is the size of the largest buffer that is used again. One 7 MiB
// review must not cost 7 MiB for ever.
const keepBody = 256 << 10

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request, ctx, cancel, err := h.read(w, r)
	if err != nil {
		if err.code == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", http.MethodPost)
		}
		http.Error(w, err.message, err.code)
		return
	}
	defer cancel()
	response := h.validate(ctx, request)
	response.UID = request.UID
	// The API server takes a validating webhook that patches for broken.
	response.Patch, response.PatchType = nil, nil

	out, marshalErr := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: reviewType, Response: response})
	if marshalErr != nil {
		// Only strings and numbers are in it, so this is not for the client.
		h.log("encode admission review", "uid", request.UID, "err", marshalErr)
		http.Error(w, "encode admission review: "+marshalErr.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if _, err := w.Write(out); err != nil {
		h.log("write admission review", "uid", request.UID, "err", err)
	}
}

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

// read returns the request that r carries and the context to decide it in.
func (h *Handler) read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, context.Context, context.CancelFunc, *httpError) {
	if r.Method != http.MethodPost {
		return nil, nil, nil, refuse(http.StatusMethodNotAllowed, "method is %s, want POST", r.Method)
	}
	contentType := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(contentType); err != nil || media != "application/json" {
		return nil, nil, nil, refuse(http.StatusUnsupportedMediaType, "content type is %q, want application/json", contentType)
	}
	timeout, err := timeoutOf(r)
	if err != nil {
		return nil, nil, nil, refuse(http.StatusBadRequest, "%v", err)
	}
	// The time that the body takes counts too.
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	request, refused := h.readBody(w, r)
	if refused != nil {
		cancel()
		return nil, nil, nil, refused
	}
	return request, ctx, cancel, nil
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

func (h *Handler) readBody(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, *httpError) {
	limit := h.MaxBodyBytes
	if limit == 0 {
		limit = DefaultMaxBodyBytes
	}
	if r.ContentLength > limit {
		return nil, refuse(http.StatusRequestEntityTooLarge, "body has %d bytes, more than %d", r.ContentLength, limit)
	}
	body := bodies.Get().(*bytes.Buffer)
	defer func() {
		if body.Cap() <= keepBody {
			body.Reset()
			bodies.Put(body)
		}
	}()
	if r.ContentLength > 0 {
		// A length is only a claim: beyond this, memory follows what comes.
		body.Grow(int(min(r.ContentLength, keepBody/2)) + bytes.MinRead)
	}
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit)); err != nil {
		var tooLarge *http.MaxBytesError
		if errors.As(err, &tooLarge) {
			return nil, refuse(http.StatusRequestEntityTooLarge, "body has more than %d bytes", limit)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, refuse(http.StatusBadRequest, "body is cut off after %d of %d bytes", body.Len(), r.ContentLength)
		}
		return nil, refuse(http.StatusBadRequest, "read body: %v", err)
	}
	return decode(body.Bytes())
}

// decode decodes a review's envelope, with names matched exactly as everywhere
// in Kubernetes. The request does not refer to body: RawExtension copies the
// bytes of an object and leaves them as they are otherwise.
func decode(body []byte) (*admissionv1.AdmissionRequest, *httpError) {
	var review admissionv1.AdmissionReview
	if err := utiljson.Unmarshal(body, &review); err != nil {
		return nil, refuse(http.StatusBadRequest, "decode admission review: %v", err)
	}
	if review.TypeMeta != reviewType {
		return nil, refuse(http.StatusBadRequest, "body is %s %s, want %s %s",
			orNone(review.APIVersion), orNone(review.Kind), reviewType.APIVersion, reviewType.Kind)
	}
	switch {
	case review.Request == nil:
		return nil, refuse(http.StatusBadRequest, "admission review has no request")
	case review.Request.UID == "":
		return nil, refuse(http.StatusBadRequest, "request of the admission review has no uid")
	}
	return review.Request, nil
}

// orNone makes an empty name visible, and any other safe to be shown.
func orNone(name string) string {
	if name == "" {
		return "(none)"
	}
	return fmt.Sprintf("%.100q", name)
}

// validate asks the Validator and turns its faults into denials.
func (h *Handler) validate(ctx context.Context, request *admissionv1.AdmissionRequest) (response *admissionv1.AdmissionResponse) {
	defer func() {
		if r := recover(); r != nil {
			h.log("validator panicked", "uid", request.UID, "panic", r, "stack", string(debug.Stack()))
			response = internalError(request.UID, "admission validator panicked")
		}
	}()
	if response = h.Validator.Validate(ctx, request); response == nil {
		return internalError(request.UID, "admission validator gave no answer")
	}
	return response
}

func internalError(uid types.UID, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		UID: uid,
		Result: &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    http.StatusInternalServerError,
			Reason:  metav1.StatusReasonInternalError,
			Message: message,
		},
	}
}
