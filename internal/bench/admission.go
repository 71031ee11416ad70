package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchAdmission measures the way from the bytes of an AdmissionReview to the
// verdict, for a policy on labels and images that allows the Pod.
func benchAdmission(b *bench) error {
	file, err := guestbuild.Build(b.ctx, source("../../examples/admission/required-labels"))
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	plugin, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{
		Name: "required-labels", Module: host.ModuleConfig{File: file},
		GuestConfig: []byte(`{"labels": ["app", "team"], "registries": ["registry.example.com/"]}`),
	}})
	if err != nil {
		return err
	}
	engine := admission.NewEngine(plugin)
	body, err := review(pod())
	if err != nil {
		return err
	}
	var failed error
	check := func(allowed bool, err error) {
		if err == nil && !allowed {
			err = fmt.Errorf("the policy denied the Pod")
		}
		if err != nil {
			failed = err
		}
	}
	what := fmt.Sprintf("admission, %.1f KB of bytes to verdict, Go guest", float64(len(body))/1e3)
	b.compare(what, target{time: 119 * time.Microsecond, ratio: 1}, func(n int) {
		for range n {
			request, err := admission.DecodeReview(body)
			if err != nil {
				failed = err
				return
			}
			check(engine.Validate(b.ctx, request).Allowed, nil)
		}
	}, "native handler on typed objects", func(n int) {
		for range n {
			check(nativeValidate(body))
		}
	})
	return failed
}

// review is the body that the API server sends when pod is created.
func review(pod *corev1.Pod) ([]byte, error) {
	object, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	pods := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	no := false
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create, DryRun: &no,
			Kind: kind, RequestKind: &kind, Resource: pods, RequestResource: &pods,
			Namespace: pod.Namespace, Name: pod.Name, Object: runtime.RawExtension{Raw: object},
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}`)},
		},
	})
}

// nativeValidate does what the guest does, the usual way.
func nativeValidate(body []byte) (bool, error) {
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &r); err != nil {
		return false, err
	}
	var p corev1.Pod
	if err := json.Unmarshal(r.Request.Object.Raw, &p); err != nil {
		return false, err
	}
	for _, key := range []string{"app", "team"} {
		if _, ok := p.Labels[key]; !ok {
			return false, nil
		}
	}
	for _, c := range p.Spec.Containers {
		if !strings.HasPrefix(c.Image, "registry.example.com/") {
			return false, nil
		}
	}
	return true, nil
}
