package admission

import (
	"cmp"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/internal/json"
)

const (
	reviewKind    = "AdmissionReview"
	reviewVersion = "admission.k8s.io/v1"
)

// DecodeReview decodes the envelope of an AdmissionReview in JSON, for a server
// that is not a [Handler]. The objects and most strings of the request are parts
// of body, which must not be written to afterwards.
//
// It takes what encoding/json takes with the names matched exactly, which is how
// Kubernetes decodes, with the same outcome; but it refuses a member of the review
// or the request that occurs twice, which no API server sends and which decoders
// read differently. FuzzDecodeReview compares.
func DecodeReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	if !json.Valid(body) {
		// The rare case pays for a good message.
		var v stdjson.RawMessage
		err := stdjson.Unmarshal(body, &v)
		return nil, fmt.Errorf("decode admission review: %w", err)
	}
	d := decoder{}
	var version, kind string
	var request json.Value
	d.object("", body, func(key string, v json.Value) int {
		switch key {
		case "apiVersion":
			d.text("apiVersion", v, &version)
			return 1
		case "kind":
			d.text("kind", v, &kind)
			return 2
		case "request":
			request = v
			return 3
		}
		return 0
	})
	if d.err == nil && (version != reviewVersion || kind != reviewKind) {
		return nil, fmt.Errorf("body is %s %s, want %s %s", orNone(version), orNone(kind), reviewVersion, reviewKind)
	}
	if d.err == nil && request.IsNull() {
		return nil, errors.New("admission review has no request")
	}
	r := new(admissionv1.AdmissionRequest)
	d.request(request, r)
	if d.err != nil {
		return nil, fmt.Errorf("decode admission review: %w", d.err)
	}
	if r.UID == "" {
		return nil, errors.New("request of the admission review has no uid")
	}
	return r, nil
}

// decoder decodes parts of a review and keeps the first mistake.
type decoder struct{ err error }

func (d *decoder) fail(field string, v json.Value, want string) {
	if d.err == nil {
		d.err = fmt.Errorf("%s is %s, want %s", field, v.Kind(), want)
	}
}

// object decodes the members of an object; null has none. member returns a number
// of its own, 1 to 63, for each name that it knows, and 0 for others.
func (d *decoder) object(field string, v json.Value, member func(key string, v json.Value) int) {
	if kind := v.Kind(); kind == json.KindNull || kind == json.KindNone {
		return
	} else if kind != json.KindObject {
		d.fail(cmp.Or(field, "the body"), v, "object")
		return
	}
	seen := uint64(0)
	for m := json.Object(v); m.Next(); {
		n := member(m.Key(), m.Value())
		if n != 0 && seen&(1<<n) != 0 && d.err == nil {
			if field != "" {
				field += "."
			}
			d.err = fmt.Errorf("%s%s occurs twice", field, m.Key())
		}
		seen |= 1 << n
	}
}

// text decodes a string; null is none.
func (d *decoder) text(field string, v json.Value, to *string) {
	s, ok := v.Text()
	if !ok && v.Kind() != json.KindNull {
		d.fail(field, v, "string")
	}
	*to = s
}

func (d *decoder) request(v json.Value, r *admissionv1.AdmissionRequest) {
	d.object("request", v, func(key string, v json.Value) int {
		switch key {
		case "uid":
			d.text("request.uid", v, (*string)(&r.UID))
			return 1
		case "kind":
			d.triple("request.kind", "kind", v, &r.Kind.Group, &r.Kind.Version, &r.Kind.Kind)
			return 2
		case "resource":
			d.triple("request.resource", "resource", v, &r.Resource.Group, &r.Resource.Version, &r.Resource.Resource)
			return 3
		case "subResource":
			d.text("request.subResource", v, &r.SubResource)
			return 4
		case "requestKind":
			if v.Kind() != json.KindNull {
				r.RequestKind = new(metav1.GroupVersionKind)
				d.triple("request.requestKind", "kind", v, &r.RequestKind.Group, &r.RequestKind.Version, &r.RequestKind.Kind)
			}
			return 5
		case "requestResource":
			if v.Kind() != json.KindNull {
				r.RequestResource = new(metav1.GroupVersionResource)
				d.triple("request.requestResource", "resource", v, &r.RequestResource.Group, &r.RequestResource.Version, &r.RequestResource.Resource)
			}
			return 6
		case "requestSubResource":
			d.text("request.requestSubResource", v, &r.RequestSubResource)
			return 7
		case "name":
			d.text("request.name", v, &r.Name)
			return 8
		case "namespace":
			d.text("request.namespace", v, &r.Namespace)
			return 9
		case "operation":
			d.text("request.operation", v, (*string)(&r.Operation))
			return 10
		case "userInfo":
			d.userInfo(v, &r.UserInfo)
			return 11
		case "object":
			d.raw(v, &r.Object)
			return 12
		case "oldObject":
			d.raw(v, &r.OldObject)
			return 13
		case "dryRun":
			if v.Kind() != json.KindNull {
				dryRun, ok := v.Bool()
				if !ok {
					d.fail("request.dryRun", v, "bool")
				}
				r.DryRun = &dryRun
			}
			return 14
		case "options":
			d.raw(v, &r.Options)
			return 15
		}
		return 0
	})
}

