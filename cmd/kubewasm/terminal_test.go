package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// spoof is text that has a terminal clear its screen, change its title, hide what is there or
// turn it around, or that looks like a line of the command's own. It is as long as the
// placeholder in testdata/spoof.wat.
const spoof = "x\x1b[2J\x1b]0;t\a\u009b2J\u202egpj\u2066\u200b\r\x7f\nFORGED\tline\vFORGED\fFORGED\u2028FORGED"

// onATerminal fails a test if a terminal would act upon a text, or if a line of it is one that
// others wrote.
func onATerminal(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("a terminal acts upon %q", text[max(0, i-100):min(len(text), i+100)])
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "FORGED") {
			t.Errorf("a module wrote the line %q", line)
		}
	}
}

// spoofing returns the file of a module whose exports, functions, messages and metadata are the
// spoof. metadata of that kind are no valid ones, so a part of them alone is.
func spoofing(t *testing.T, name string) string {
	t.Helper()
	module, err := os.ReadFile("testdata/spoof.wasm")
	if err != nil {
		t.Fatal(err)
	}
	placeholder := []byte(strings.Repeat("Z", len(spoof)))
	if n := bytes.Count(module, placeholder); n != 3 {
		t.Fatalf("testdata/spoof.wasm has the placeholder %d times, want a message, the name of a function and that of an export", n)
	}
	module = bytes.ReplaceAll(module, placeholder, []byte(spoof))
	contents, err := json.Marshal(map[string]any{"name": name, "version": "1\u202e2", "kinds": []string{"scheduler"}, "abi": 1, "sdk": "a\u2066b"})
	if err != nil {
		t.Fatal(err)
	}
	if module, err = metadata.AddSection(module, abi.MetadataSection, contents); err != nil {
		t.Fatal(err)
	}
	return file(t, "spoof.wasm", string(module))
}

