package policyserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"runtime/debug"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Handler returns a handler for the paths of the package comment. The server must provide TLS and
// authentication.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, origin := range []string{originValidate, originAudit, originRaw} {
		mux.HandleFunc("POST /"+origin+"/{id}", func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, origin) })
	}
	return mux
}

// refusal is the answer to a request that is not evaluated.
type refusal struct {
	Message string `json:"message"`
	Status  int    `json:"status"`
}

func refuse(w http.ResponseWriter, code int, message string) {
	serving.DropBody(w)
	reply(w, code, refusal{message, code})
}

func reply(w http.ResponseWriter, code int, answer any) {
	text, err := json.Marshal(answer)
	if err != nil {
		// Never happens: it has only strings and numbers.
		code, text = http.StatusInternalServerError, []byte(`{"message":"Something went wrong","status":500}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text) // If the client is gone, nobody reads the answer.
}

// serve answers one request.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, origin string) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "application/json" && (!strings.HasPrefix(media, "application/") || !strings.HasSuffix(media, "+json")) {
		refuse(w, http.StatusUnsupportedMediaType, "Expected request with `Content-Type: application/json`")
		return
	}
	timeout, err := serving.Timeout(r, maxEvaluation, maxEvaluation)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	// The timeout includes the time to read the body.
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	id := r.PathValue("id")
	acquired := s.serving.Acquire()
	version := acquired.Share()
	defer version.Release()
	p := acquired.Value[id]
	if p == nil {
		if err := s.Ready(); err != nil {
			refuse(w, http.StatusServiceUnavailable, publicerr.Words(err))
			return
		}
		refuse(w, http.StatusNotFound, "unknown policy: "+id)
		return
	}
	body, unread := (*serving.Bodies)(s.cfg.Bodies).Read(ctx, w, r, admission.DefaultMaxBodyBytes)
	if unread != nil {
		text, _ := json.Marshal(refusal{unread.Error(), unread.Code}) // A string and a number.
		unread.Answer(w, "application/json", string(text))
		return
	}
	// The request refers to the body's memory.
	defer body.Release()
	ctx = serving.WithBody(ctx, body)
	var uid types.UID
	var request *admissionv1.AdmissionRequest
	var raw json.RawMessage
	if origin == originRaw {
		raw, err = decodeRaw(body.Bytes)
		uid = rawUID(raw)
	} else if request, err = admission.DecodeReview(body.Bytes); err == nil {
		uid = request.UID
	}
	if err != nil {
		code := http.StatusUnprocessableEntity
		if !json.Valid(body.Bytes) {
			code = http.StatusBadRequest
		}
		refuse(w, code, err.Error())
		return
	}
	response := s.guarded(ctx, version, p, origin, uid, request, raw)
	if origin == originRaw {
		reply(w, http.StatusOK, rawReview{response})
		return
	}
	reply(w, http.StatusOK, admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"}, Response: response})
}

// guarded calls answer, and turns a panic into a denial.
func (s *Server) guarded(ctx context.Context, version serving.Shared[map[string]*served], p *served, origin string, uid types.UID, request *admissionv1.AdmissionRequest, raw json.RawMessage) (response *admissionv1.AdmissionResponse) {
	defer func() {
		if r := recover(); r != nil {
			s.panicked(p, uid, r)
			response = rejection(uid, http.StatusInternalServerError, "internal server error: the server panicked")
		}
	}()
	return s.answer(ctx, version, p, origin, uid, request, raw)
}

// panicked logs a panic of the host.
func (s *Server) panicked(p *served, uid types.UID, r any) {
	s.logCall(slog.LevelError, "policy server panicked", "policy", p.id, "uid", uid, "panic", r, "stack", string(debug.Stack()))
}

// rawReview is the answer to a raw request.
type rawReview struct {
	Response *admissionv1.AdmissionResponse `json:"response"`
}

// decodeRaw returns the request of {"request": …}.
func decodeRaw(body []byte) (json.RawMessage, error) {
	var review struct {
		Request json.RawMessage `json:"request"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, fmt.Errorf("decode raw review: %w", err)
	}
	if len(review.Request) == 0 {
		return nil, errors.New("decode raw review: missing field request")
	}
	return review.Request, nil
}
