package admission

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubewasm/kubewasm/codec/admissionmsg"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/publicerr"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// result holds the parts of a verdict besides its number, code and message.
type result = admissionmsg.Result

// answer combines the policies' verdicts into one answer.
func answer(request *admissionv1.AdmissionRequest, verdicts []policyVerdict) *admissionv1.AdmissionResponse {
	var (
		messages []string
		status   *metav1.Status // Of the first denial.
		broken   bool
		warnings warnings
		audit    annotations
		causes   []metav1.StatusCause
	)
	for i := range verdicts {
		v, name := &verdicts[i].verdict, verdicts[i].policy.Name()
		switch {
		case v.failure != nil && verdicts[i].policy.rules().FailurePolicy == host.Ignore:
			warnings.add(publicerr.Words(v.failure) + " (ignored)")
		case v.failure != nil:
			// The failure names the plugin already.
			broken = true
			messages = append(messages, publicerr.Words(v.failure))
		case !v.Allowed:
			if status == nil {
				status = denial(v)
			}
			causes = append(causes, causesOf(name, v)...)
			// A user of the cluster does not know the number of policies in a webhook.
			messages = append(messages, name+": "+messageOf(v))
		}
		if v.Result != nil {
			for _, w := range v.Result.Warnings {
				warnings.add(w)
			}
			audit.add(name, v.Result.AuditAnnotations)
		}
	}
	response := &admissionv1.AdmissionResponse{
		UID:              request.UID,
		Allowed:          status == nil && !broken,
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

// denial returns a status with the code and the reason of a denial, and with defaults for those
// that the plugin leaves open. A code that is not an HTTP error becomes 400, to which the API
// server raises lower ones itself. The API server would not answer a code above 599 at all.
func denial(v *verdict) *metav1.Status {
	status := &metav1.Status{Code: http.StatusForbidden}
	switch {
	case v.Code == 0 && v.Result != nil && (len(v.Result.FieldErrors) != 0 || v.Result.Reason == string(metav1.StatusReasonInvalid)):
		status.Code = http.StatusUnprocessableEntity
	case v.Code == 0:
	case v.Code < 400 || v.Code > 599:
		status.Code = http.StatusBadRequest
	default:
		status.Code = int32(v.Code)
	}
	status.Reason = serving.Reasons[status.Code]
	if v.Result != nil && v.Result.Reason != "" && v.Result.Reason != string(metav1.StatusReasonInvalid) {
		status.Reason = metav1.StatusReason(v.Result.Reason)
	}
	return status
}

// messageOf returns the message of a denial: the plugin's message, its field errors, and the
// messages of a group's members. A text already in the message is not repeated.
func messageOf(v *verdict) string {
	var parts []string
	var errors []admissionmsg.FieldError
	if v.Result != nil {
		errors = v.Result.FieldErrors
	}
	if v.Message != "" && !slices.ContainsFunc(errors, func(e admissionmsg.FieldError) bool { return e.Message == v.Message }) {
		parts = append(parts, v.Message)
	}
	for i, c := range fieldCauses(v.Result) {
		if e := &errors[i]; e.Message != "" && e.Message != v.Message && strings.Contains(v.Message, e.Message) && strings.Contains(v.Message, e.Field) {
			continue
		}
		if c.Field != "" {
			c.Message = c.Field + ": " + c.Message
		}
		if !slices.Contains(parts, c.Message) {
			parts = append(parts, c.Message)
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "no reason given")
	}
	message := strings.Join(parts, "; ")
	if len(v.causes) == 0 {
		return message
	}
	members := make([]string, len(v.causes))
	for i, c := range v.causes {
		if members[i] = c.name; c.message != v.Message {
			members[i] += ": " + c.message
		}
	}
	return message + " (" + strings.Join(members, "; ") + ")"
}

// causesOf returns the causes of a status: field errors, and the denials of a group's members. Each
// names its policy, since kubectl edit shows nothing else.
func causesOf(policy string, v *verdict) []metav1.StatusCause {
	causes := fieldCauses(v.Result)
	for _, c := range v.causes {
		causes = append(causes, metav1.StatusCause{Message: c.message, Field: "spec.policies." + c.name})
	}
	for i := range causes {
		causes[i].Message += " (policy " + policy + ")"
	}
	return causes
}

// fieldCauses returns field errors as causes, the way
// k8s.io/apimachinery/pkg/api/errors.NewInvalid does.
func fieldCauses(r *result) []metav1.StatusCause {
	if r == nil {
		return nil
	}
	causes := make([]metav1.StatusCause, 0, len(r.FieldErrors))
	for _, e := range r.FieldErrors {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseType(e.Type), Message: body(e), Field: e.Field})
	}
	return causes
}

// body returns the text of a field error, in the words of Kubernetes if it defines the type.
func body(e admissionmsg.FieldError) string {
	worded := func(t field.ErrorType) string {
		return (&field.Error{Type: t, BadValue: badValue(e.BadValue), Detail: e.Message}).ErrorBody()
	}
	switch t := field.ErrorType(e.Type); t {
	case field.ErrorTypeNotFound, field.ErrorTypeRequired, field.ErrorTypeDuplicate, field.ErrorTypeInvalid,
		field.ErrorTypeNotSupported, field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooMany,
		field.ErrorTypeTypeInvalid, field.ErrorTypeInternal:
		return worded(t)
	// Counterparts of the types above that the oldest supported Kubernetes does not define.
	case "FieldValueTooFew":
		return "Too few" + strings.TrimPrefix(worded(field.ErrorTypeTooMany), field.ErrorTypeTooMany.String())
	case "FieldValueTooShort":
		return "Too short" + strings.TrimPrefix(worded(field.ErrorTypeTooLong), field.ErrorTypeTooLong.String())
	}
	return e.Message
}

// badValue returns a value that field.Error formats like the encoded JSON value. Text that is not
// JSON is taken as a string.
func badValue(encoded *string) any {
	if encoded == nil {
		return field.OmitValueType{}
	}
	raw := []byte(*encoded)
	var text string
	switch {
	case !json.Valid(raw):
		return *encoded
	case json.Unmarshal(raw, &text) == nil && strings.HasPrefix(strings.TrimSpace(*encoded), `"`):
		return text
	}
	return json.RawMessage(raw)
}
