//go:build !wasip1

package guesttest

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	adapter "github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/guest/admission"
	guestlookup "github.com/kubewasm/kubewasm/guest/internal/lookup"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
	"github.com/kubewasm/kubewasm/internal/lookup"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// Admission is an admission plugin under test, see [Each]. It may look up everything that
// there is.
type Admission struct {
	native *native
	module *module
	loaded *adapter.Engine
	// cluster has the objects of In, none if it is nil, and config is the configuration.
	cluster *manifest.Cluster
	config  []byte
}

// In returns the plugin in a cluster that has the objects of manifests, one or more
// documents of YAML or JSON with apiVersion, kind and name each: they are what it gets and
// lists. Of the kinds of Kubernetes all are known, and custom resources that are among the
// objects. Without In there are no objects.
func (a *Admission) In(t testing.TB, manifests string) *Admission {
	t.Helper()
	cluster, err := clusterOf(manifests)
	if err != nil {
		t.Fatalf("read objects: %v", err)
	}
	return &Admission{native: a.native, module: a.module, cluster: cluster, config: a.config}
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
func (a *Admission) Configure(t testing.TB, configuration string) *Admission {
	t.Helper()
	p, err := a.TryConfigure(t, configuration)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryConfigure is Configure for a plugin that may refuse its configuration: the
// error is what it says.
func (a *Admission) TryConfigure(t testing.TB, configuration string) (*Admission, error) {
	t.Helper()
	return a.load(t, json(t, configuration), true)
}

// load returns the plugin with a configuration. A native one that a test made is as it is
// unless it gets one.
func (a *Admission) load(t testing.TB, config []byte, configure bool) (*Admission, error) {
	t.Helper()
	fresh := &Admission{native: a.native, module: a.module, cluster: a.cluster, config: config}
	var err error
	if fresh.cluster == nil {
		if fresh.cluster, err = clusterOf(""); err != nil {
			t.Fatal(err)
		}
	}
	if a.native != nil {
		if configure {
			fresh.native, err = a.native.configured(config)
		}
		return fresh, err
	}
	p, err := adapter.Load(context.Background(), a.module.rt, adapter.PluginConfig{
		Module: a.module.config(config), AllowedToMutate: true, Cluster: fresh.cluster, Objects: fresh.cluster.Grants(),
	})
	if err != nil {
		return nil, refusal(t, err)
	}
	t.Cleanup(func() { p.Close(context.Background()) })
	fresh.loaded = adapter.NewEngine(p)
	return fresh, nil
}

// objects answers a native plugin that looks objects up.
type objects struct{ *manifest.Cluster }

func (o objects) of(resource string) []*adapter.Object {
	list, err := o.Of(resource)
	if err != nil {
		panic(err)
	}
	return list
}

func (o objects) GetObject(question string) []byte {
	parts := strings.Split(question, "\x00")
	list := o.of(parts[0])
	if i, ok := lookup.Find(list, parts[1], parts[2]); ok {
		return list[i].JSON
	}
	return nil
}

func (o objects) ListObjects(question string) []byte {
	q, err := lookup.ParseList(question, free)
	if err != nil {
		panic(err)
	}
	encode := func(o *adapter.Object) ([]byte, error) { return o.JSON, nil }
	return must(lookup.Append(nil, q, o.of(q.Resource), encode, free, math.MaxInt32))
}

// Verdict is what becomes of a request.
type Verdict struct {
	Allowed bool
	// Failed says that the plugin could not decide; Message says why.
	Failed bool
	// Code and Reason are those of a denial, with what the host fills in: 403
	// Forbidden, or 422 Invalid for field errors.
	Code   int
	Reason string
	// Message is the plugin's own, without its field errors.
	Message string
	// FieldErrors are as users see them: "spec.replicas: Required value: …".
	FieldErrors      []string
	Warnings         []string
	AuditAnnotations map[string]string
	// Object is the object as Mutate left it: JSON with the members in the order of
	// their names and no spaces; empty if it changed nothing.
	Object string
}

// Create asks about the creation of the object in manifest, YAML or JSON with
// apiVersion and kind.
func (a *Admission) Create(t testing.TB, manifest string) Verdict {
	t.Helper()
	return a.validate(t, reviewOf(t, manifest))
}

// Review asks about an AdmissionReview, as the API server sends it.
func (a *Admission) Review(t testing.TB, review string) Verdict {
	t.Helper()
	return a.validate(t, []byte(review))
}

// Mutate lets the plugin change the object in manifest, YAML or JSON with apiVersion
// and kind, that is to be created.
func (a *Admission) Mutate(t testing.TB, manifest string) Verdict {
	t.Helper()
	a, native, hosted := a.request(t, reviewOf(t, manifest))
	if a.native != nil {
		defer guestlookup.Use(objects{a.cluster})()
		patch := admission.NewPatch(native.Object())
		response := as[admission.Mutator](t, a.native.plugin, "Mutate").Mutate(native, patch)
		if err := patch.Err(); err != nil && response.Allowed() {
			response = admission.Errored(err)
		}
		v := verdictOf(response)
		if v.Allowed {
			v.Object = changed(t, native.Object(), patch.Object())
		}
		return v
	}
	response := a.loaded.Mutate(context.Background(), hosted)
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

// changed returns the object after a mutation, empty if it is as before.
func changed(t testing.TB, before, after []byte) string {
	t.Helper()
	canonical := func(object []byte) string {
		var tree any
		numbers := stdjson.NewDecoder(bytes.NewReader(object))
		numbers.UseNumber()
		if err := numbers.Decode(&tree); err != nil {
			t.Fatalf("read the mutated object: %v", err)
		}
		text, err := stdjson.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if object := canonical(after); object != canonical(before) {
		return object
	}
	return ""
}

func (a *Admission) validate(t testing.TB, review []byte) Verdict {
	t.Helper()
	a, native, hosted := a.request(t, review)
	if a.native != nil {
		defer guestlookup.Use(objects{a.cluster})()
		return verdictOf(as[admission.Validator](t, a.native.plugin, "Validate").Validate(native))
	}
	return a.hosted(a.loaded.Validate(context.Background(), hosted))
}

// request reads a review for the plugin, which it configures if nobody did: for
// the native one or for the one in a host.
func (a *Admission) request(t testing.TB, review []byte) (*Admission, *admission.Request, *admissionv1.AdmissionRequest) {
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

// verdictOf returns what the API server makes of a plugin's response.
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
	}
	if v.Code = r.Code(); v.Code == 0 {
		v.Code = http.StatusForbidden
		if len(v.FieldErrors) != 0 {
			v.Code = http.StatusUnprocessableEntity
		}
	}
	if v.Reason = string(r.Reason()); v.Reason == "" {
		v.Reason = string(apierrors.NewGenericServerResponse(v.Code, "", schema.GroupResource{}, "", "", 0, false).ErrStatus.Reason)
	}
	return v
}

// hosted takes the host's answer apart.
func (a *Admission) hosted(r *admissionv1.AdmissionResponse) Verdict {
	v := Verdict{Allowed: r.Allowed, Warnings: r.Warnings}
	for key, value := range r.AuditAnnotations {
		if v.AuditAnnotations == nil {
			v.AuditAnnotations = map[string]string{}
		}
		v.AuditAnnotations[strings.TrimPrefix(key, a.module.name+".")] = value
	}
	if r.Allowed {
		return v
	}
	failure := `plugin "` + a.module.name + `": `
	if message, failed := strings.CutPrefix(r.Result.Message, failure); failed && r.Result.Code == http.StatusInternalServerError {
		v.Failed, v.Message = true, strings.TrimPrefix(message, "could not decide: ")
		return v
	}
	v.Code, v.Reason, v.Message = int(r.Result.Code), string(r.Result.Reason), r.Result.Message
	if r.Result.Details != nil {
		for _, cause := range r.Result.Details.Causes {
			text := cause.Message
			if cause.Field != "" {
				text = cause.Field + ": " + text
			}
			v.FieldErrors = append(v.FieldErrors, text)
		}
	}
	switch all := strings.Join(v.FieldErrors, "; "); {
	case v.Message == all, v.Message == "no reason given":
		v.Message = ""
	case all != "":
		v.Message = strings.TrimSuffix(v.Message, "; "+all)
	}
	return v
}
