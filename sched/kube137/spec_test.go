package kube137_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// TestGuestOfTheSpecification compiles the guest in C that stands in
// abi/SPEC.md, and runs it.
func TestGuestOfTheSpecification(t *testing.T) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("clang is not installed")
		}
		t.Skip("clang is not installed (Debian: clang, lld)")
	}
	spec, err := os.ReadFile("../../abi/SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(spec), "```c\n")
	source, _, ok := strings.Cut(rest, "```\n")
	if !ok {
		t.Fatal("no C in the specification")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "labelled.c")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	// The command that the source names.
	build := exec.CommandContext(t.Context(), clang, "--target=wasm32", "-O2", "-nostdlib", "-Wl,--no-entry", "-o", "labelled.wasm", "labelled.c")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	p := load(t, host.Config{Name: "labelled", Module: host.ModuleConfig{File: filepath.Join(dir, "labelled.wasm")}})
	c := &cycle{t, p, pod("p", ""), kube137test.NewCycleState()}
	for name, test := range map[string]struct {
		meta metav1.ObjectMeta
		want string
	}{
		"labelled":     {metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"a": "1", "kubewasm.dev/ready": ""}}, "Success"},
		"not labelled": {metav1.ObjectMeta{Name: "n2", Labels: map[string]string{"a": "1"}}, "Unschedulable: node is not ready"},
		"annotated":    {metav1.ObjectMeta{Name: "n3", Annotations: map[string]string{"kubewasm.dev/ready": ""}}, "Unschedulable: node is not ready"},
		"changed":      {metav1.ObjectMeta{Name: "n1"}, "Unschedulable: node is not ready"},
	} {
		if got := text(c.filter(&corev1.Node{ObjectMeta: test.meta})); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
