package admission

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/codec/admissionpb"
)

// Validator decides whether a request is admitted.
type Validator interface {
	// Validate returns the answer to request, which it does not change. When ctx
	// ends before it is known, the answer is what failing means for the
	// Validator.
	Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
}

// Engine asks plugins. It is safe for use by several goroutines; how many ask
// one plugin at a time is that plugin's Limits.Instances.
type Engine struct {
	plugins []*Plugin
}

// NewEngine returns an Engine that asks the given plugins. Their order is that
// of the messages; without plugins everything is allowed.
func NewEngine(plugins ...*Plugin) *Engine { return &Engine{plugins: plugins} }

// Close closes the plugins, waiting until ctx ends for the calls that run.
func (e *Engine) Close(ctx context.Context) error {
	var errs []error
	for _, p := range e.plugins {
		errs = append(errs, p.Close(ctx))
	}
	return errors.Join(errs...)
}

// envelopes are buffers of encoded requests, *[]byte.
var envelopes = sync.Pool{New: func() any { return new([]byte) }}

// keepEnvelope is the size of the largest buffer that is used again. Nearly all
// requests have less than 1 KiB; a user with very many groups has more.
const keepEnvelope = 64 << 10

// Validate asks every plugin, all at the same time. One denial denies the
// request, and so does a failure of a plugin whose policy is [Fail].
//
// The answer's status has the code and the reason of the first plugin that
// denies, in the order of [NewEngine], or 500 InternalError if none denies and
// one fails; it has the messages of all, and, when the engine has several
// plugins, the plugin's name before each. Field errors are the causes of the
// status. Warnings and audit annotations of all plugins are kept, also of those
// that allow, within what an API server takes: each warning once, without
// control characters, cut at 256 runes and 4,096 in all; each annotation under
// "<plugin>.<key>", with "_" for what a qualified name may not have, cut at 63
// characters.
//
// A request that is allowed without a word costs one allocation, the answer:
// TestAllowAllocatesTheAnswerOnly.
func (e *Engine) Validate(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	buffer := envelopes.Get().(*[]byte)
	*buffer = admissionpb.AppendRequest((*buffer)[:0], request)
	defer func() {
		if cap(*buffer) <= keepEnvelope {
			envelopes.Put(buffer)
		}
	}()

	if len(e.plugins) == 1 {
		v := e.plugins[0].ask(ctx, request, *buffer)
		if v.allowed && v.result == nil {
			return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
		}
		return e.answer(request, []verdict{v})
	}
	return e.answer(request, e.askAll(ctx, request, *buffer))
}

// askAll asks the plugins at the same time and returns their verdicts in order.
func (e *Engine) askAll(ctx context.Context, request *admissionv1.AdmissionRequest, envelope []byte) []verdict {
	verdicts := make([]verdict, len(e.plugins))
	var wg sync.WaitGroup
	for i, p := range e.plugins {
		if i == len(e.plugins)-1 {
			verdicts[i] = p.ask(ctx, request, envelope)
			break
		}
		wg.Go(func() { verdicts[i] = p.ask(ctx, request, envelope) })
	}
	wg.Wait()
	return verdicts
}

// answer makes one answer of the plugins' verdicts.
func (e *Engine) answer(request *admissionv1.AdmissionRequest, verdicts []verdict) *admissionv1.AdmissionResponse {
	var (
		messages []string
		status   *metav1.Status // Of the first denial.
		failed   bool
		warnings warnings
		audit    annotations
		causes   []metav1.StatusCause
	)
	for i := range verdicts {
		v, p := &verdicts[i], e.plugins[i]
		switch {
		case v.failure != nil && p.policy == Ignore:
			warnings.add(v.failure.Error() + " (ignored)")
		case v.failure != nil:
			// The failure names the plugin already.
			failed = true
			messages = append(messages, v.failure.Error())
		case !v.allowed:
			if status == nil {
				status = denial(v)
			}
			causes = append(causes, causesOf(v.result)...)
			message := messageOf(v)
			if len(e.plugins) > 1 {
				message = p.Name() + ": " + message
			}
			messages = append(messages, message)
		}
		if v.result != nil {
			for _, w := range v.result.Warnings {
				warnings.add(w)
			}
			audit.add(p.Name(), v.result.AuditAnnotations)
		}
	}
	response := &admissionv1.AdmissionResponse{
		UID:              request.UID,
		Allowed:          status == nil && !failed,
		Warnings:         warnings.list(),
		AuditAnnotations: audit,
	}
	if response.Allowed {
		return response
	}
	if status == nil {
		status = &metav1.Status{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError}
	}
	status.Status = metav1.StatusFailure
	status.Message = strings.Join(messages, "; ")
	if len(causes) != 0 {
		status.Details = &metav1.StatusDetails{
			Name:   request.Name,
			Group:  request.Kind.Group,
			Kind:   request.Kind.Kind,
			Causes: causes,
		}
	}
	response.Result = status
	return response
}
