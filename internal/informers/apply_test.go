package informers_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/internal/informers"
)

// TestApply holds what an API server is asked for: an apply without force, of an object that exists.
func TestApply(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), " ", string(b))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(b)
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}
	for name, test := range map[string]struct {
		annotations map[string]string
		status      json.RawMessage
		want        string
	}{
		"annotations":    {map[string]string{"a": "b"}, nil, `PATCH /api/v1/namespaces/shop/pods/web?fieldManager=kubewasm-zone&force=false application/apply-patch+yaml {"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"a":"b"},"name":"web","namespace":"shop","uid":"1"}}`},
		"no annotations": {map[string]string{}, nil, `PATCH /api/v1/namespaces/shop/pods/web?fieldManager=kubewasm-zone&force=false application/apply-patch+yaml {"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"1"}}`},
		"the status":     {nil, json.RawMessage(`{"phase": "Running"}`), `PATCH /api/v1/namespaces/shop/pods/web/status?fieldManager=kubewasm-zone&force=false application/apply-patch+yaml {"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"1"},"status":{"phase":"Running"}}`},
	} {
		if err := informers.Apply(t.Context(), config, "kubewasm-zone", "Pod", pod, pods, test.annotations, test.status); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want+"\n", got+"\n"); diff != "" && test.want+"\n" != got {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	got = ""
	if err := informers.Apply(t.Context(), config, "kubewasm-zone", "Pod", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}, pods, nil, json.RawMessage(`{}`)); err == nil || got != "" {
		t.Errorf("without a UID: %v, %s", err, got)
	}
}
