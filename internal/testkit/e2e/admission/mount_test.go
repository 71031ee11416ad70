package admission_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// TestControllerRuntime holds that the webhook server of an operator can serve
// an engine.
func TestControllerRuntime(t *testing.T) {
	log.SetLogger(logr.Discard())
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	plugin, err := admission.Load(t.Context(), rt, admission.PluginConfig{Config: host.Config{Name: "denier", Module: host.ModuleConfig{Bytes: denier("nope")}}})
	if err != nil {
		t.Fatal(err)
	}
	dir, ca := t.TempDir(), cluster.NewAuthority(t)
	ca.Issue(t, dir)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()

	server := webhook.NewServer(webhook.Options{Host: "127.0.0.1", Port: port, CertDir: dir})
	server.Register("/validate", &admission.Handler{Validator: admission.NewEngine(plugin)})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	client := ca.HTTP()
	defer client.CloseIdleConnections()
	var resp *http.Response
	eventually(t, "an answer", func() bool {
		const review = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE"}}`
		resp, err = client.Post("https://"+listener.Addr().String()+"/validate?timeout=10s", "application/json", strings.NewReader(review))
		return err == nil
	})
	defer resp.Body.Close()
	var answer admissionv1.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	if r := answer.Response; r == nil || r.UID != "u" || r.Allowed || r.Result.Message != "denier: nope" {
		t.Errorf("answer is %+v", r)
	}
}
