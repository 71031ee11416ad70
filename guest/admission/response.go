package admission

import (
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/internal/wire"
)

// Response is the verdict of a plugin. A nil *Response allows the request. The
// functions below make all others; the methods add to a Response.
//
// The methods return their Response, or a new one if it was nil:
//
//	return admission.Allow().WithWarning("image ", image, " has no digest")
type Response struct {
	verdict     abi.Verdict
	code        int
	reason      string
	message     string
	errs        field.ErrorList
	warnings    []string
	annotations []annotation
}

type annotation struct{ key, value string }

// Allow returns the Response that admits the request.
func Allow() *Response { return nil }

// Deny returns a Response that refuses the request, with 403 Forbidden unless
// WithCode says otherwise. The message is the concatenation of its parts; the
// user reads it after "admission webhook … denied the request: ".
func Deny(message ...string) *Response {
	return &Response{verdict: abi.VerdictDeny, message: strings.Join(message, "")}
}

// Invalid returns a Response that refuses the request because of errs, with 422
// Invalid; it allows the request if there are none. The host writes the message
// from the errors.
func Invalid(errs ...*field.Error) *Response { return Allow().WithFieldErrors(errs...) }

// Errored returns a Response of a plugin that could not decide. The plugin's failure
// policy then decides the request. A nil err allows the request.
func Errored(err error) *Response {
	if err == nil {
		return nil
	}
	return &Response{verdict: abi.VerdictError, message: err.Error()}
}

func (r *Response) orNew() *Response {
	if r == nil {
		return &Response{}
	}
	return r
}

// WithCode sets the HTTP status code of a denial, from 400 to 599.
func (r *Response) WithCode(code int) *Response {
	r = r.orNew()
	r.code = code
	return r
}

// WithReason sets the machine-readable reason of a denial, by which programs tell denials apart: a
// value of metav1.StatusReason, of which package meta has the names, or one of your own. The default is the
// one that belongs to the code.
func (r *Response) WithReason(reason string) *Response {
	r = r.orNew()
	r.reason = reason
	return r
}

// WithFieldErrors adds mistakes in fields. A Response that allowed the request
// denies it if there are any errs that are not nil.
func (r *Response) WithFieldErrors(errs ...*field.Error) *Response {
	for _, err := range errs {
		if err == nil {
			continue
		}
		r = r.orNew()
		if r.verdict == abi.VerdictAllow {
			r.verdict = abi.VerdictDeny
		}
		r.errs = append(r.errs, err)
	}
	return r
}

// WithWarning adds a warning, the concatenation of its parts, which the client
// shows to its user whether the request is allowed or denied. It should be one
// line of at most 120 characters that tells the user what to change; the host
// cuts it at 256.
func (r *Response) WithWarning(warning ...string) *Response {
	r = r.orNew()
	r.warnings = append(r.warnings, strings.Join(warning, ""))
	return r
}

// WithAuditAnnotation adds an annotation to the audit event of the request. The
// host puts the plugin's name before the key, replaces characters that a key
// may not have, and cuts the result at 63 characters.
func (r *Response) WithAuditAnnotation(key, value string) *Response {
	r = r.orNew()
	r.annotations = append(r.annotations, annotation{key, value})
	return r
}

// Allowed reports whether the request is admitted.
func (r *Response) Allowed() bool { return r == nil || r.verdict == abi.VerdictAllow }

// Failed reports whether the plugin could not decide.
func (r *Response) Failed() bool { return r != nil && r.verdict == abi.VerdictError }

// Code returns the code that was set, 0 if none was.
func (r *Response) Code() int {
	if r == nil {
		return 0
	}
	return r.code
}

// Reason returns the reason that was set, "" if none was.
func (r *Response) Reason() string {
	if r == nil {
		return ""
	}
	return r.reason
}

// Message returns the message of Deny, or the text of the error of Errored.
func (r *Response) Message() string {
	if r == nil {
		return ""
	}
	return r.message
}

// FieldErrors returns the errors that were added.
func (r *Response) FieldErrors() field.ErrorList {
	if r == nil {
		return nil
	}
	return r.errs
}

// Warnings returns the warnings that were added.
func (r *Response) Warnings() []string {
	if r == nil {
		return nil
	}
	return r.warnings
}

// AuditAnnotations returns the annotations that were added, with the keys that
// they were given.
func (r *Response) AuditAnnotations() map[string]string {
	if r == nil || len(r.annotations) == 0 {
		return nil
	}
	m := make(map[string]string, len(r.annotations))
	for _, a := range r.annotations {
		m[a.key] = a.value
	}
	return m
}

// packed returns the result of the exported function.
func (r *Response) packed() uint64 {
	if r == nil {
		return abi.Pack(0, abi.VerdictAllow)
	}
	code := uint32(0)
	if r.code > 0 && r.verdict == abi.VerdictDeny {
		code = uint32(r.code)
	}
	return abi.Pack(code, r.verdict)
}

// appendResult writes the message kubewasm.admission.v1.Result of
// abi/admission.proto. It writes nothing if the response has
// only a verdict.
func (r *Response) appendResult(b []byte) []byte {
	if r == nil {
		return b
	}
	if r.reason != "" {
		b = wire.AppendBytes(b, 1, r.reason)
	}
	var nested []byte
	for _, e := range r.errs {
		nested = appendFieldError(nested[:0], e)
		b = wire.AppendBytes(b, 2, nested)
	}
	for _, w := range r.warnings {
		b = wire.AppendBytes(b, 3, w)
	}
	for _, a := range r.annotations {
		b = wire.AppendMapEntry(b, 4, a.key, a.value)
	}
	return b
}

func appendFieldError(b []byte, e *field.Error) []byte {
	if e.Field != "" {
		b = wire.AppendBytes(b, 1, e.Field)
	}
	if e.Type != "" {
		b = wire.AppendBytes(b, 2, e.Type)
	}
	if e.Detail != "" {
		b = wire.AppendBytes(b, 3, e.Detail)
	}
	if e.BadValue != "" {
		b = wire.AppendBytes(b, 4, e.BadValue)
	}
	return b
}
