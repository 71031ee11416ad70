package admission

import (
	"cmp"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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

// DecodeReview decodes the envelope of an AdmissionReview in JSON, for a server that is not a
// [Handler]. The objects and most strings of the request share memory with body, which must not be
// modified afterwards.
//
// Like Kubernetes, it accepts the input of encoding/json with names matched exactly, with the same
// result. However, it refuses a review or a request in which a member occurs twice: API servers do
// not send that, and decoders differ on it. FuzzDecodeReview compares the two.
func DecodeReview(body []byte) (*admissionv1.AdmissionRequest, error) {
	return decodeReview(body, json.Valid(body))
}

// decodeReview is DecodeReview for a body whose validity is known.
func decodeReview(body []byte, valid bool) (*admissionv1.AdmissionRequest, error) {
	if !valid {
		// The slow path produces a better message.
		var v stdjson.RawMessage
		err := stdjson.Unmarshal(body, &v)
		return nil, fmt.Errorf("decode admission review: %w", err)
	}
	var d decoder
	var version, kind string
	var r *admissionv1.AdmissionRequest
	d.object(body, member{"apiVersion", &version}, member{"kind", &kind}, member{"request", &r})
	switch {
	case d.err != nil:
		return nil, fmt.Errorf("decode admission review: %w", d.err)
	case version != reviewVersion || kind != reviewKind:
		return nil, fmt.Errorf("body is %s %s, want %s %s", orNone(version), orNone(kind), reviewVersion, reviewKind)
	case r == nil:
		return nil, errors.New("admission review has no request")
	case r.UID == "":
		return nil, errors.New("request of the admission review has no uid")
	}
	return r, nil
}

// decoder decodes parts of a review, up to the first mistake.
type decoder struct {
	err error
	// path holds the names of the members being decoded, the outermost first.
	path  [4]string
	depth int
}

// member is a member that an object may have, with a pointer to its decoded value.
type member struct {
	name string
	to   any
}

// fail records a mistake at the current path.
func (d *decoder) fail(mistake string) {
	if d.err == nil {
		d.err = errors.New(cmp.Or(strings.Join(d.path[:d.depth], "."), "the body") + " " + mistake)
	}
}

// expect fails unless v, the value of the member name, is of a kind, null or missing.
func (d *decoder) expect(name string, v json.Value, want json.Kind) {
	if kind := v.Kind(); v != nil && kind != want {
		d.path[d.depth] = name
		d.depth++
		d.fail("is " + kind.String() + ", want " + want.String())
		d.depth--
	}
}

// object decodes the members of an object, none of which may occur twice, and skips others. null
// has no members.
func (d *decoder) object(v json.Value, members ...member) {
	if kind := v.Kind(); kind != json.KindObject {
		if kind != json.KindNull && kind != json.KindNone {
			d.fail("is " + kind.String() + ", want object")
		}
		return
	}
	seen := uint64(0)
	for m := json.Object(v); d.err == nil && m.Next(); {
		key := m.Key()
		i := slices.IndexFunc(members, func(known member) bool { return known.name == key })
		if i < 0 {
			continue
		}
		d.path[d.depth] = key
		d.depth++
		if seen&(1<<i) != 0 {
			d.fail("occurs twice")
		}
		seen |= 1 << i
		d.value(m.Value(), members[i].to)
		d.depth--
	}
}

// value decodes a value into the target of to; null leaves the target unchanged.
func (d *decoder) value(v json.Value, to any) {
	kind := v.Kind()
	if kind == json.KindNull {
		return
	}
	want := json.KindObject
	switch to := to.(type) {
	case *string:
		want = json.KindString
		*to, _ = v.Text()
	case **bool:
		want = json.KindBool
		is, _ := v.Bool()
		*to = &is
	case *[]string:
		want = json.KindArray
		n := 0
		for e := json.Array(v); e.Next(); {
			n++
		}
		*to = make([]string, n)
		e := json.Array(v)
		for i := 0; d.err == nil && e.Next(); i++ {
			d.value(e.Value(), &(*to)[i])
		}
	case *json.Value: // Of any kind.
		want, *to = kind, v
	case *runtime.RawExtension:
		want, to.Raw = kind, v
	case *metav1.GroupVersionKind:
		d.object(v, member{"group", &to.Group}, member{"version", &to.Version}, member{"kind", &to.Kind})
	case *metav1.GroupVersionResource:
		d.object(v, member{"group", &to.Group}, member{"version", &to.Version}, member{"resource", &to.Resource})
	case **metav1.GroupVersionKind:
		*to = new(metav1.GroupVersionKind)
		d.value(v, *to)
	case **metav1.GroupVersionResource:
		*to = new(metav1.GroupVersionResource)
		d.value(v, *to)
	case *authenticationv1.UserInfo:
		d.object(v, member{"username", &to.Username}, member{"uid", &to.UID}, member{"groups", &to.Groups}, member{"extra", &to.Extra})
	case *map[string]authenticationv1.ExtraValue:
		*to = map[string]authenticationv1.ExtraValue{}
		var values []string
		for m := json.Object(v); d.err == nil && m.Next(); {
			if _, ok := (*to)[m.Key()]; ok {
				d.fail("has a member that occurs twice")
			}
			values = nil
			d.value(m.Value(), &values)
			(*to)[m.Key()] = values
		}
	case **admissionv1.AdmissionRequest:
		r := new(admissionv1.AdmissionRequest)
		*to = r
		d.object(v, member{"uid", (*string)(&r.UID)}, member{"kind", &r.Kind}, member{"resource", &r.Resource}, member{"subResource", &r.SubResource},
			member{"requestKind", &r.RequestKind}, member{"requestResource", &r.RequestResource}, member{"requestSubResource", &r.RequestSubResource},
			member{"name", &r.Name}, member{"namespace", &r.Namespace}, member{"operation", (*string)(&r.Operation)}, member{"userInfo", &r.UserInfo},
			member{"object", &r.Object}, member{"oldObject", &r.OldObject}, member{"dryRun", &r.DryRun}, member{"options", &r.Options})
	}
	if kind != want {
		d.fail("is " + kind.String() + ", want " + want.String())
	}
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

// orNone returns a visible text for an empty name, and a safe one for any other.
func orNone(name string) string {
	if name == "" {
		return "(none)"
	}
	return fmt.Sprintf("%.100q", name)
}

// internalError is the answer for a request that the server could not decide.
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
