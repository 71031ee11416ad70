package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

const objects = `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: office, namespace: default}
spec:
  selector: {matchLabels: {app: office}}
  template: {metadata: {labels: {app: office}}, spec: {containers: [{name: c, image: c}]}}
---
apiVersion: autoscaling.kubewasm.dev/v1alpha1
kind: ScalePolicy
metadata: {name: office, namespace: default}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: StatefulSet, name: office}
  maxReplicas: 10
  guest: {file: schedule.wasm, config: {entries: [{from: "* * * * *", replicas: 7}]}}
`

// TestProgram runs the program against an API server with all manifests, with the rights of
// its ServiceAccount, until it is the leader and has scaled a workload by the real time.
func TestProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs a control plane")
	}
	c := cluster.Start(t, nil)
	if _, err := envtest.InstallCRDs(c.Config, envtest.CRDInstallOptions{Paths: []string{"manifests/autoscaling.kubewasm.dev_scalepolicies.yaml"}}); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(c.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	apply(t, admin, string(read(t, "manifests/rbac.yaml")))
	apply(t, admin, string(read(t, "manifests/deployment.yaml")))
	apply(t, admin, objects)

	modules := t.TempDir()
	file, err := guestbuild.Build(t.Context(), "schedule")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(modules, "schedule.wasm"), read(t, file), 0o644); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	admins := string(read(t, c.Kubeconfig))
	text := strings.Replace(admins, "  user:\n", `  user:
    as: system:serviceaccount:scalepolicy-system:scalepolicy-controller
    as-groups: ["system:serviceaccounts", "system:authenticated"]
`, 1)
	if text == admins {
		t.Fatalf("no user in the kubeconfig:\n%s", admins)
	}
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", kubeconfig)
	o := options{
		modules: modules, cacheDir: filepath.Join(t.TempDir(), "compiled"), workers: 2,
		metricsAddress: cluster.FreeAddress(t), probeAddress: cluster.FreeAddress(t),
		leaderElection: true, leaseNamespace: "scalepolicy-system",
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, slog.New(slog.DiscardHandler)) }()

	workload := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "StatefulSet"}}
	var last error
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the program ended: %w", err)
		default:
		}
		if last = admin.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "office"}, workload); last != nil {
			return false, nil
		}
		replicas, _, _ := unstructured.NestedInt64(workload.Object, "spec", "replicas")
		last = fmt.Errorf("%d replicas", replicas)
		return replicas == 7, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
	metrics := get(t, "http://"+o.metricsAddress+"/metrics")
	for _, want := range []string{
		`scalepolicy_scales_total{result="ok"} 1`, `scalepolicy_decisions_total{result="ok"}`,
		`kubewasm_calls_total{function="kubewasm.examples.scaler.v1.Scaler/Replicas",plugin="default: `, `workqueue_depth{controller="scalepolicy"`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics do not have %s", want)
		}
	}
	if got := get(t, "http://"+o.probeAddress+"/readyz"); got != "ok" {
		t.Errorf("/readyz answers %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the program ended: %v", err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// apply creates the objects of manifests.
func apply(t *testing.T, admin client.Client, manifests string) {
	t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
