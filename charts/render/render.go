package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// kubeVersion is the minor of Kubernetes that the manifests are rendered for. It is in the tag of
// the scheduler's image.
const kubeVersion = "1.37.0"

func load(dir string) (*chart.Chart, error) { return loader.LoadDir(dir) }

// readValues reads a file of the chart's directory ci, by its name without -values.yaml.
func readValues(name string) (map[string]any, error) {
	text, err := os.ReadFile(filepath.Join(chartDir, "ci", name+"-values.yaml"))
	if err != nil {
		return nil, err
	}
	values := map[string]any{}
	return values, yaml.UnmarshalStrict(text, &values)
}

// rendering is the result of a chart: the documents of its objects, and its notes.
type rendering struct {
	documents []document
	notes     string
}

// document is the text of an object, with the comments in front of it.
type document struct {
	// file is the template that it comes from.
	file string
	kind string
	text string
}

// release names a release. client answers lookups in a cluster; without it there is none.
type release struct {
	name, namespace string
	upgrade         bool
	client          engine.ClientProvider
}

// render renders the chart as helm install and helm template do.
func (r release) render(c *chart.Chart, values map[string]any) (*rendering, error) {
	version, err := common.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities := *common.DefaultCapabilities
	capabilities.KubeVersion = *version
	options := common.ReleaseOptions{Name: r.name, Namespace: r.namespace, Revision: 1, IsInstall: !r.upgrade, IsUpgrade: r.upgrade}
	all, err := util.ToRenderValues(c, values, options, &capabilities)
	if err != nil {
		return nil, err
	}
	var files map[string]string
	if r.client != nil {
		files, err = engine.RenderWithClientProvider(c, all, r.client)
	} else {
		files, err = engine.Render(c, all)
	}
	if err != nil {
		return nil, err
	}
	result := &rendering{}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if path.Base(name) == "NOTES.txt" {
			result.notes = files[name]
			continue
		}
		documents, err := split(path.Base(name), files[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		result.documents = append(result.documents, documents...)
	}
	slices.SortStableFunc(result.documents, func(a, b document) int { return order(a.kind) - order(b.kind) })
	return result, nil
}

// split returns the documents of a file that hold an object.
func split(file, text string) (documents []document, err error) {
	for part := range strings.SplitSeq("\n"+text+"\n", "\n---") {
		var head struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal([]byte(part), &head); err != nil {
			return nil, err
		}
		if head.Kind != "" {
			documents = append(documents, document{file: file, kind: head.Kind, text: tidy(part)})
		}
	}
	return documents, nil
}

// tidy removes empty lines and spaces at the ends of lines, which templates leave behind.
func tidy(text string) string {
	var b bytes.Buffer
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// kinds are in the order in which a person reads them: first what a program may do, then what
// it is, then what depends on it.
var kinds = []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", "Secret", "Deployment", "DaemonSet", "PolicyServer", "Service", "PodDisruptionBudget", "NetworkPolicy"}

func order(kind string) int {
	if i := slices.Index(kinds, kind); i >= 0 {
		return i
	}
	return len(kinds)
}

// program is a directory of manifests.
type program struct {
	// name is that of the directory and of the file in ci.
	name, release, namespace string
	// level is the level of Pod security of the namespace, which is made if it is set.
	level string
	about string
}

var programs = []program{
	{"webhook", "kubewasm-webhook", "kubewasm-webhook", "restricted", `
# The certificate is cert-manager's. Without it, remove certificate.yaml here, and create the
# Secret kubewasm-webhook-tls with tls.crt and tls.key, and put the CA into webhooks.yaml.
#
# webhooks.yaml makes API servers ask. Apply it when the servers run:
#
#	kubectl -n kubewasm-webhook rollout status deployment/kubewasm-webhook
#	kubectl apply -f charts/manifests/webhook/webhooks.yaml
`},
	{"controller", "kubewasm-webhook", "kubewasm-webhook", "restricted", `
# The webhook that serves policies of the cluster, with the controller: instead of
# charts/manifests/webhook. The certificate is cert-manager's. First, install the
# CustomResourceDefinitions:
#
#	kubectl apply --server-side -f charts/kubewasm/files/crds
#
# Before you remove it: docs/cluster.md.
`},
	{"scheduler", "kubewasm-scheduler", "kubewasm-scheduler", "restricted", ""},
	{"agent", "kubewasm-agent", "kube-system", "", ""},
	{"policy-server", "kubewasm-policy-server", "kubewarden", "", `
# Kubewarden's controller comes first. It makes the Deployment of the PolicyServer.
`},
}

// files returns the files of a program, by their names.
func (p *program) files(c *chart.Chart) (map[string]string, error) {
	values, err := readValues(p.name)
	if err != nil {
		return nil, err
	}
	r, err := release{name: p.release, namespace: p.namespace}.render(c, values)
	if err != nil {
		return nil, err
	}
	byName := map[string][]document{}
	for _, d := range r.documents {
		if d.kind == "CustomResourceDefinition" || d.kind == "Job" {
			continue // They lie in files/crds; a hook of helm is nothing to apply.
		}
		name := p.name + ".yaml"
		switch {
		case strings.HasSuffix(d.kind, "WebhookConfiguration"):
			name = "webhooks.yaml"
		case d.kind == "Issuer" || d.kind == "Certificate":
			name = "certificate.yaml"
		}
		byName[name] = append(byName[name], d)
	}
	files, resources := map[string]string{}, ""
	head := fmt.Sprintf("# Generated by make generate from charts/kubewasm and its ci/%s-values.yaml. DO NOT EDIT.\n", p.name)
	if p.level != "" {
		files["namespace.yaml"] = head + fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: %s\n  labels: {pod-security.kubernetes.io/enforce: %s}\n", p.namespace, p.level)
		resources = "- namespace.yaml\n"
	}
	for _, name := range []string{p.name + ".yaml", "certificate.yaml", "webhooks.yaml"} {
		var texts []string
		for _, d := range byName[name] {
			texts = append(texts, d.text)
		}
		if len(texts) == 0 {
			continue
		}
		files[name] = head + strings.Join(texts, "---\n")
		if name != "webhooks.yaml" {
			resources += "- " + name + "\n"
		}
	}
	about := p.about
	if about != "" {
		about = "#" + about
	}
	files["kustomization.yaml"] = head + "#\n#\tkubectl apply -k charts/manifests/" + p.name + "\n" + about +
		"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n" + resources +
		fmt.Sprintf("# Where the image is:\n#images:\n#- {name: ghcr.io/kubewasm/%s, newName: registry.example.com/kubewasm/%s, newTag: \"1\"}\n", p.name, p.name)
	return files, nil
}
