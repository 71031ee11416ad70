package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// TestWrittenManifests loads the configuration that kubewasm manifests writes, with the plugins
// that it is for.
func TestWrittenManifests(t *testing.T) {
	text, err := os.ReadFile("../../cmd/kubewasm/testdata/manifests/hooks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var held corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(first), &held); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(held.Data["agent.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := readConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	plugins := cfg.plugins()
	for i, dir := range []string{"../../cmd/kubewasm/testdata/hook", "../../examples/hooks/share-pools"} {
		module, err := guestbuild.Build(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		plugins[i].Module.Source = host.File(module)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	e, err := hooks.NewEngine(t.Context(), rt, hooks.Config{Plugins: plugins, Node: cfg.Node != nil})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if cfg.NRI == nil || cfg.Standalone == nil || cfg.Node == nil {
		t.Errorf("got %+v", cfg)
	}
}