// raw keeps the bytes of an object; null is none.
func (d *decoder) raw(v json.Value, to *runtime.RawExtension) {
	if v.Kind() != json.KindNull {
		to.Raw = v
	}
}

// triple decodes a group, a version and a kind or resource, whose member is last.
func (d *decoder) triple(field, last string, v json.Value, group, version, name *string) {
	d.object(field, v, func(key string, v json.Value) int {
		switch key {
		case "group":
			d.text(field+".group", v, group)
			return 1
		case "version":
			d.text(field+".version", v, version)
			return 2
		case last:
			d.text(field+"."+last, v, name)
			return 3
		}
		return 0
	})
}

func (d *decoder) userInfo(v json.Value, to *authenticationv1.UserInfo) {
	d.object("request.userInfo", v, func(key string, v json.Value) int {
		switch key {
		case "username":
			d.text("request.userInfo.username", v, &to.Username)
			return 1
		case "uid":
			d.text("request.userInfo.uid", v, &to.UID)
			return 2
		case "groups":
			to.Groups = d.texts("request.userInfo.groups", v)
			return 3
		case "extra":
			d.extra(v, to)
			return 4
		}
		return 0
	})
}

// texts decodes a list of strings: null is none, and an empty list is one.
func (d *decoder) texts(field string, v json.Value) []string {
	switch v.Kind() {
	case json.KindNull:
		return nil
	case json.KindArray:
	default:
		d.fail(field, v, "array")
		return nil
	}
	n := 0
	for e := json.Array(v); e.Next(); {
		n++
	}
	list := make([]string, n)
	e := json.Array(v)
	for i := 0; e.Next(); i++ {
		d.text(field, e.Value(), &list[i])
	}
	return list
}

func (d *decoder) extra(v json.Value, to *authenticationv1.UserInfo) {
	if v.Kind() == json.KindObject {
		to.Extra = map[string]authenticationv1.ExtraValue{}
	}
	d.object("request.userInfo.extra", v, func(key string, v json.Value) int {
		if _, ok := to.Extra[key]; ok && d.err == nil {
			d.err = fmt.Errorf("request.userInfo.extra.%s occurs twice", key)
		}
		to.Extra[key] = d.texts("request.userInfo.extra", v)
		return 0
	})
}

// appendReview appends the review that carries a response to dst, as
// encoding/json would.
func appendReview(dst []byte, r *admissionv1.AdmissionResponse) ([]byte, error) {
	dst = append(dst, `{"kind":"`+reviewKind+`","apiVersion":"`+reviewVersion+`","response":{"uid":`...)
	dst = json.AppendString(dst, string(r.UID))
	if r.Allowed {
		dst = append(dst, `,"allowed":true`...)
	} else {
		dst = append(dst, `,"allowed":false`...)
	}
	if r.Result != nil {
		status, err := stdjson.Marshal(r.Result)
		if err != nil {
			return nil, err
		}
		dst = append(append(dst, `,"status":`...), status...)
	}
	if len(r.Patch) != 0 {
		dst = append(dst, `,"patch":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, r.Patch)
		dst = append(dst, '"')
	}
	if r.PatchType != nil {
		dst = json.AppendString(append(dst, `,"patchType":`...), string(*r.PatchType))
	}
	if len(r.AuditAnnotations) != 0 {
		dst = append(dst, `,"auditAnnotations":`...)
		for i, key := range slices.Sorted(maps.Keys(r.AuditAnnotations)) {
			dst = append(dst, "{,"[min(i, 1)])
			dst = append(json.AppendString(dst, key), ':')
			dst = json.AppendString(dst, r.AuditAnnotations[key])
		}
		dst = append(dst, '}')
	}
	if len(r.Warnings) != 0 {
		dst = append(dst, `,"warnings":`...)
		for i, warning := range r.Warnings {
			dst = append(dst, "[,"[min(i, 1)])
			dst = json.AppendString(dst, warning)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}', '}'), nil
}

// orNone makes an empty name visible, and any other safe to be shown.
func orNone(name string) string {
	if name == "" {
		return "(none)"
	}
	return fmt.Sprintf("%.100q", name)
}

// internalError is the answer of a server that could not decide.
func internalError(uid types.UID, message string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{
		UID: uid,
		Result: &metav1.Status{
			Status:  metav1.StatusFailure,
			Code:    500,
			Reason:  metav1.StatusReasonInternalError,
			Message: message,
		},
	}
}
