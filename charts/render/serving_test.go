package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// TestTheWebhookServes runs the built webhook with the arguments, the policies and the certificate
// that the chart gives it, and asks it as an API server would, by the CA and the name in its
// configurations. The policy that needs a cluster is left out.
func TestTheWebhookServes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	values, err := readValues("webhook")
	if err != nil {
		t.Fatal(err)
	}
	delete(values, "certificates")
	webhook := values["webhook"].(map[string]any)
	policies := webhook["policies"].([]any)
	webhook["policies"] = append(policies[:2:2], policies[3])
	i := installValues(t, values)
	w := i.workloads()[0]

	dir := t.TempDir()
	text := i.file(t, w, argument(w, "-config"))
	for _, guest := range []string{"required-labels", "resource-defaults", "stellar-node"} {
		file, err := guestbuild.Build(t.Context(), "../../examples/admission/"+guest)
		if err != nil {
			t.Fatal(err)
		}
		text = strings.ReplaceAll(text, "/plugins/"+guest+".wasm", file)
	}
	files := map[string][]byte{"policies/policies.yaml": []byte(text)}
	for _, s := range all[*corev1.Secret](i) {
		if s.Name == "kubewasm-webhook-tls" {
			for key, value := range s.Data {
				files["tls/"+key] = value
			}
		}
	}
	for name, value := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, value, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var args []string
	for _, arg := range w.container().Args {
		args = append(args, strings.Replace(arg, "=/", "="+dir+"/", 1))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	cmd := exec.Command(buildProgram(t, "webhook"), append(args, "-addr="+address, "-drain-delay=1ms")...)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()

	service := i.webhooks()[0].ClientConfig.Service
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(i.webhooks()[0].ClientConfig.CABundle)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: service.Name + "." + service.Namespace + ".svc"},
	}}
	ask := func(method, path, body string) (int, string, error) {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return 0, "", err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		return response.StatusCode, string(answer), err
	}
	var last string
	if err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		code, answer, err := ask(http.MethodGet, w.container().ReadinessProbe.HTTPGet.Path, "")
		last = fmt.Sprintln(code, answer, err)
		return code == http.StatusOK, nil
	}); err != nil {
		t.Fatalf("the webhook is not ready: %s", last)
	}
	const review = `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "operation": "CREATE", "namespace": "shop",
		"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}}`
	for _, webhook := range i.webhooks() {
		code, answer, err := ask(http.MethodPost, *webhook.ClientConfig.Service.Path, review)
		want := "metadata.labels[team]: Required value"
		if webhook.Name == "mutate.kubewasm.dev" {
			want = `"patchType":"JSONPatch"`
		}
		if err != nil || code != http.StatusOK || !strings.Contains(answer, want) {
			t.Errorf("%s answers %d %s, %v, want %s", webhook.Name, code, answer, err, want)
		}
	}
}
