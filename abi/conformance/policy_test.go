package conformance_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	toolchains "github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// pick returns one of the values.
func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// randomTemplate returns the template of a Pod that keeps some of the rules.
func randomTemplate(r *rand.Rand) corev1.PodTemplateSpec {
	var t corev1.PodTemplateSpec
	for _, key := range []string{"app", "team", "owner", "example.com/tier"} {
		if r.IntN(3) == 0 {
			continue
		}
		if t.Labels == nil {
			t.Labels = map[string]string{}
		}
		t.Labels[key] = pick(r, "", "a", "web", "ä\u2028<&>")
	}
	image := func() string {
		return pick(r, "registry.example.com/", "mirror.example.com/", "", "registry.example.org/", "\"quoted\"\n") + pick(r, "web", "böse", "") + pick(r, "", ":1.2", ":latest", ":latest@sha256:0")
	}
	container := func() corev1.Container {
		c := corev1.Container{Name: pick(r, "web", "agent", ""), Image: image()}
		for range r.IntN(3) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "image", Value: `{"image": "nginx"}`})
		}
		return c
	}
	for range r.IntN(3) {
		t.Spec.InitContainers = append(t.Spec.InitContainers, container())
	}
	for range r.IntN(4) {
		t.Spec.Containers = append(t.Spec.Containers, container())
	}
	for range r.IntN(2) {
		t.Spec.EphemeralContainers = append(t.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon(container()), TargetContainerName: "image",
		})
	}
	return t
}

// randomObject returns an object of a kind around a template.
func randomObject(kind string, t corev1.PodTemplateSpec) (metav1.GroupVersionKind, any) {
	m := metav1.ObjectMeta{Name: "web", Labels: map[string]string{"team": "not of the Pod"}}
	switch kind {
	case "Deployment":
		return metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}, &appsv1.Deployment{ObjectMeta: m, Spec: appsv1.DeploymentSpec{Template: t}}
	case "DaemonSet":
		return metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}, &appsv1.DaemonSet{ObjectMeta: m, Spec: appsv1.DaemonSetSpec{Template: t}}
	case "CronJob":
		job := batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: t}}
		return metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: kind}, &batchv1.CronJob{ObjectMeta: m, Spec: batchv1.CronJobSpec{JobTemplate: job}}
	case "PodTemplate":
		return metav1.GroupVersionKind{Version: "v1", Kind: kind}, &corev1.PodTemplate{ObjectMeta: m, Template: t}
	case "Service":
		return metav1.GroupVersionKind{Version: "v1", Kind: kind}, &corev1.Service{ObjectMeta: m}
	}
	return metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
}

// TestPoliciesAgree holds that the example required-labels answers in each language as in Go, on
// 5,000 random objects.
func TestPoliciesAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compiles guests")
	}
	const policy = "../../examples/admission/required-labels"
	if err := guestbuild.TrackSources(policy); err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	load := func(t *testing.T, dir string) *admission.Engine {
		p, err := admission.Load(t.Context(), rt, admission.PluginConfig{Config: host.Config{
			Name: "policy", Module: host.ModuleConfig{File: toolchains.Build(t, dir)}, GuestConfig: []byte(`{"labels": ["team", "example.com/tier"], "registries": ["registry.example.com/", "mirror.example.com/"]}`),
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close(context.Background()) })
		return admission.NewEngine(p)
	}
	inGo := load(t, policy)
	for _, l := range guestbuild.Languages {
		if _, err := os.Stat(filepath.Join(policy, l.Name)); err != nil {
			continue
		}
		t.Run(l.Title, func(t *testing.T) {
			other, r := load(t, filepath.Join(policy, l.Name)), rand.New(rand.NewPCG(7, 11))
			denied := 0
			for range 5000 {
				kind := pick(r, "Pod", "Pod", "Deployment", "DaemonSet", "CronJob", "PodTemplate", "Service")
				request := &admissionv1.AdmissionRequest{UID: "1", Name: "web", Operation: admissionv1.Create}
				gvk, object := randomObject(kind, randomTemplate(r))
				request.Kind = gvk
				request.Object.Raw, err = json.Marshal(object)
				if err == nil && r.IntN(2) == 0 {
					_, old := randomObject(kind, randomTemplate(r))
					request.Operation = admissionv1.Update
					request.OldObject.Raw, err = json.Marshal(old)
				}
				if err != nil {
					t.Fatal(err)
				}
				want, got := inGo.Validate(t.Context(), request), other.Validate(t.Context(), request)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%s of %s: answer (-Go +%s):\n%s", request.Operation, request.Object.Raw, l.Title, diff)
				}
				if !want.Allowed {
					denied++
				}
			}
			if denied < 500 || denied > 4900 {
				t.Errorf("%d of 5000 objects are denied", denied)
			}
		})
	}
}
