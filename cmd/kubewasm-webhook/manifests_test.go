package main

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/json/jsonpatch"
)

// document reads a YAML file of the manifests as JSON.
func document(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("manifests", name))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(data), "\n---\n") // The others are not changed.
	if data, err = yaml.YAMLToJSON([]byte(first)); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestManifestsOfComponents applies each component to the Deployment, as kustomize does. The
// result is a Deployment whose container mounts volumes that there are, with arguments that
// the server takes and a configuration of registries that it reads.
func TestManifestsOfComponents(t *testing.T) {
	for _, component := range []string{"", "image-volumes", "registry", "audit"} {
		t.Run(component, func(t *testing.T) {
			deployment := document(t, "deployment.yaml")
			var kustomization struct {
				APIVersion string   `json:"apiVersion"`
				Kind       string   `json:"kind"`
				Resources  []string `json:"resources"`
				Patches    []struct {
					Path   string            `json:"path"`
					Target map[string]string `json:"target"`
				} `json:"patches"`
			}
			if component != "" {
				if err := yaml.UnmarshalStrict(document(t, component+"/kustomization.yaml"), &kustomization); err != nil || kustomization.Kind != "Component" || len(kustomization.Patches) == 0 {
					t.Fatalf("%+v, %v", kustomization, err)
				}
			}
			for _, p := range kustomization.Patches {
				patch := document(t, path.Join(component, p.Path))
				var err error
				if p.Target == nil {
					deployment, err = strategicpatch.StrategicMergePatch(deployment, patch, appsv1.Deployment{})
				} else {
					deployment, err = jsonpatch.Apply(deployment, patch)
				}
				if err != nil {
					t.Fatalf("%s: %v", p.Path, err)
				}
			}
			var object appsv1.Deployment
			if err := yaml.UnmarshalStrict(deployment, &object); err != nil {
				t.Fatal(err)
			}
			spec := object.Spec.Template.Spec
			volumes := map[string]corev1.Volume{}
			for _, v := range spec.Volumes {
				volumes[v.Name] = v
				if v.Image == nil {
					continue
				}
				if _, err := oci.ParseReference(v.Image.Reference); err != nil {
					t.Errorf("volume %s: %v", v.Name, err)
				}
			}
			if len(spec.Containers) != 1 {
				t.Fatalf("there are %d containers, want one", len(spec.Containers))
			}
			mounted := map[string]string{}
			for _, m := range spec.Containers[0].VolumeMounts {
				if _, ok := volumes[m.Name]; !ok {
					t.Errorf("there is no volume %s", m.Name)
				}
				mounted[m.MountPath] = m.Name
			}
			options, err := parse(spec.Containers[0].Args)
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range []string{options.server.CertFile, options.config, options.cacheDir, options.registries} {
				if dir := "/" + strings.Split(file+"/", "/")[1]; file != "" && mounted[dir] == "" {
					t.Errorf("%s is on no volume", file)
				}
			}
			if component == "image-volumes" && !slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Image != nil }) {
				t.Error("there is no image volume")
			}
			if component != "registry" {
				return
			}
			var registries corev1.ConfigMap
			if err := yaml.UnmarshalStrict(document(t, component+"/"+kustomization.Resources[0]), &registries); err != nil {
				t.Fatal(err)
			}
			if volumes[mounted["/registries"]].ConfigMap.Name != registries.Name {
				t.Errorf("the volume is not of the ConfigMap %s", registries.Name)
			}
			text := registries.Data[filepath.Base(options.registries)]
			key, err := os.ReadFile("../../host/oci/testdata/cosign/cosign.pub")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for name, content := range map[string]string{"acme.pub": string(key), ".dockerconfigjson": `{"auths":{}}`, filepath.Base(options.registries): strings.NewReplacer("/keys", dir, "/pull-secret", dir, "/cache", dir).Replace(text)} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg, err := oci.ReadConfig(filepath.Join(dir, filepath.Base(options.registries)))
			if err != nil {
				t.Fatal(err)
			}
			client, err := oci.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			source := client.Source("registry.example.com/acme/labels:1.2").(interface{ Check(string) error })
			if err := source.Check(""); err != nil {
				t.Errorf("the policy in the comment: %v", err)
			}
			if size := volumes[mounted["/cache"]].EmptyDir.SizeLimit.Value(); options.cacheBytes+cfg.CacheBytes >= size {
				t.Errorf("the caches have up to %d and %d bytes on a volume of %d", options.cacheBytes, cfg.CacheBytes, size)
			}
		})
	}
}
