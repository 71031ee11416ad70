package audit_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// nodesOf returns a Node whose annotations are says.
func nodesOf(says string) *listserver.Resource {
	return &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node", N: 1, Object: func(dst []byte, _, _ int) []byte {
		return fmt.Appendf(dst, `{"metadata":{%%s,"name":"n1","uid":"u","annotations":{%s}}}`, says)
	}}
}

func TestReports(t *testing.T) {
	says := script{25: `"warn":"w"`}
	for i := range 10 {
		says[i] = `"deny":"no"`
	}
	says[12] = `"trail":"x"`
	reports := []*listserver.Resource{
		{GroupVersionResource: schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "stand-in"}, Kind: "Report"},
	}
	s := listserver.New(append(reports, podsOf(30, says), nodesOf(`"deny":"old kernel","code":"409"`))...)
	config := cluster(t, s)
	a := auditor(t, config, nil, scripted(t, "p", func(c *admission.PluginConfig) {
		c.GuestConfig = []byte(`{"mark":"y"}`)
		c.Match.Rules = append(c.Match.Rules, rules("*", "", "nodes")...)
	}))
	owner := &metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "audit", UID: "o"}
	reporter, err := audit.NewReporter(config, audit.ReportConfig{MaxResults: 4, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	write := func(want audit.Written) {
		t.Helper()
		got, err := reporter.Write(t.Context(), run(t, a))
		if err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	const reportsOf = "/apis/openreports.io/v1alpha1/namespaces/"
	write(audit.Written{Applied: 5})
	want := []string{
		"/apis/openreports.io/v1alpha1/clusterreports/kubewasm-audit",
		reportsOf + "ns-0/reports/kubewasm-audit", reportsOf + "ns-0/reports/kubewasm-audit-2", reportsOf + "ns-0/reports/kubewasm-audit-3",
		reportsOf + "ns-1/reports/kubewasm-audit",
	}
	stored := s.Stored()
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(stored))); diff != "" {
		t.Fatalf("reports (-want +got):\n%s", diff)
	}
	var got audit.Report
	if err := json.Unmarshal(stored[want[0]], &got); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	since := fmt.Sprint(got.Results[0].Timestamp.Seconds)
	digest := got.Metadata.Annotations["kubewasm.dev/digest"]
	if diff := cmp.Diff(`{"kind":"ClusterReport","apiVersion":"openreports.io/v1alpha1","metadata":{"name":"kubewasm-audit","labels":{"app.kubernetes.io/managed-by":"kubewasm-audit"},`+
		`"annotations":{"kubewasm.dev/digest":"`+digest+`"},"ownerReferences":[{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","name":"audit","uid":"o"}]},`+
		`"source":"kubewasm","configuration":{"limits":{"maxResults":4,"statusFilter":["fail","warn","error"]}},"summary":{"pass":0,"fail":1,"warn":0,"error":0,"skip":0},`+
		`"results":[{"policy":"p","result":"fail","scored":true,"timestamp":{"seconds":`+since+`,"nanos":0},"message":"old kernel","resources":[{"kind":"Node","name":"n1","uid":"u","apiVersion":"v1"}],"properties":{"code":"409","mode":"Enforce"}}]}`, string(text)); diff != "" {
		t.Errorf("report (-want +got):\n%s", diff)
	}
	var last audit.Report
	if err := json.Unmarshal(stored[want[3]], &last); err != nil {
		t.Fatal(err)
	}
	if len(last.Results) != 2 || last.Summary != (audit.ReportSummary{Fail: 2}) {
		t.Errorf("the last report of ns-0 has %d results and the summary %+v", len(last.Results), last.Summary)
	}

	write(audit.Written{Unchanged: 5})
	s.Change("pods", 12) // Mended, the only finding of its namespace.
	write(audit.Written{Unchanged: 4, Deleted: 1})
	for i := range 6 {
		s.Change("pods", i)
	}
	// The first is another one now, and the others are too many.
	write(audit.Written{Applied: 1, Unchanged: 1, Deleted: 2})
	if got := slices.Sorted(maps.Keys(s.Stored())); len(got) != 2 {
		t.Errorf("there are %q", got)
	}
	// What cannot be listed may have the findings of before.
	s.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/pods") {
			return false
		}
		listserver.Fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
		return true
	}
	write(audit.Written{Unchanged: 2})
}

// TestReportsAreBounded holds that a report of long messages fits into etcd.
func TestReportsAreBounded(t *testing.T) {
	says := script{}
	long := strings.Repeat(`\u0001`, 2000) // Six bytes each in JSON.
	for i := range 10 {
		says[i] = `"deny":"` + long + `"`
	}
	s := listserver.New(podsOf(10, says))
	result := run(t, auditor(t, cluster(t, s), nil, scripted(t, "p", nil)))
	for range 9 {
		result.Findings = append(result.Findings, slices.Clone(result.Findings)...)
	}
	reports, err := result.Reports(audit.ReportConfig{MaxResults: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	results := 0
	for _, r := range reports {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1_500_000 {
			t.Errorf("report %s has %d bytes", r.Metadata.Name, len(text))
		}
		results += len(r.Results)
	}
	if results != len(result.Findings) {
		t.Errorf("%d results in %d reports, want %d", results, len(reports), len(result.Findings))
	}
}

func TestReportMistakes(t *testing.T) {
	_, err := audit.NewReporter(cluster(t, listserver.New()), audit.ReportConfig{Name: "A_b", MaxResults: -1})
	if err == nil || !strings.Contains(err.Error(), `name of reports "A_b"`) || !strings.Contains(err.Error(), "maximum of results is -1") {
		t.Errorf("error is %v", err)
	}
}
