package admission_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// A handler that an API server calls asks a guest.
func Example() {
	ctx := context.Background()
	module, err := guestbuild.Build(ctx, "../examples/admission/required-labels")
	if err != nil {
		panic(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	plugin, err := admission.Load(ctx, rt, admission.PluginConfig{
		Config: host.Config{
			Name:        "required-labels",
			Module:      host.ModuleConfig{File: module},
			GuestConfig: []byte(`{"labels":["owner"]}`),
		},
	})
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(&admission.Handler{Validator: admission.NewEngine(plugin)})
	defer server.Close()

	resp, err := http.Post(server.URL+"/validate?timeout=10s", "application/json", strings.NewReader(`{
		"apiVersion": "admission.k8s.io/v1",
		"kind": "AdmissionReview",
		"request": {
			"uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
			"kind": {"version": "v1", "kind": "Pod"},
			"name": "web",
			"operation": "CREATE",
			"object": {"metadata": {"labels": {"app": "web"}}}
		}
	}`))
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(strings.ReplaceAll(string(body), `,"`, ",\n\""))
	// Output:
	// {"kind":"AdmissionReview",
	// "apiVersion":"admission.k8s.io/v1",
	// "response":{"uid":"705ab4f5-6393-11e8-b7cc-42010a800002",
	// "allowed":false,
	// "status":{"metadata":{},
	// "status":"Failure",
	// "message":"required-labels: metadata.labels[owner]: Required value: every Pod must have it",
	// "details":{"name":"web",
	// "kind":"Pod",
	// "causes":[{"reason":"FieldValueRequired",
	// "message":"Required value: every Pod must have it (policy required-labels)",
	// "field":"metadata.labels[owner]"}]},
	// "code":422}}}
}
