package admissiontest

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	adapter "github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/harness"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/nativehost"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Each runs test twice, in subtests: "native" on plugin itself, and "wasm" on the guest compiled
// from the package of the test, in the host that components embed. Both get the same input and must
// give the same answers, so a test is written once.
//
// The directives of the package apply to the guest: a plugin that reads an undeclared field passes
// natively and fails as wasm. The guest is compiled in the directory of the test, which go test
// sets to that of the package. It must register a plugin like the one given. With -short only the
// native test runs.
func Each(t *testing.T, plugin any, test func(t *testing.T, p *Plugin)) {
	t.Helper()
	harness.Each(t, plugin, func(_ testing.TB, n *harness.Native, m *harness.Module) *Plugin {
		return &Plugin{native: n, module: m, onlyConverts: onlyConverts(plugin)}
	}, test)
}

// Plugin is an admission plugin under test, see [Each]. It may look up all objects.
type Plugin struct {
	native *harness.Native
	module *harness.Module
	// loaded is the guest in a host, and engine calls it.
	loaded *adapter.Plugin
	engine *adapter.Engine
	// cluster holds the objects of In; nil has none, and config is the configuration.
	cluster *manifest.Cluster
	config  []byte
	// onlyConverts reports whether the plugin neither validates nor mutates.
	onlyConverts bool
	dialects     []*dialect.Dialect
}

// Load returns the plugin in a module, which may be written in any language. path is a file, or a
// directory that kubewasm build compiles. dialects are the other ABIs that the module may have.
func Load(t testing.TB, path string, dialects ...*dialect.Dialect) *Plugin {
	t.Helper()
	return &Plugin{module: harness.Load(t, path), dialects: dialects}
}

// In returns the plugin in a cluster that has the objects of manifests: one or more documents of
// YAML or JSON, each with apiVersion, kind and name. The plugin gets and lists these objects. All
// kinds of Kubernetes are known, and so are custom resources among the objects. Without In there
// are no objects.
func (a *Plugin) In(t testing.TB, manifests string) *Plugin {
	t.Helper()
	cluster, err := clusterOf(manifests)
	if err != nil {
		t.Fatalf("read objects: %v", err)
	}
	return &Plugin{native: a.native, module: a.module, cluster: cluster, config: a.config, onlyConverts: a.onlyConverts, dialects: a.dialects}
}

func clusterOf(manifests string) (*manifest.Cluster, error) {
	objects := &manifest.Objects{}
	if manifests != "" {
		var err error
		if objects, err = manifest.Read([]byte(manifests)); err != nil {
			return nil, err
		}
	}
	return manifest.NewCluster(objects)
}

