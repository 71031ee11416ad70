package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/rego/compile"
)

// A builtin of the host gives the guest what the guest has said: data of a Secret.
func TestBuiltinsRepeatNoSecretInARecording(t *testing.T) {
	const password = "hunter2-very-secret"
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	for name, rule := range map[string]string{
		"sprintf":        `violation contains {"msg": sprintf("the value %s is not allowed", [input.review.object.stringData.password])}`,
		"regex.replace":  `violation contains {"msg": "no"} if count(regex.replace(input.review.object.stringData.password, "zzz", "y")) > 3`,
		"json.unmarshal": `violation contains {"msg": "no"} if count(json.unmarshal(sprintf("[%q]", [input.review.object.stringData.password]))) > 0`,
		"no builtin":     `violation contains {"msg": "no"} if count(input.review.object.stringData.password) > 3`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "p.rego")
			if err := os.WriteFile(file, []byte("package p\nimport rego.v1\n"+rule+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			module, err := compile.File(t.Context(), "p/violation", file)
			if err != nil {
				t.Fatal(err)
			}
			recording := filepath.Join(dir, "recording")
			p, err := admission.Load(t.Context(), rt, admission.PluginConfig{Dialects: dialects(), Config: host.Config{
				Name: "p", Module: host.ModuleConfig{Bytes: module}, Limits: host.Limits{Instances: 1}, Record: &record.Config{Path: recording},
			}})
			if err != nil {
				t.Fatal(err)
			}
			r := &admissionv1.AdmissionRequest{UID: "u", Operation: "CREATE", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Secret"}}
			r.Object.Raw = []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"type":"Opaque","stringData":{"password":"` + password + `"}}`)
			answer := admission.NewEngine(p).Validate(t.Context(), r)
			if answer.Allowed || name == "sprintf" && !strings.Contains(answer.Result.Message, password) {
				t.Errorf("the answer is %+v", answer)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			files, err := filepath.Glob(filepath.Join(recording, "*"))
			if err != nil || len(files) == 0 {
				t.Fatalf("the recording has %d files, %v", len(files), err)
			}
			for _, file := range files {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if i := bytes.Index(data, []byte(password)); i >= 0 {
					t.Errorf("the recording has %q", data[max(0, i-80):i+len(password)])
				}
			}
		})
	}
}
