package admission_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	webhookrequest "k8s.io/apiserver/pkg/admission/plugin/webhook/request"
	webhookutil "k8s.io/apiserver/pkg/util/webhook"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
)

// told sends a review to a webhook as an API server does, by its own code, and returns
// what its client is told; nil if the request is admitted.
func told(t testing.TB, h http.Handler, review *admissionv1.AdmissionReview) *metav1.Status {
	t.Helper()
	const name = "validate.kubewasm.dev"
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	clients, err := webhookutil.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	resolver, err := webhookutil.NewDefaultAuthenticationInfoResolver("")
	if err != nil {
		t.Fatal(err)
	}
	clients.SetAuthenticationInfoResolver(resolver)
	clients.SetServiceResolver(webhookutil.NewDefaultServiceResolver())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	client, err := clients.HookClient(webhookutil.ClientConfig{Name: name, URL: server.URL + "/validate", CABundle: ca})
	if err != nil {
		t.Fatal(err)
	}
	var answer admissionv1.AdmissionReview
	err = client.Post().Body(review).Do(t.Context()).Into(&answer)
	if err == nil {
		var result *webhookrequest.AdmissionResponse
		if result, err = webhookrequest.VerifyAdmissionResponse(review.Request.UID, false, &answer); err == nil {
			if result.Allowed {
				return nil
			}
			return statusAsSent(t, webhookerrors.ToStatusErr(name, result.Result))
		}
	}
	return statusAsSent(t, apierrors.NewInternalError(&webhookutil.ErrCallingWebhook{WebhookName: name, Reason: fmt.Errorf("failed to call webhook: %w", err)}))
}

// statusAsSent returns a status as it comes out at a client.
func statusAsSent(t testing.TB, err *apierrors.StatusError) *metav1.Status {
	t.Helper()
	text, marshalErr := json.Marshal(err.ErrStatus)
	if marshalErr != nil {
		t.Fatal(marshalErr)
	}
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil {
		t.Fatal(err)
	}
	return &status
}

// printed returns what kubectl prints of a status, by its own code: what it made of a
// file goes on about the file.
func printed(t testing.TB, status *metav1.Status) string {
	t.Helper()
	if status == nil {
		return ""
	}
	var text string
	cmdutil.BehaviorOnFatal(func(message string, _ int) { text = message })
	defer cmdutil.DefaultBehaviorOnFatal()
	cmdutil.CheckErr(&apierrors.StatusError{ErrStatus: *status})
	return strings.TrimSuffix(text, "\n")
}

// reviewOf is the review of the creation of an object.
func reviewOf(object string) *admissionv1.AdmissionReview {
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview", APIVersion: "admission.k8s.io/v1"},
		Request: &admissionv1.AdmissionRequest{
			UID: "uid-1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Name: "web", Namespace: "shop", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(object)},
		},
	}
}

// engineOf returns an engine of guests by their names.
func engineOf(t testing.TB, settings map[string]string, names ...string) *admission.Engine {
	t.Helper()
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	var policies []admission.Policy
	for _, name := range names {
		dir := examples + "admission/" + name
		if name == "scripted" {
			dir = admissionDir + "testdata/" + name
		}
		file := guest(t, dir)
		plugin, err := admission.Load(t.Context(), rt, admission.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{File: file}, GuestConfig: []byte(settings[name])}})
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, plugin)
	}
	return admission.NewEngine(policies...)
}

// Whatever a request is refused for, a user of kubectl reads which webhook and which
// policy did, and why, once.
func TestWhatKubectlPrints(t *testing.T) {
	labels := `{"labels":["team"],"registries":["registry.example.com/"]}`
	one, both := engineOf(t, map[string]string{"required-labels": labels}, "required-labels"), engineOf(t, map[string]string{"required-labels": labels}, "scripted", "required-labels")
	script := func(annotations string) string {
		return `{"metadata":{"labels":{"team":"shop"},"annotations":{` + annotations + `}},"spec":{"containers":[{"image":"registry.example.com/web:1"}]}}`
	}
	const denied = `: admission webhook "validate.kubewasm.dev" denied the request: `
	const failed = `Error from server (InternalError): Internal error occurred: failed calling webhook "validate.kubewasm.dev": failed to call webhook: `
	const team, image = "metadata.labels[team]: Required value: every Pod must have it", `spec.containers[0].image: Invalid value: "nginx": must come from registry.example.com/`
	loading, err := webhook.New(webhook.Config{Engine: one, Ready: func() error { return errors.New("policies are being loaded") }})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		handler http.Handler
		object  string
		want    string
	}{
		{"field errors", &admission.Handler{Validator: one}, `{"spec":{"containers":[{"image":"nginx"}]}}`, "Error from server" + denied + "required-labels: " + team + "; " + image},
		{"a denial", &admission.Handler{Validator: both}, script(`"deny":"no"`), "Error from server (Forbidden)" + denied + "scripted: no"},
		{"a denial as invalid", &admission.Handler{Validator: both}, script(`"deny":"no","reason":"Invalid"`), "Error from server" + denied + "scripted: no"},
		{"a denial by two", &admission.Handler{Validator: both}, `{"metadata":{"annotations":{"deny":"no"}}}`, "Error from server (Forbidden)" + denied + "scripted: no; required-labels: " + team},
		{"a plugin that cannot decide", &admission.Handler{Validator: both}, script(`"error":"no data"`), "Error from server (InternalError)" + denied + `plugin "scripted": could not decide: no data`},
		{"a review that is too long", &admission.Handler{Validator: one, MaxBodyBytes: 1000}, `"` + strings.Repeat("x", 1000) + `"`,
			failed + "the review of Pod shop/web (CREATE) is too long: body has 1304 bytes, more than 1000; make the object smaller, or raise the webhook's limits for reviews"},
		{"policies that are not there yet", loading.Handler(), `{}`, failed + "policies are being loaded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := printed(t, told(t, test.handler, reviewOf(test.object))); got != test.want {
				t.Errorf("kubectl prints\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	t.Run("and programs have the fields", func(t *testing.T) {
		status := told(t, &admission.Handler{Validator: one}, reviewOf(`{}`))
		want := metav1.StatusCause{Type: metav1.CauseTypeFieldValueRequired, Field: "metadata.labels[team]", Message: "Required value: every Pod must have it (policy required-labels)"}
		if err := (&apierrors.StatusError{ErrStatus: *status}); !apierrors.IsInvalid(err) || len(status.Details.Causes) != 1 || status.Details.Causes[0] != want {
			t.Errorf("status is %+v", status)
		}
	})
}

// The example's README.md quotes what kubectl prints.
func TestREADMEQuotesKubectl(t *testing.T) {
	file, err := manage.ParseFile([]byte(shippedPolicies(t)))
	if err != nil || file.Plugins[0].Name != "required-labels" {
		t.Fatalf("%+v, %v", file, err)
	}
	e := engineOf(t, map[string]string{"required-labels": string(file.Plugins[0].GuestConfig)}, "required-labels")
	got := printed(t, told(t, &admission.Handler{Validator: e}, reviewOf(`{"metadata":{"labels":{"run":"web"}},"spec":{"containers":[{"name":"web","image":"nginx"}]}}`)))
	readme, err := os.ReadFile(commands + "kubewasm-webhook/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "$ kubectl run web --image=nginx\n" + got + "\n"; !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not say\n%s", want)
	}
}
