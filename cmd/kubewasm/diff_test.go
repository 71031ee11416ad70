package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
)

// merged merges a patch into a document, as a JSON merge patch does.
func merged(document, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	members, _ := document.(map[string]any)
	out := map[string]any{}
	for name, value := range members {
		out[name] = value
	}
	for name, value := range changes {
		if out[name] = merged(out[name], value); value == nil {
			delete(out, name)
		}
	}
	return out
}

// aCluster starts an API server with a policy that kubectl has applied, and returns a kubeconfig for it.
// Namespaces of policies may not be listed. Its server-side apply removes nothing.
func aCluster(t *testing.T) string {
	t.Helper()
	const applied = `{"apiVersion":"kubewasm.dev/v1alpha1","kind":"ClusterAdmissionPolicy","metadata":{"name":"p"},"spec":{"failurePolicy":"Ignore","module":{"oci":"a/b:1"}}}`
	version := v1alpha1.GroupVersion.String()
	var policy map[string]any
	if err := json.Unmarshal([]byte(applied), &policy); err != nil {
		t.Fatal(err)
	}
	policy["metadata"] = map[string]any{"name": "p", "uid": "u", "generation": 1, "annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": applied}}
	policy["spec"].(map[string]any)["revision"] = 3 // Not by apply.
	policy["status"] = map[string]any{"observedGeneration": 1, "conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "Serving"}}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body any
		w.Header().Set("Content-Type", "application/json")
		switch name := strings.TrimPrefix(r.URL.Path, "/apis/kubewasm.dev/v1alpha1"); {
		case name == "":
			list := metav1.APIResourceList{GroupVersion: version}
			for plural, kind := range map[string]string{"clusteradmissionpolicies": "ClusterAdmissionPolicy", "admissionpolicies": "AdmissionPolicy"} {
				list.APIResources = append(list.APIResources, metav1.APIResource{Name: plural, Kind: kind}, metav1.APIResource{Name: plural + "/status", Kind: kind})
			}
			body = list
		case name == "/admissionpolicies":
			w.WriteHeader(http.StatusForbidden)
			body = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "you may not list them"}
		case name == "/clusteradmissionpolicies":
			body = map[string]any{"apiVersion": version, "kind": "ClusterAdmissionPolicyList", "items": []any{policy}}
		case r.Method == http.MethodPatch:
			if r.URL.Query().Get("dryRun") != "All" {
				t.Errorf("%s is no dry run", r.URL)
			}
			text, err := io.ReadAll(r.Body)
			var patch any
			if err == nil {
				err = json.Unmarshal(text, &patch)
			}
			if err != nil {
				t.Error(err)
			}
			body = merged(policy, patch)
		default:
			body = policy
		}
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return file(t, "kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: %q}}]}`, s.URL))
}

// A member that the object has no more is a difference: kubectl apply removes it, but not what others
// have set.
func TestDiffIsOfWhatApplyDoes(t *testing.T) {
	objects := file(t, "objects.yaml", `{apiVersion: kubewasm.dev/v1alpha1, kind: ClusterAdmissionPolicy, metadata: {name: p}, spec: {module: {oci: "a/b:1"}}}`)
	code, out, stderr := kubewasm(t, "diff", "-f", objects, "--kubeconfig", aCluster(t))
	if code != 2 || stderr != "" {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	var changes []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "+ ") || strings.HasPrefix(line, "- ") {
			changes = append(changes, strings.TrimSpace(line))
		}
	}
	if diff := cmp.Diff([]string{"-  failurePolicy: Ignore"}, changes); diff != "" {
		t.Errorf("-want +got:\n%s\nof\n%s", diff, out)
	}
}

// A mistake in somebody's object looks like no line of another.
func TestMistakesAreNoLines(t *testing.T) {
	var out strings.Builder
	if err := writeDifferences(&out, []objectDiff{{Kind: "NodeHook", Name: "a", Mistakes: []string{"it is\nNodeHook other: no difference"}}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("NodeHook a: new\n  mistake: it is\n\tNodeHook other: no difference\n", out.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// What a user may not see is no plugin in service.
func TestStatusOfSome(t *testing.T) {
	code, out, stderr := kubewasm(t, "status", "--kubeconfig", aCluster(t))
	if code != exitError || !strings.Contains(out, "ClusterAdmissionPolicy") || !strings.Contains(stderr, "plugins are missing: AdmissionPolicy: you may not list them") {
		t.Errorf("exit code %d\n%s\n%s", code, out, stderr)
	}
}
