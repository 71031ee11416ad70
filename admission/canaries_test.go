package admission_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
)

// reviewed is an object under review, as the API server names it.
type reviewed struct {
	group, version, kind, object string
}

// of returns an object with canaries, of any kind that may have some.
func of(m *canaries.Maker, name string) reviewed {
	meta := metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: m.Annotations()}
	template := corev1.PodTemplateSpec{Spec: m.PodSpec()}
	own := func(kind string, fields string) reviewed {
		return reviewed{"example.com", "v1", kind, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":%q,"metadata":{"name":%q,"namespace":"shop"},%s}`, kind, name, fields)}
	}
	switch m.IntN(16) {
	case 0, 1:
		return reviewed{"", "v1", "Secret", canaries.Text(m.Secret(name))}
	case 2: // The API server knows what it is.
		return reviewed{"", "v1", "Secret", strings.Replace(canaries.Text(m.Secret(name)), `"apiVersion":"v1","kind":"Secret",`, "", 1)}
	case 3: // Names of members may be written in any way.
		return reviewed{"", "v1", "Secret", strings.NewReplacer(`"data"`, `"\u0064ata"`, `"stringData"`, `"string\u0044ata"`, `"annotations"`, `"annot\u0061tions"`).Replace(canaries.Text(m.Secret(name)))}
	case 4:
		return reviewed{"", "v1", "Pod", canaries.Text(m.Pod(name))}
	case 5:
		return reviewed{"apps", "v1", "Deployment", canaries.Text(&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Template: template}})}
	case 6:
		return reviewed{"batch", "v1", "CronJob", canaries.Text(&batchv1.CronJob{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}, ObjectMeta: meta, Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: template}}}})}
	case 7:
		return reviewed{"authentication.k8s.io", "v1", "TokenReview", canaries.Text(&authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: authenticationv1.TokenReviewSpec{Token: m.Value(), Audiences: []string{"shop"}}})}
	case 8:
		return reviewed{"authentication.k8s.io", "v1", "TokenRequest", canaries.Text(&authenticationv1.TokenRequest{TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenRequest"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Status: authenticationv1.TokenRequestStatus{Token: m.Value()}})}
	case 9:
		return reviewed{"", "v1", "ConfigMap", canaries.Text(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta, Data: map[string]string{"manifest": m.Manifest(), "note": "nothing to hide"}})}
	case 10:
		return own("Bundle", `"kind2":"List","items":[`+canaries.Text(m.Secret("a"))+`,`+canaries.Text(m.Pod("b"))+`]`)
	case 11: // The items of a list of Secrets need no kind.
		return own("Bundle", `"spec":{"kind":"SecretList","items":[`+strings.Replace(canaries.Text(m.Secret("a")), `"apiVersion":"v1","kind":"Secret",`, "", 1)+`]}`)
	case 13, 14: // Nothing to hide.
		return own("Door", `"spec":{"open":true}`)
	case 12: // An AdmissionReview within an object, of which the old object is a Secret.
		return own("Request", `"request":{"kind":{"group":"","version":"v1","kind":"Secret"},"oldObject":`+strings.Replace(canaries.Text(m.Secret("a")), `"apiVersion":"v1","kind":"Secret",`, "", 1)+`}`)
	}
	spec, err := json.Marshal(m.PodSpec())
	if err != nil {
		panic(err)
	}
	return own("App", `"spec":{"replicas":3,"template":{"spec":`+string(spec)+`},"patch":[{"op":"add","path":"/data/p","value":"`+strings.Map(plain, m.Value())+`"}]}`)
}

// plain leaves out what JSON has escapes for.
func plain(r rune) rune {
	if r == '"' || r == '\\' || r < ' ' {
		return -1
	}
	return r
}

// TestRecordingsOfReviewsTellNoSecrets reviews objects with canaries, by a policy that repeats them,
// and another version of it. -canaries 100000 makes many calls.
func TestRecordingsOfReviewsTellNoSecrets(t *testing.T) {
	t.Parallel()
	kept := &objects{}
	known := canaries.NewMaker(47)
	known.Made, known.Flow = 1<<40, true // Others than those of the calls.
	for n := range 5 {
		kept.list = append(kept.list, &host.Object{Namespace: "shop", Name: fmt.Sprint("s", n), JSON: []byte(canaries.Text(known.Secret(fmt.Sprint("s", n))))})
	}
	for name, odd := range map[string]bool{"values of letters": false, "values with escapes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := canaries.NewMaker(1)
			m.Odd, m.Flow = odd, !odd
			cfg := config(t, "parrot", "testdata/parrot")
			r := &canaries.Recording{Dir: t.TempDir(), Module: fetched(t, cfg.Module.Source), Calls: map[string]canaries.Call{}, Odd: odd}
			cfg.AllowedToMutate = true
			cfg.Cluster, cfg.Objects = &keeper{kept: map[string]*objects{"v1/secrets": kept}}, []host.ObjectGrant{{Resource: "v1/secrets"}}
			cfg.Record = &record.Config{Path: r.Dir, QueueBytes: 1 << 30, MaxBytes: 8 << 30}
			cfg.Limits.Timeout = time.Minute
			if odd {
				cfg.Reset = host.ResetPerCall
			}
			p := load(t, cfg)
			e := admission.NewEngine(p)
			for n := range *canaries.Calls / 2 {
				name := fmt.Sprint("o", n)
				r.Calls[name] = reviewOne(t.Context(), e, m, name)
			}
			r.Made = m.Made
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.Holds(t, shared, 1)
		})
	}
}

// reviewOne has the policy review an object with canaries.
func reviewOne(ctx context.Context, e *admission.Engine, m *canaries.Maker, name string) canaries.Call {
	s := m.Script(name, "get", "list", "log", "print", "warn", "audit", "patch", "field", "deny", "error")
	if m.IntN(50) == 0 {
		s = m.Ends(name, "log", "get", "warn")
	}
	o := of(m, name)
	request := &admissionv1.AdmissionRequest{
		UID: "uid-of-the-request", Kind: metav1.GroupVersionKind{Group: o.group, Version: o.version, Kind: o.kind}, Name: name, Namespace: "shop",
		Resource:  metav1.GroupVersionResource{Group: o.group, Version: o.version, Resource: strings.ToLower(o.kind) + "s"},
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(o.object)},
		UserInfo: authenticationv1.UserInfo{Username: "alice", Extra: map[string]authenticationv1.ExtraValue{"script": {s.String()}}},
	}
	mutate := m.IntN(3) == 0
	switch m.IntN(4) {
	case 0:
		request.Operation, request.OldObject = admissionv1.Update, request.Object
		if o.kind == "Secret" {
			request.OldObject.Raw = []byte(canaries.Text(m.Secret(name)))
		}
	case 1:
		if !mutate {
			request.Operation, request.OldObject, request.Object = admissionv1.Delete, request.Object, runtime.RawExtension{}
		}
	}
	call := canaries.Call{Function: "validate", Object: o.kind + " shop/" + name, Apply: parrot.OfPolicy(s, mutate)}
	if mutate {
		call.Function = "mutate"
		e.Mutate(ctx, request)
	} else {
		e.Validate(ctx, request)
	}
	return call
}
