package policyserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/confidential"
	"github.com/kubewasm/kubewasm/internal/cut"
	kjson "github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Observer receives the results of requests, and changes of policies.
//
// # Notes
//
//   - Evaluated runs on the goroutine of the request, possibly concurrently. It must be fast and
//     safe for concurrent use. It must not keep or change the data of e.
type Observer interface {
	Evaluated(ctx context.Context, e *Evaluated)
	// Loaded is called when a policy was loaded, or could not be.
	Loaded(policy string, err error)
	// Forget is called when a policy was removed.
	Forget(policy string)
}

// Evaluated is a request that was answered by a policy.
type Evaluated struct {
	// Policy is the id, Mode protect or monitor, and Origin the first part of the path:
	// validate, audit or validate_raw.
	Policy, Mode, Origin string
	// Request is nil for a raw request.
	Request *admissionv1.AdmissionRequest
	// Accepted, Mutated and Code describe the verdict itself, before the mode and message of the
	// policy are applied. Code is 0 if the verdict has none.
	Accepted, Mutated bool
	Code              int32
	// Initialization is the reason that the policy could not be asked: it was not loaded.
	Initialization error
	// Response is the answer.
	Response *admissionv1.AdmissionResponse
	// Late reports whether the request was answered before the evaluation ended, which is possible
	// for a policy that monitors. Dropped reports whether the policy was then not asked, or
	// stopped.
	Late, Dropped bool
	// Stain returns the confidential values that the policy has seen, see
	// [admission.Evaluation.Stain]. Pass a text of Response through its Text before keeping it.
	Stain func() *confidential.Stain
	// Start is the time at which the evaluation began, and Duration its length, including the wait
	// for its turn.
	Start    time.Time
	Duration time.Duration
}

// The origins of requests, which are the first parts of the paths.
const (
	originValidate = "validate"
	originAudit    = "audit"
	originRaw      = "validate_raw"
)

// Messages of Kubewarden's server that users and alerts rely on.
const (
	notAllowedToMutate = "Request rejected by policy %s. The policy attempted to mutate the request, but it is currently configured to not allow mutations."
	tookTooLong        = "Policy execution interrupted because it exceeded the allowed execution time"
)

// answer asks a policy about a request, or about raw if request is nil.
func (s *Server) answer(ctx context.Context, version serving.Shared[map[string]*served], p *served, origin string, uid types.UID, request *admissionv1.AdmissionRequest, raw json.RawMessage) *admissionv1.AdmissionResponse {
	e := &Evaluated{Policy: p.id, Mode: p.declared.mode(), Origin: origin, Request: request, Accepted: true, Start: time.Now(), Stain: func() *confidential.Stain { return new(confidential.Stain) }}
	switch {
	case request != nil && request.Namespace != "" && request.Namespace == s.cfg.AcceptNamespace:
		e.Response = &admissionv1.AdmissionResponse{UID: uid, Allowed: true}
	case p.policy == nil:
		e.Initialization, e.Accepted, e.Code = p.err, false, http.StatusInternalServerError
		e.Response = rejection(uid, http.StatusInternalServerError, publicerr.Words(p.err))
		if p.declared.mode() == monitor && origin != originAudit {
			// A policy that only monitors must not obstruct any request, least of all while it
			// cannot be loaded.
			s.logCall(slog.LevelWarn, "policy would have rejected the request", "policy", p.id, "uid", uid, "err", p.err)
			e.Response = &admissionv1.AdmissionResponse{UID: uid, Allowed: true, Warnings: []string{"policy " + p.id + " cannot be asked, and only monitors"}}
		}
	case p.declared.mode() == monitor && origin != originAudit:
		return s.beside(ctx, version, p, e, uid, raw)
	default:
		s.evaluate(ctx, p, e, uid, raw)
	}
	return s.evaluated(ctx, e)
}

func (s *Server) evaluate(ctx context.Context, p *served, e *Evaluated, uid types.UID, raw json.RawMessage) {
	v, stain := s.ask(ctx, p, e.Request, raw, uid)
	e.Accepted, e.Mutated, e.Code, e.Stain = v.Allowed, v.Patch != nil, v.Code, stain
	e.Response = s.respond(p, e.Origin, uid, e.Request, &v, stain)
}

// evaluated reports a completed evaluation to the Observer.
func (s *Server) evaluated(ctx context.Context, e *Evaluated) *admissionv1.AdmissionResponse {
	e.Duration = time.Since(e.Start)
	if s.cfg.Observer != nil {
		s.cfg.Observer.Evaluated(ctx, e)
	}
	return e.Response
}

// beside asks a policy that only monitors. The request is allowed, and does not wait for a slow
// policy.
func (s *Server) beside(ctx context.Context, version serving.Shared[map[string]*served], p *served, e *Evaluated, uid types.UID, raw json.RawMessage) *admissionv1.AdmissionResponse {
	allowed := &admissionv1.AdmissionResponse{UID: uid, Allowed: true}
	bytes := len(raw)
	if r := e.Request; r != nil {
		bytes = len(r.Object.Raw) + len(r.OldObject.Raw) + len(r.Options.Raw)
	}
	drop := func(ctx context.Context) {
		e.Accepted, e.Mutated, e.Code, e.Late, e.Dropped, e.Response = true, false, 0, true, true, allowed
		s.evaluated(ctx, e)
	}
	version.Hold()
	// The context keeps the values of the request for the observer, but does not end with it.
	outlived := context.WithoutCancel(ctx)
	call := p.monitors.Start(ctx, int64(bytes), func(ctx context.Context, c *serving.Call) {
		defer version.Release()
		defer func() {
			if r := recover(); r != nil {
				s.panicked(p, uid, r)
				e.Response = allowed
			}
		}()
		if s.evaluate(ctx, p, e, uid, raw); c.Dropped() {
			drop(outlived)
			return
		}
		e.Late = c.Late()
		s.evaluated(outlived, e)
	}, func() {
		defer version.Release()
		drop(outlived)
	})
	switch {
	case call == nil:
		version.Release()
		drop(ctx)
	case call.Wait(ctx):
		return e.Response
	}
	return allowed
}

