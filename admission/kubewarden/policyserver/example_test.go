package policyserver_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/kubewasm/kubewasm/admission/kubewarden/policyserver"
	"github.com/kubewasm/kubewasm/host"
)

// The server answers for a policy that cannot be loaded, too.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	server, err := policyserver.New(policyserver.Config{
		Runtime: rt,
		Source:  func(module string) (host.Source, error) { return host.File(strings.TrimPrefix(module, "file://")), nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close(ctx)
	file, err := policyserver.ParseFile([]byte(`
clusterwide-labels:
  module: file://missing.wasm
  settings: {mandatory_labels: [owner]}
`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(server.Apply(ctx, file))

	r := httptest.NewRequest(http.MethodPost, "/validate/clusterwide-labels?timeout=10s", strings.NewReader(
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE"}}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, r)
	fmt.Println(w.Code, strings.Contains(w.Body.String(), `"allowed":false`))
	// Output:
	// policy "clusterwide-labels": fetch module: stat missing.wasm: no such file or directory
	// 200 true
}
