package admission_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
)

// openReports is the module with the CustomResourceDefinitions of reports.
const openReports = "github.com/openreports/reports-api@v0.2.1"

// installReports installs them.
func installReports(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", openReports)
	download.Dir = t.TempDir() // Outside of a module.
	out, err := download.Output()
	if err != nil {
		t.Fatalf("download %s: %v", openReports, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "config/crd/*.yaml"))
	if err != nil || len(files) != 2 {
		t.Fatalf("definitions are %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil {
			data, err = yaml.YAMLToJSON(data)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = c.Client.Discovery().RESTClient().Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Body(data).Do(t.Context()).Error()
		if err != nil {
			t.Fatalf("install %s: %v", file, err)
		}
	}
	eventually(t, "the resources of reports", func() bool {
		list, err := c.Client.Discovery().ServerResourcesForGroupVersion("openreports.io/v1alpha1")
		return err == nil && len(list.APIResources) >= 2
	})
}

// reportsOf returns the reports of all namespaces.
func reportsOf(t *testing.T, c *cluster.Cluster) []audit.Report {
	t.Helper()
	raw, err := c.Client.Discovery().RESTClient().Get().AbsPath("/apis/openreports.io/v1alpha1/reports").Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []audit.Report }
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

const (
	auditedNamespaces = 50
	auditedPods       = 100 // Of each namespace.
)

// TestAudit audits 5,000 Pods by a real API server, and again after some have changed. The
// reports are valid by the schemas of their CustomResourceDefinitions, since they are applied
// with strict validation.
func TestAudit(t *testing.T) {
	f := start(t)
	c := f.Cluster
	installReports(t, c)
	config := rest.CopyConfig(c.Config)
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	// The names of the Pods have their numbers. The first of each namespace is denied.
	parallel(t, auditedNamespaces, func(n int) error {
		name := fmt.Sprintf("team-%02d", n)
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return err
		}
		for i := range auditedPods {
			p := pod(fmt.Sprintf("web-%03d", i))
			if p.Namespace = name; i == 0 {
				p = pod(p.Name, "deny", "no owner")
				p.Namespace = name
			}
			if _, err := client.CoreV1().Pods(name).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	policy, err := admission.Load(t.Context(), rt, admission.PluginConfig{
		Config: host.Config{Name: "scripted", Module: host.ModuleConfig{File: guest(t, admissionDir+"testdata/scripted")}, GuestConfig: []byte("{}")},
		PolicyRules: admission.PolicyRules{Match: admission.Match{Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"*"}, Resources: []string{"pods"}},
		}}}},
		AllowedToMutate: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	engine := admission.NewEngine(policy)
	defer engine.Close(t.Context())
	state := filepath.Join(c.Dir, "audit.state")
	audited := func() *audit.Result {
		t.Helper()
		a, err := audit.New(audit.Config{Engine: engine, Client: c.Config, QPS: 50, Burst: 50, StateFile: state})
		if err != nil {
			t.Fatal(err)
		}
		result, err := a.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		return result
	}
	reporter, err := audit.NewReporter(config, audit.ReportConfig{})
	if err != nil {
		t.Fatal(err)
	}
	written := func(r *audit.Result) audit.Written {
		t.Helper()
		w, err := reporter.Write(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}

	first := audited()
	if first.Objects != auditedNamespaces*auditedPods || first.Asked != first.Objects || first.Count(audit.Denied) != auditedNamespaces || !first.Complete() {
		t.Fatalf("%d objects, %d asked, %d denied, errors %v", first.Objects, first.Asked, first.Count(audit.Denied), first.Errors)
	}
	// Pages of 100 and of 500, and discovery.
	if first.Requests > 20 {
		t.Errorf("%d requests for %d objects", first.Requests, first.Objects)
	}
	if w := written(first); w != (audit.Written{Applied: auditedNamespaces}) {
		t.Errorf("reports: %+v", w)
	}
	reports := reportsOf(t, c)
	if len(reports) != auditedNamespaces {
		t.Fatalf("%d reports, want %d", len(reports), auditedNamespaces)
	}
	if r := reports[0]; r.Summary != (audit.ReportSummary{Pass: auditedPods - 1, Fail: 1}) || len(r.Results) != 1 || r.Results[0].Message != "no owner" || r.Results[0].Resources[0].Name != "web-000" {
		t.Errorf("report is %+v", r)
	}

	// One Pod of a hundred changes: the first of ten namespaces is mended, and others get a label.
	parallel(t, auditedNamespaces, func(n int) error {
		name, patch := "web-050", `{"metadata":{"labels":{"changed":"yes"}}}`
		if n < 10 {
			name, patch = "web-000", `{"metadata":{"annotations":{"deny":null}}}`
		}
		_, err := client.CoreV1().Pods(fmt.Sprintf("team-%02d", n)).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	// A status is a subresource: it is none of the policy's business.
	if _, err := client.CoreV1().Pods("team-20").Patch(t.Context(), "web-007", types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().Pods("team-49").Delete(t.Context(), "web-000", *metav1.NewDeleteOptions(0)); err != nil {
		t.Fatal(err)
	}
	second := audited()
	// An API server that is too busy for a bookmark before it ends a watch has all objects listed.
	if listed := second.Seen == second.Objects; second.Asked != auditedNamespaces || second.Seen != auditedNamespaces+1 && !listed || second.Count(audit.Denied) != auditedNamespaces-11 || second.Objects != first.Objects-1 || !second.Complete() {
		t.Errorf("%d seen, %d asked, %d denied, %d objects, errors %v", second.Seen, second.Asked, second.Count(audit.Denied), second.Objects, second.Errors)
	}
	if w := written(second); w != (audit.Written{Unchanged: auditedNamespaces - 11, Deleted: 11}) {
		t.Errorf("reports: %+v", w)
	}
	third := audited()
	for range 10 {
		if third.Asked != 0 || third.Seen != 0 && third.Seen != third.Objects {
			t.Errorf("%d seen and %d asked after nothing has changed", third.Seen, third.Asked)
		}
		if third.Seen == 0 {
			break
		}
		third = audited()
	}
	if third.Seen != 0 {
		t.Errorf("the Pods are listed each time")
	}
	for name, r := range map[string]*audit.Result{"all": first, "1 % changed": second, "nothing changed": third} {
		t.Logf("%s: %v, %d requests, %d asked", name, r.Duration.Duration.Round(time.Millisecond), r.Requests, r.Asked)
	}

	t.Run("the program of the example", func(t *testing.T) { f.testAuditProgram(t, auditedNamespaces-11) })

	// Why lists do not begin with resourceVersion=0.
	for _, version := range []string{"", "0"} {
		request := client.CoreV1().RESTClient().Get().Resource("pods").Param("limit", "500")
		if version != "" {
			request.Param("resourceVersion", version)
		}
		start := time.Now()
		raw, err := request.SetHeader("Accept", "application/json").Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		var list struct{ Items []struct{} }
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		t.Logf("resourceVersion=%q and limit=500: %d objects, %d bytes, %v", version, len(list.Items), len(raw), time.Since(start).Round(time.Millisecond))
	}
}

// testAuditProgram: the program of the example audits each second, with the rights and the
// arguments that the chart gives it for audits.
func (f *fixture) testAuditProgram(t *testing.T, reports int) {
	_, err := f.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	kubeconfig := f.serviceAccount(t, "webhook.audit.enabled=true")
	policies := filepath.Join(f.Dir, "audited.yaml")
	replace(t, policies, []byte(`plugins: [{name: scripted, allowedToMutate: true, module: {file: `+guest(t, admissionDir+"testdata/scripted")+`, follow: true}, match: {rules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}}]
`))
	args := []string{"-config", policies, "-kubeconfig", kubeconfig}
	for _, object := range rendered(t, "kubewasm-webhook", installed, "webhook", "webhook.audit.enabled=true") {
		if object.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		for _, arg := range containers[0].(map[string]any)["args"].([]any) {
			if arg := arg.(string); strings.HasPrefix(arg, "-audit-") {
				args = append(args, arg)
			}
		}
	}
	// Two servers, of which one audits.
	addr := f.programWith(t, append(args, "-audit-interval=1s")...)
	f.programWith(t, append(args, "-audit-interval=1s")...)
	owned := func() (n int) {
		for _, r := range reportsOf(t, f.Cluster) {
			if len(r.Metadata.OwnerReferences) == 1 && r.Metadata.OwnerReferences[0].Name == "kubewasm-webhook-audit" {
				n++
			}
		}
		return n
	}
	eventually(t, "reports by the program", func() bool { return owned() == reports })
	lease, err := f.Client.CoordinationV1().Leases(installed).Get(t.Context(), "kubewasm-webhook-audit", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("the lease is %+v, %v", lease, err)
	}
	client := f.authority.HTTP()
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "kubewasm_audit_objects ") {
		t.Errorf("metrics of audits are missing")
	}
	// The last finding of a namespace is mended.
	if _, err := f.Client.CoreV1().Pods("team-11").Patch(t.Context(), "web-000", types.MergePatchType, []byte(`{"metadata":{"annotations":{"deny":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a report less", func() bool { return owned() == reports-1 })
}

// parallel calls do for 0 to n-1, eight at a time.
func parallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	var wg sync.WaitGroup
	slots := make(chan struct{}, 8)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := do(i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
