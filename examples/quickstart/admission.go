package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"text/tabwriter"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
)

// policy is the configuration of the admission guest.
const policy = `{"labels": ["app", "team"], "registries": ["registry.example.com/"]}`

// showAdmission sends an AdmissionReview for each Pod to the webhook's handler,
// as the API server does when the Pod is created.
func showAdmission(ctx context.Context, out io.Writer, rt *host.Runtime, g *guests, m *manifests) error {
	start := time.Now()
	plugin, err := admission.Load(ctx, rt, admission.PluginConfig{
		Config: host.Config{Name: "required-labels", Module: host.ModuleConfig{File: g.admission}, GuestConfig: []byte(policy)},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nWEBHOOK, guest required-labels, loaded in %s: validate\n  with %s\n\n", round(time.Since(start)), policy)
	if len(m.pods) == 0 {
		fmt.Fprintln(out, "  No Pods to admit.")
		return nil
	}
	handler := &admission.Handler{Validator: admission.NewEngine(plugin)}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  POD\tVERDICT\tFIRST\tAGAIN\tWHAT THE USER READS")
	for _, pod := range m.pods {
		body, err := review(pod)
		if err != nil {
			return err
		}
		var took [2]time.Duration
		var response *admissionv1.AdmissionResponse
		for i := range took {
			if response, took[i], err = post(ctx, handler, body); err != nil {
				return err
			}
		}
		var read []string
		verdict := "allowed"
		if !response.Allowed {
			verdict = fmt.Sprintf("denied, %d %s", response.Result.Code, http.StatusText(int(response.Result.Code)))
			read = append(read, response.Result.Message)
		}
		for _, warning := range response.Warnings {
			read = append(read, "Warning: "+warning)
		}
		fmt.Fprintf(t, "  %s/%s\t%s\t%s\t%s", pod.Namespace, pod.Name, verdict, round(took[0]), round(took[1]))
		for i, text := range read {
			if i > 0 {
				fmt.Fprint(t, "\n  \t\t\t")
			}
			fmt.Fprint(t, "\t"+text)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// review is the body that the API server sends when pod is created.
func review(pod *corev1.Pod) ([]byte, error) {
	object, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	pods := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID("review-of-" + pod.Namespace + "-" + pod.Name), Operation: admissionv1.Create,
			Kind: kind, RequestKind: &kind, Resource: pods, RequestResource: &pods,
			Namespace: pod.Namespace, Name: pod.Name, Object: runtime.RawExtension{Raw: object},
		},
	})
}

// post hands a review to the handler and returns its response.
func post(ctx context.Context, handler http.Handler, body []byte) (*admissionv1.AdmissionResponse, time.Duration, error) {
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/validate?timeout=10s", bytes.NewReader(body))
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	start := time.Now()
	handler.ServeHTTP(recorder, request)
	took := time.Since(start)
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil || answer.Response == nil {
		return nil, 0, fmt.Errorf("webhook answered %d: %s", recorder.Code, recorder.Body)
	}
	return answer.Response, took, nil
}