// ask returns the verdict of a policy. A policy that fails denies, with the message of Kubewarden's
// server.
func (s *Server) ask(ctx context.Context, p *served, request *admissionv1.AdmissionRequest, raw json.RawMessage, uid types.UID) (v admission.Evaluation, stain func() *confidential.Stain) {
	about := request
	if about == nil {
		about = &admissionv1.AdmissionRequest{}
		about.Object.Raw = raw
	}
	stain = sync.OnceValue(func() *confidential.Stain { return v.Stain(p.policy, about) })
	if s.workers != nil {
		select {
		case s.workers <- struct{}{}:
			defer func() { <-s.workers }()
		case <-ctx.Done():
			v.Err = fmt.Errorf("wait for a worker: %w", ctx.Err())
			s.fail(p, uid, &v, stain)
			return v, stain
		}
	}
	if request != nil {
		v = admission.Evaluate(ctx, p.policy, request, p.declared.AllowedToMutate)
	} else {
		v = admission.EvaluateRaw(ctx, p.policy, uid, raw)
	}
	if v.Err != nil {
		s.fail(p, uid, &v, stain)
	}
	return v, stain
}

// fail turns a failure of a policy into a denial.
func (s *Server) fail(p *served, uid types.UID, v *admission.Evaluation, stain func() *confidential.Stain) {
	err := v.Err
	s.logCall(slog.LevelError, "policy failed", "policy", p.id, "uid", uid, "err", stain().Text(err.Error()))
	v.Code, v.Message = http.StatusInternalServerError, "internal server error: "+publicerr.Words(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, host.ErrFuel) {
		v.Message = tookTooLong
	}
}

// respond builds an answer from a verdict, by the mode and the message of the policy.
func (s *Server) respond(p *served, origin string, uid types.UID, request *admissionv1.AdmissionRequest, v *admission.Evaluation, stain func() *confidential.Stain) *admissionv1.AdmissionResponse {
	r := &admissionv1.AdmissionResponse{UID: uid, Allowed: v.Allowed, Warnings: v.Warnings, AuditAnnotations: v.AuditAnnotations}
	if v.Patch != nil {
		patchType := admissionv1.PatchTypeJSONPatch
		r.Patch, r.PatchType = v.Patch, &patchType
	}
	if !v.Allowed {
		r.Result = status(v.Code, v.Message, v.Causes)
	}
	if origin == originAudit {
		return r
	}
	d := &p.declared
	if d.mode() == monitor {
		s.monitored(p, request, r, stain)
		r.Allowed, r.Patch, r.PatchType, r.Result = true, nil, nil, nil
		return r
	}
	if r.Patch != nil && !d.AllowedToMutate {
		r.Allowed, r.Patch, r.PatchType = false, nil, nil
		r.Result = status(0, fmt.Sprintf(notAllowedToMutate, p.id), nil)
	}
	if !r.Allowed && d.Message != "" && len(d.Policies) == 0 {
		causes := append([]metav1.StatusCause{}, v.Causes...)
		r.Result = status(r.Result.Code, d.Message, append(causes, metav1.StatusCause{Message: r.Result.Message}))
	}
	return r
}

// loggedPatchBytes is the length of the part of a patch that is logged.
const loggedPatchBytes = 16 << 10

// monitored logs the verdict of a policy that only monitors.
func (s *Server) monitored(p *served, request *admissionv1.AdmissionRequest, r *admissionv1.AdmissionResponse, stain func() *confidential.Stain) {
	if r.Allowed && r.Patch == nil {
		return
	}
	attrs := []any{"policy", p.id, "uid", r.UID, "allowed", r.Allowed, "mutated", r.Patch != nil}
	if request != nil {
		attrs = append(attrs, "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name, "operation", request.Operation)
	}
	if r.Result != nil {
		attrs = append(attrs, "message", stain().Text(r.Result.Message), "code", r.Result.Code)
	}
	if r.Patch != nil {
		attrs = append(attrs, "patch", cut.Text(stain().Text(string(r.Patch)), loggedPatchBytes))
	}
	s.logCall(slog.LevelInfo, "policy evaluation (monitor mode)", attrs...)
}

func rejection(uid types.UID, code int32, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{UID: uid, Result: status(code, message, nil)}
}

// status returns the status of a denial. Without a code the status has none, and the API server
// answers 400. For a code above 599 it would not answer at all.
func status(code int32, message string, causes []metav1.StatusCause) *metav1.Status {
	if code > 599 {
		code = http.StatusBadRequest
	}
	s := &metav1.Status{Status: metav1.StatusFailure, Code: code, Message: strings.ToValidUTF8(message, "\uFFFD")}
	if len(causes) != 0 {
		s.Details = &metav1.StatusDetails{Causes: causes}
	}
	return s
}

// rawUID returns the uid of a raw request, empty if it has none.
func rawUID(request json.RawMessage) types.UID {
	for m := kjson.Object(request); m.Next(); {
		if m.Key() == "uid" {
			uid, _ := m.Value().Text()
			return types.UID(uid)
		}
	}
	return ""
}
