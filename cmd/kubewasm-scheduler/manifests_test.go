package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"sigs.k8s.io/yaml"
)

// TestWrittenManifests loads the configuration that kubewasm manifests writes, as kube-scheduler
// does: its decoder refuses unknown fields.
func TestWrittenManifests(t *testing.T) {
	text, err := os.ReadFile("../../cmd/kubewasm/testdata/manifests/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var held corev1.ConfigMap
	if err := yaml.UnmarshalStrict(text, &held); err != nil {
		t.Fatal(err)
	}
	written := held.Data["scheduler.yaml"]
	object, err := runtime.Decode(scheme.Codecs.UniversalDecoder(), []byte(written))
	if err != nil {
		t.Fatal(err)
	}
	cfg := object.(*config.KubeSchedulerConfiguration)
	if err := validation.ValidateKubeSchedulerConfiguration(cfg); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	if o, err := read([]string{"--config=" + file}); err != nil || !slices.Equal(o.names(), []string{"zone", "grants"}) {
		t.Errorf("options are %+v, error %v", o, err)
	}
}
