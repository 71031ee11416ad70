package cases

import (
	"encoding/json"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// policy returns the plugin with the configuration and the objects of the case.
func (q *question) policy() *admissiontest.Plugin {
	return q.suite.kits.admission(q).In(q, q.objects).Configure(q, q.config)
}

// review sends a review to an admission plugin.
func (q *question) review() {
	p := q.policy()
	review := q.makeReview()
	ask := p.Review
	if q.of.Mutate {
		ask = p.MutateReview
	}
	v := ask(q, review)
	if v.Failed {
		if q.of.Error == "" {
			q.Fatalf("the plugin could not decide: %s", v.Message)
		}
		q.has("error", v.Message, q.of.Error)
		return
	}
	if q.of.Error != "" {
		q.Fatalf("the plugin decided, want the error %q", q.of.Error)
	}
	var want Verdict
	q.wanted(&want)
	denied := want.Denied || want.Code != 0 || want.Message != "" || len(want.Errors) != 0
	if v.Allowed == denied {
		q.Errorf("allowed is %t, want %t", v.Allowed, !denied)
	}
	if want.Code != 0 || v.Allowed {
		q.same("code", want.Code, v.Code)
	}
	if !want.Denied {
		q.same("message", want.Message, v.Message)
		q.same("errors", want.Errors, v.FieldErrors)
	}
	q.same("warnings", want.Warnings, v.Warnings)
	if len(want.Annotations)+len(v.AuditAnnotations) != 0 {
		q.same("annotations", want.Annotations, v.AuditAnnotations)
	}
	q.same("object", canonical(q, want.Object), canonical(q, []byte(v.Object)))
}

// makeReview returns the AdmissionReview of the case.
func (q *question) makeReview() string {
	if !q.of.Review.IsZero() {
		return jsonOf(q, q.suite.read(q, q.of.Review))
	}
	var request *admissionv1.AdmissionRequest
	switch {
	case !q.of.Create.IsZero():
		request = q.object(q.of.Create).Admission()
	case !q.of.Update.IsZero():
		request = q.object(q.of.Update).Admission()
		request.Operation, request.OldObject = admissionv1.Update, request.Object
		if !q.of.Old.IsZero() {
			request.OldObject.Raw = q.object(q.of.Old).JSON
		}
	default:
		request = q.object(q.of.Delete).Admission()
		request.Operation, request.OldObject, request.Object = admissionv1.Delete, request.Object, runtime.RawExtension{}
	}
	if q.of.User != "" || len(q.of.Groups) != 0 {
		request.UserInfo.Username, request.UserInfo.Groups = q.of.User, append(slices.Clone(q.of.Groups), "system:authenticated")
	}
	request.SubResource, request.RequestSubResource = q.of.Subresource, q.of.Subresource
	review, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		q.Fatal(err)
	}
	return string(review)
}

// object returns the only object of a document.
func (q *question) object(d Document) *manifest.Object {
	objects, err := manifest.Read([]byte(q.suite.read(q, d)))
	if err != nil {
		q.Fatalf("read object: %v", err)
	}
	if len(objects.All) != 1 {
		q.Fatalf("read object: %d objects, want one", len(objects.All))
	}
	return &objects.All[0]
}

// convert sends objects to a plugin that converts.
func (q *question) convert() {
	p, object := q.policy(), q.suite.read(q, q.of.Convert)
	got, err := p.Convert(q, object, q.of.To)
	if q.wantsError(err) {
		return
	}
	q.same("converted", canonical(q, []byte(jsonOf(q, q.suite.read(q, q.of.Want)))), got)
	if q.of.RoundTrip {
		p.RoundTrip(q, object, q.of.To)
	}
}

// canonical returns JSON with the members in the order of their names and no spaces.
func canonical(t testing.TB, text []byte) string {
	if len(text) == 0 {
		return ""
	}
	var v any
	if err := yaml.Unmarshal(text, &v, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// jsonOf returns the only document of a text in JSON.
func jsonOf(t testing.TB, text string) string {
	document, err := manifest.JSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(document)
}

// read reads the only document of a text.
func read(t testing.TB, text string, to any) {
	if err := yaml.Unmarshal([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}