// Configure returns the plugin with a configuration, YAML or JSON. The test fails
// if the plugin refuses it.
func (a *Plugin) Configure(t testing.TB, configuration string) *Plugin {
	t.Helper()
	p, err := a.TryConfigure(t, configuration)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryConfigure is Configure for a plugin that may refuse its configuration. It returns the plugin's
// error.
func (a *Plugin) TryConfigure(t testing.TB, configuration string) (*Plugin, error) {
	t.Helper()
	return a.load(t, harness.JSON(t, configuration), true)
}

// load returns the plugin with a configuration. Without configure, a native plugin is unchanged.
func (a *Plugin) load(t testing.TB, config []byte, configure bool) (*Plugin, error) {
	t.Helper()
	fresh := &Plugin{native: a.native, module: a.module, cluster: a.cluster, config: config, onlyConverts: a.onlyConverts, dialects: a.dialects}
	var err error
	if fresh.cluster == nil {
		if fresh.cluster, err = clusterOf(""); err != nil {
			t.Fatal(err)
		}
	}
	if a.native != nil {
		if configure {
			fresh.native, err = a.native.Configured(config)
		}
		return fresh, err
	}
	cfg := adapter.PluginConfig{
		Config: a.module.Config(config), AllowedToMutate: true, Cluster: fresh.cluster, Objects: fresh.cluster.Grants(), Dialects: a.dialects,
	}
	if a.onlyConverts {
		cfg = converts(a.module.Config(config), anyKind)
	}
	p, err := adapter.Load(context.Background(), a.module.Runtime, cfg)
	if err != nil && !a.onlyConverts && !errors.As(err, new(*host.StatusError)) {
		// Before a module is loaded, it is not known whether it only converts.
		if c, other := adapter.Load(context.Background(), a.module.Runtime, converts(a.module.Config(config), anyKind)); other == nil || errors.As(other, new(*host.StatusError)) {
			p, err, fresh.onlyConverts = c, other, true
		}
	}
	if err != nil {
		return nil, harness.Refusal(t, err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	fresh.loaded, fresh.engine = p, adapter.NewEngine(p)
	return fresh, nil
}

// lookups answers look-ups of a native plugin.
func (a *Plugin) lookups() lookup.Native {
	return func(resource, _ string) []*host.Object { return must(a.cluster.Of(resource)) }
}

// Verdict is the result of a request.
type Verdict struct {
	Allowed bool
	// Failed reports whether the plugin could not decide, for the reason in Message.
	Failed bool
	// Code and Reason are the HTTP code and the reason of a denial. The host fills in 403
	// Forbidden, or 422 without a reason for field errors: with the reason Invalid, kubectl would
	// not print the name of the policy.
	Code   int
	Reason string
	// Message is the plugin's own, without its field errors. It is empty if one of them
	// has the same text.
	Message string
	// FieldErrors are in the form that users see: "spec.replicas: Required value: …".
	FieldErrors      []string
	Warnings         []string
	AuditAnnotations map[string]string
	// Object is the object after Mutate: JSON with the members in the order of their names and no
	// spaces; empty if it changed nothing.
	Object string
}

// Create asks Validate about the creation of the object in manifest, YAML or JSON with
// apiVersion and kind. The test fails if the plugin does not validate: [Plugin.Mutate]
// is for one that only mutates.
func (a *Plugin) Create(t testing.TB, manifest string) Verdict {
	t.Helper()
	return a.validate(t, reviewOf(t, manifest))
}

// Review asks Validate about an AdmissionReview, as the API server sends it. The test
// fails if the plugin does not validate.
func (a *Plugin) Review(t testing.TB, review string) Verdict {
	t.Helper()
	return a.validate(t, []byte(review))
}

// Mutate asks the plugin to mutate the creation of the object in manifest, YAML or JSON with
// apiVersion and kind. The test fails if the plugin does not mutate.
func (a *Plugin) Mutate(t testing.TB, manifest string) Verdict {
	t.Helper()
	return a.mutate(t, reviewOf(t, manifest))
}

// MutateReview is Mutate for the request of an AdmissionReview, as the API server sends it.
func (a *Plugin) MutateReview(t testing.TB, review string) Verdict {
	t.Helper()
	return a.mutate(t, []byte(review))
}

func (a *Plugin) mutate(t testing.TB, review []byte) Verdict {
	t.Helper()
	a, native, hosted := a.request(t, review)
	if a.native != nil {
		defer nativehost.UseLookups(a.lookups())()
		patch := admission.NewPatch(native.Object())
		mutator, ok := a.native.Plugin.(admission.Mutator)
		if !ok {
			t.Fatal(noMutator)
		}
		response := mutator.Mutate(native, patch)
		if err := patch.Err(); err != nil && response.Allowed() {
			response = admission.Errored(err)
		}
		v := verdictOf(response)
		if v.Allowed {
			v.Object = changed(t, native.Object(), patch.Object())
		}
		return v
	}
	if !a.loaded.Mutates() {
		t.Fatal(noMutator)
	}
	response := a.engine.Mutate(context.Background(), hosted)
	v := a.hosted(response)
	if len(response.Patch) != 0 {
		object, err := jsonpatch.Apply(hosted.Object.Raw, response.Patch)
		if err != nil {
			t.Fatal(err)
		}
		v.Object = changed(t, hosted.Object.Raw, object)
	}
	return v
}

// changed returns the object after a mutation, empty if nothing changed.
func changed(t testing.TB, before, after []byte) string {
	t.Helper()
	if object := canonical(t, after); object != canonical(t, before) {
		return object
	}
	return ""
}

// canonical returns JSON with the members in the order of their names and no spaces.
func canonical(t testing.TB, object []byte) string {
	t.Helper()
	var tree any
	numbers := stdjson.NewDecoder(bytes.NewReader(object))
	numbers.UseNumber()
	if err := numbers.Decode(&tree); err != nil {
		t.Fatalf("read the resulting object: %v", err)
	}
	text, err := stdjson.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (a *Plugin) validate(t testing.TB, review []byte) Verdict {
	t.Helper()
	a, native, hosted := a.request(t, review)
	if a.native != nil {
		defer nativehost.UseLookups(a.lookups())()
		validator, ok := a.native.Plugin.(admission.Validator)
		if !ok {
			t.Fatal(noValidator)
		}
		return verdictOf(validator.Validate(native))
	}
	if !a.loaded.Validates() {
		t.Fatal(noValidator)
	}
	return a.hosted(a.engine.Validate(context.Background(), hosted))
}

// A host does not call a function that a plugin does not implement, and allows the request.
const (
	noValidator = "the plugin only mutates: call Mutate"
	noMutator   = "the plugin only validates: call Create or Review"
)

// request reads a review, for a native plugin or for one in a host. It loads the plugin
// unless the test has configured it.
func (a *Plugin) request(t testing.TB, review []byte) (*Plugin, *admission.Request, *admissionv1.AdmissionRequest) {
	t.Helper()
	if a.cluster == nil || a.native == nil && a.loaded == nil {
		loaded, err := a.load(t, a.config, false)
		if err != nil {
			t.Fatal(err)
		}
		a = loaded
	}
	if a.native != nil {
		request, err := admission.RequestFromReview(review)
		if err != nil {
			t.Fatal(err)
		}
		return a, request, nil
	}
	var r admissionv1.AdmissionReview
	if err := stdjson.Unmarshal(review, &r); err != nil || r.Request == nil {
		t.Fatalf("read AdmissionReview: %v", err)
	}
	return a, nil, r.Request
}

// verdictOf returns the API server's verdict for a plugin's response.
func verdictOf(r *admission.Response) Verdict {
	v := Verdict{
		Allowed: r.Allowed(), Failed: r.Failed(), Message: r.Message(), Warnings: r.Warnings(), AuditAnnotations: r.AuditAnnotations(),
	}
	if v.Allowed || v.Failed {
		if v.Allowed {
			v.Message = ""
		}
		return v
	}
	for _, e := range r.FieldErrors() {
		v.FieldErrors = append(v.FieldErrors, e.Error())
		if e.Detail == v.Message {
			v.Message = ""
		}
	}
	const invalid = string(metav1.StatusReasonInvalid)
	v.Reason = r.Reason()
	if v.Code = r.Code(); v.Code == 0 {
		v.Code = http.StatusForbidden
		if len(v.FieldErrors) != 0 || v.Reason == invalid {
			v.Code = http.StatusUnprocessableEntity
		}
	}
	if v.Reason == "" {
		v.Reason = string(apierrors.NewGenericServerResponse(v.Code, "", schema.GroupResource{}, "", "", 0, false).ErrStatus.Reason)
	}
	if v.Reason == invalid {
		v.Reason = ""
	}
	return v
}

// hosted returns the verdict in the host's response.
func (a *Plugin) hosted(r *admissionv1.AdmissionResponse) Verdict {
	v := Verdict{Allowed: r.Allowed, Warnings: r.Warnings}
	for key, value := range r.AuditAnnotations {
		if v.AuditAnnotations == nil {
			v.AuditAnnotations = map[string]string{}
		}
		v.AuditAnnotations[strings.TrimPrefix(key, a.module.Name+".")] = value
	}
	if r.Allowed {
		return v
	}
	failure := `plugin "` + a.module.Name + `": `
	if message, failed := strings.CutPrefix(r.Result.Message, failure); failed && r.Result.Code == http.StatusInternalServerError {
		v.Failed, v.Message = true, strings.TrimPrefix(message, "could not decide: ")
		return v
	}
	v.Code, v.Reason, v.Message = int(r.Result.Code), string(r.Result.Reason), strings.TrimPrefix(r.Result.Message, a.module.Name+": ")
	if r.Result.Details != nil {
		for _, cause := range r.Result.Details.Causes {
			text := strings.TrimSuffix(cause.Message, " (policy "+a.module.Name+")")
			if cause.Field != "" {
				text = cause.Field + ": " + text
			}
			v.FieldErrors = append(v.FieldErrors, text)
		}
	}
	for _, text := range slices.Backward(v.FieldErrors) {
		if v.Message == text {
			v.Message = ""
		}
		v.Message = strings.TrimSuffix(v.Message, "; "+text)
	}
	if v.Message == "no reason given" {
		v.Message = ""
	}
	return v
}

// Request returns the request that the API server sends to an admission webhook when the
// object in manifest, YAML or JSON with apiVersion and kind, is created. It is for tests
// that call a method of the plugin directly.
func Request(t testing.TB, manifest string) *admission.Request {
	t.Helper()
	request, err := admission.RequestFromReview(reviewOf(t, manifest))
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// reviewOf returns the AdmissionReview of the creation of an object.
func reviewOf(t testing.TB, text string) []byte {
	t.Helper()
	objects, err := manifest.Read([]byte(text))
	if err != nil {
		t.Fatalf("read object: %v", err)
	}
	if len(objects.All) != 1 {
		t.Fatalf("read object: %d objects, want one", len(objects.All))
	}
	review, err := stdjson.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request:  objects.All[0].Admission(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return review
}

func must[T any](b T, err error) T {
	if err != nil {
		panic(err)
	}
	return b
}
