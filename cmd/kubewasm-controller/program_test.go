package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// TestProgram runs two of the program with the flags and the rights of the manifests. One works, the
// other takes over when that ends, and the hook of the chart ends all.
func TestProgram(t *testing.T) {
	w := newWorld(t)
	text, err := os.ReadFile("../../charts/manifests/controller/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	conditions := w.Dir + "/match-conditions.yaml"
	text = bytes.ReplaceAll(text, []byte("system:serviceaccount:kubewasm-webhook:"), []byte("system:serviceaccount:"+namespace+":"))
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(strings.Replace(o.GetNamespace(), "kubewasm-webhook", namespace, 1))
		switch kind := o.GetKind(); {
		case !strings.HasPrefix(o.GetName(), "kubewasm-webhook-controller"):
		case strings.HasPrefix(kind, "ValidatingAdmissionPolicy"):
			w.create(t, o)
		case strings.HasSuffix(kind, "Binding"):
			subjects, _, err := unstructured.NestedSlice(o.Object, "subjects")
			if err != nil {
				t.Fatal(err)
			}
			subjects[0].(map[string]any)["namespace"] = namespace
			if err := unstructured.SetNestedSlice(o.Object, subjects, "subjects"); err != nil {
				t.Fatal(err)
			}
			w.create(t, o)
		case kind == "ServiceAccount", strings.HasSuffix(kind, "Role"):
			w.create(t, o)
		case kind == "ConfigMap":
			data, _, err := unstructured.NestedString(o.Object, "data", "match-conditions.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(conditions, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		case kind == "Deployment":
			d := &appsv1.Deployment{}
			if err := yaml.Unmarshal(document, d); err != nil {
				t.Fatal(err)
			}
			flags = d.Spec.Template.Spec.Containers[0].Args
		}
	}
	admins, err := os.ReadFile(w.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	as := strings.Replace(string(admins), "  user:\n", `  user:
    as: system:serviceaccount:`+namespace+`:kubewasm-webhook-controller
    as-groups: ["system:serviceaccounts", "system:authenticated"]
`, 1)
	if as == string(admins) {
		t.Fatalf("no user in the kubeconfig:\n%s", admins)
	}
	kubeconfig := w.Dir + "/controller"
	if err := os.WriteFile(kubeconfig, []byte(as), 0o600); err != nil {
		t.Fatal(err)
	}
	// The last of several flags counts.
	flags = append(flags, "-kubeconfig="+kubeconfig, "-namespace="+namespace, "-ca-file="+w.caFile, "-match-conditions="+conditions)
	start := func(more ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := self.Command(t, []string{argsVariable + "=" + strings.Join(append(flags[:len(flags):len(flags)], more...), "\n")})
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, &out
	}
	end := func(cmd *exec.Cmd, out *bytes.Buffer) {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the program ended: %v", err)
		}
		for line := range strings.Lines(out.String()) {
			if strings.Contains(line, "forbidden") || strings.Contains(line, `"level":"ERROR"`) && !strings.Contains(line, "leader election lost") {
				t.Errorf("it wrote %s", line)
			}
		}
	}
	holder := func() string {
		l := &coordinationv1.Lease{}
		if err := w.Cluster.Client.CoordinationV1().RESTClient().Get().Namespace(namespace).Resource("leases").Name(lease).Do(t.Context()).Into(l); err != nil || l.Spec.HolderIdentity == nil {
			return ""
		}
		return *l.Spec.HolderIdentity
	}
	metrics, probes := cluster.FreeAddress(t), cluster.FreeAddress(t)
	one, oneOut := start("-metrics-addr="+metrics, "-probe-addr="+probes)
	eventually(t, "leader", func() error {
		if holder() == "" {
			return fmt.Errorf("nobody leads")
		}
		return nil
	})
	first := holder()
	two, twoOut := start("-metrics-addr=0", "-probe-addr=0")
	pod := w.pod(t, "webhook", "webhook-0", "n")
	zone := policy("zone", "")
	w.create(t, zone)
	w.report(t, pod, state(zone, "Serving", ""))
	w.status(t, zone, "1/1", "Ready=True/Serving", "Sent=True/Sent")
	w.sent(t, "/validate/zone")
	entries, _ := w.entries(t)
	if n := len(entries[0].MatchConditions); n != 2 {
		t.Errorf("the entry has %d matchConditions", n)
	}
	for url, want := range map[string]string{
		"http://" + probes + "/healthz": "ok", "http://" + probes + "/readyz": "ok",
		"http://" + metrics + "/metrics": `kubewasm_build_info{`,
	} {
		if got := get(t, url); !strings.Contains(got, want) {
			t.Errorf("%s answers %.200q", url, got)
		}
	}
	end(one, oneOut)
	eventually(t, "the second leads", func() error {
		if h := holder(); h == "" || h == first {
			return fmt.Errorf("%q leads", h)
		}
		return nil
	})
	// The API server sends what matches, and nothing answers there.
	create := func(in, name string) error {
		return w.admin.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: in, Name: name}})
	}
	if err := create("default", "a"); err == nil || !strings.Contains(err.Error(), "zone.clusteradmissionpolicies.kubewasm.dev") {
		t.Errorf("the policy is not asked: %v", err)
	}
	for _, exempt := range []string{namespace, "kube-system"} {
		if err := create(exempt, "a"); err != nil {
			t.Errorf("the policy is asked about %s: %v", exempt, err)
		}
	}
	w.change(t, zone, func() { zone.Spec = spec(`{"mode":"Monitor"}`) })
	w.report(t, pod, state(zone, "Serving", ""))
	w.status(t, zone, "1/1", "Ready=True/Serving", "Sent=True/Sent")
	eventually(t, "a policy that monitors keeps nothing out", func() error {
		err := create("default", "b")
		return err
	})
	end(two, twoOut)
	uninstalling, out := start("-uninstall", "-uninstall-deployment=kubewasm-webhook-controller")
	if err := uninstalling.Wait(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := w.paths(t.Context()); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the configurations are there: %v", err)
	}
	w.delete(t, zone)
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