// spoofed returns a recording of a plugin whose name and reasons are the spoof.
func spoofed(t *testing.T, file string) string {
	t.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	path := filepath.Join(t.TempDir(), "recording")
	p, err := rt.Load(t.Context(), host.Config{Name: spoof, Module: host.ModuleConfig{File: file}, Record: &record.Config{Path: path}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		t.Fatal(err)
	}
	inst, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inst.Call(t.Context(), abi.Filter, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	inst.Release()
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return path
}

// spoofer starts a server with a management API whose every text is the spoof, and returns its
// URL. It refuses to disable a policy.
func spoofer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/disable") {
			w.WriteHeader(http.StatusBadRequest)
		}
		err := json.NewEncoder(w).Encode(map[string]any{
			"status": spoof, "version": spoof, "digest": spoof, "error": spoof,
			"plugins":     []manage.Info{{Name: spoof, Version: spoof, Mode: spoof, Origin: spoof, Digest: spoof, Error: spoof, Warnings: []string{spoof}}},
			"versions":    []manage.Version{{Version: spoof, Digest: spoof}},
			"state":       spoof,
			"reason":      spoof,
			"notRepeated": []string{spoof},
			"groups":      []shadow.Group{{Change: spoof, Calls: 1, Examples: []string{spoof}}},
		})
		if err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// spoofedCluster starts an API server whose every text is the spoof, and returns a kubeconfig for it.
func spoofedCluster(t *testing.T) string {
	t.Helper()
	policy := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterAdmissionPolicy", "metadata": map[string]any{"name": "spoof", "uid": "1", "labels": map[string]string{"a": spoof}},
		"spec":   map[string]any{"mode": spoof, "module": map[string]any{"oci": spoof}},
		"status": v1alpha1.PluginStatus{Ready: spoof, Digest: spoof, Conditions: []metav1.Condition{{Type: "Ready", Status: "False", Reason: spoof, Message: spoof}}},
	}
	report := map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginReport", "metadata": map[string]any{"name": spoof, "namespace": spoof}, "component": spoof, "node": spoof,
		"plugins": []v1alpha1.PluginState{{Kind: spoof, Name: spoof, UID: "1", State: spoof, Message: spoof, Digest: spoof, Reference: spoof}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body any = policy
		switch name := strings.TrimPrefix(r.URL.Path, "/apis/kubewasm.dev/v1alpha1"); {
		case strings.HasSuffix(name, "/log"):
			_, _ = io.WriteString(w, "policy=spoof "+spoof+"\n") // The client may be gone.
			return
		case name == "":
			body = metav1.APIResourceList{GroupVersion: v1alpha1.GroupVersion.String(), APIResources: []metav1.APIResource{
				{Name: "clusteradmissionpolicies", Kind: "ClusterAdmissionPolicy"}, {Name: "clusteradmissionpolicies/status", Kind: "ClusterAdmissionPolicy"},
			}}
		case name == "/clusteradmissionpolicies":
			body = map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterAdmissionPolicyList", "items": []any{policy}}
		case name == "/pluginreports":
			body = map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "PluginReportList", "items": []any{report}}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return file(t, "kubeconfig", `{apiVersion: v1, kind: Config, current-context: a, contexts: [{name: a, context: {cluster: a}}], clusters: [{name: a, cluster: {server: "`+s.URL+`"}}]}`)
}

// TestCommandsPrintNothingThatATerminalActsUpon runs each command on modules, recordings,
// objects and names that others wrote.
func TestCommandsPrintNothingThatATerminalActsUpon(t *testing.T) {
	module, invalid := spoofing(t, "a\u202eb"), spoofing(t, spoof)
	trusted, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	// The changed version gives another reason.
	changed := file(t, "changed.wasm", strings.Replace(string(trusted), spoof, spoof[:len(spoof)-1]+"!", 1))
	recorded := spoofed(t, module)
	text := func(format string) string {
		quoted, err := json.Marshal(spoof)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(format, "SPOOF", string(quoted))
	}
	objects := file(t, "objects.yaml", text(`{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop, labels: {SPOOF: SPOOF}}, spec: {schedulerName: SPOOF, containers: [{name: SPOOF, image: SPOOF}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: SPOOF}}
---
{apiVersion: example.com/v1, kind: SPOOF, metadata: {name: SPOOF}}
`))
	policies := file(t, "policies.yaml", `
plugins:
- name: spoof
  module: {file: `+module+`, follow: true}
  match: {rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"]}]}
`)
	crd := file(t, "crd.yaml", text(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: SPOOF}, spec: {group: SPOOF, names: {kind: SPOOF, plural: SPOOF}, versions: [{name: SPOOF, schema: {openAPIV3Schema: {type: object, properties: {SPOOF: {type: SPOOF}}}}}]}}`))
	proto := file(t, "service.proto", text("syntax = \"proto3\"; package a; message M { string a = 1 [json_name = SPOOF]; string b = 2 [json_name = SPOOF]; }"))
	syntax := file(t, "syntax.proto", "syntax = \"proto3\"; package a; message "+spoof+" { }")
	cases := file(t, "cases.yaml", text(`{cases: [{name: SPOOF, pod: {metadata: {name: SPOOF}}, node: {metadata: {name: SPOOF}}, want: SPOOF}]}`))
	private, _ := keyFiles(t)
	layout := "oci-layout:" + filepath.Join(t.TempDir(), "layout") + ":1"
	server, cluster := spoofer(t), spoofedCluster(t)
	declared := file(t, "declared.yaml", text(`{apiVersion: kubewasm.dev/v1alpha1, kind: ClusterAdmissionPolicy, metadata: {name: spoof}, spec: {mode: SPOOF, SPOOF: 1}}`))
	run := []string{}
	for _, args := range [][]string{
		{"inspect", module}, {"inspect", "-o", "json", module}, {"inspect", invalid}, {"inspect", "-o", "json", invalid},
		{"run", "--log", "-f", objects, module}, {"run", "-f", file(t, spoof, "x"), module}, {"run", "-f", objects, "--grant", spoof, module},
		{"profile", "-f", objects, module}, {"profile", "-o", "json", "-f", objects, module}, {"profile", "--diff", "-f", objects, module, changed}, {"profile", recorded, module},
		{"replay", recorded, module}, {"replay", recorded, invalid},
		{"replay", "--diff", recorded, module, changed}, {"replay", "--diff", "-o", "json", recorded, module, changed}, {"replay", "--diff", "-o", "junit", recorded, module, changed},
		{"audit", "--policies", policies, "-f", objects}, {"audit", "--policies", policies, "-f", objects, "-o", "json"}, {"audit", "--policies", policies, "-f", objects, "-o", "reports"},
		{"test", "-v", cases, module}, {"build", spoof}, {"gen", "--output-dir", t.TempDir(), crd}, {"gen", "-I", filepath.Dir(proto), "--output-dir", t.TempDir(), proto}, {"gen", "-I", filepath.Dir(syntax), "--output-dir", t.TempDir(), syntax}, {"new", spoof}, {"version", spoof},
		{"push", module, layout}, {"sign", "--key", private, layout}, {"inspect", layout}, {"pull", "--output-file", filepath.Join(t.TempDir(), spoof), layout},
		{"copy", layout, "oci-layout:" + filepath.Join(t.TempDir(), "copy\u202e\x1b[2J") + ":1"}, {"pull", spoof}, {"pull", "registry.example.com/" + spoof + ":1"},
		{"manifests", module}, {"manifests", "-o", "json", module}, {"manifests", "--only", "config", invalid}, {"manifests", spoof}, {"manifests", "--objects", spoof, module}, {"manifests", "--output-file", filepath.Join(t.TempDir(), spoof), module},
		{"policies", "--server", server, "list"}, {"policies", "--server", server, "-o", "json", "list"}, {"policies", "--server", server, "versions", spoof}, {"policies", "--server", server, "shadow", spoof},
		{"policies", "--server", server, "remove", spoof}, {"policies", "--server", server, "disable", spoof}, {"policies", "--server", server, "rollback", spoof}, {"policies", "--server", server, spoof}, {"policies", "--server", spoof, "list"}, {"policies", "--server", server, "load", spoof, module},
		{"export", policies}, {"export", "-o", "json", objects}, {"export", file(t, "named.yaml", text(`{plugins: [{name: SPOOF, SPOOF: 1}]}`))},
		{"status", "--kubeconfig", cluster}, {"status", "-o", "json", "--kubeconfig", cluster}, {"status", "spoof", "--kubeconfig", cluster}, {"status", "--logs", "spoof", "--kubeconfig", cluster}, {"status", spoof, "--kubeconfig", cluster},
		{"diff", "-f", declared, "--kubeconfig", cluster}, {"diff", "-o", "json", "-f", declared, "--kubeconfig", cluster},
		{spoof}, {"help", spoof}, {"inspect", "-" + spoof}, {"inspect", module, spoof},
	} {
		run = append(run, args[0])
		t.Run(strings.Join(args[:min(len(args), 3)], " "), func(t *testing.T) {
			_, out, stderr := kubewasm(t, args...)
			if out+stderr == "" {
				t.Error("nothing is printed")
			}
			onATerminal(t, out)
			onATerminal(t, stderr)
		})
	}
	for _, c := range commands {
		if !slices.Contains(run, c.name) {
			t.Errorf("the command %s was not run", c.name)
		}
	}
}

func TestWhatATerminalActsUponIsFound(t *testing.T) {
	for name, r := range map[string]rune{"escape": '\x1b', "carriage return": '\r', "delete": '\x7f', "C1": '\u009b', "override": '\u202e', "isolate": '\u2066', "invisible": '\u200b', "line separator": '\u2028'} {
		if unicode.IsPrint(r) || !strings.ContainsRune(spoof, r) {
			t.Errorf("%s is not tried", name)
		}
	}
}
