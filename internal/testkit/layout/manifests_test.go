package layout

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// shipped returns the files that are in version control and match patterns, by their paths.
func shipped(t *testing.T, patterns ...string) map[string][]byte {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard"}, patterns...)...)
	list.Dir = "../../.."
	out, err := list.Output()
	if err != nil {
		t.Fatalf("list the files: %v", err)
	}
	files := map[string][]byte{}
	for _, name := range strings.Fields(string(out)) {
		text, err := os.ReadFile(path.Join("../../..", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
	}
	if len(files) == 0 {
		t.Fatalf("there are no files %q", patterns)
	}
	return files
}

// object is a part of an object of Kubernetes.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Rules []struct {
		APIGroups     []string `json:"apiGroups"`
		Resources     []string `json:"resources"`
		ResourceNames []string `json:"resourceNames"`
		Verbs         []string `json:"verbs"`
	} `json:"rules"`
	Spec struct {
		PodSelector selector `json:"podSelector"`
		PolicyTypes []string `json:"policyTypes"`
		Selector    selector `json:"selector"`
		Template    struct {
			Metadata struct {
				Labels map[string]string `json:"labels"`
			} `json:"metadata"`
			Spec struct {
				HostNetwork bool `json:"hostNetwork"`
				Volumes     []struct {
					Secret *struct {
						SecretName string `json:"secretName"`
					} `json:"secret"`
				} `json:"volumes"`
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// objectsOf returns the objects of a manifest; none of a file that holds something else.
func objectsOf(text []byte) (objects []object, err error) {
	d := yamlv3.NewDecoder(bytes.NewReader(text))
	for {
		var document any
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		if _, ok := document.(map[string]any); !ok {
			continue
		}
		again, err := yaml.Marshal(document)
		if err != nil {
			return nil, err
		}
		var o object
		if yaml.Unmarshal(again, &o) == nil && o.Kind != "" {
			objects = append(objects, o)
		}
	}
}

// insecure matches what turns the verification of a certificate off.
var insecure = regexp.MustCompile(`(?im)^[^#\n]*\binsecure(-?skip-?(tls-?)?verify)?["']?\s*[:=]\s*["']?true`)

// room returns the directory of an example or of a program: its manifests are applied together.
func room(file string) string {
	parts := strings.Split(file, "/")
	depth := 2
	if parts[0] == "charts" {
		depth = 3
	}
	return strings.Join(parts[:min(len(parts), depth)], "/")
}

// mistakesOf returns what is wrong with the rights and the reach of shipped manifests.
func mistakesOf(files map[string][]byte) (mistakes []string) {
	rooms := map[string][]object{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if insecure.Match(files[file]) {
			mistakes = append(mistakes, file+": a certificate is not verified")
		}
		objects, err := objectsOf(files[file])
		if err != nil {
			mistakes = append(mistakes, fmt.Sprintf("%s: %v", file, err))
		}
		rooms[room(file)] = append(rooms[room(file)], objects...)
	}
	for _, name := range slices.Sorted(maps.Keys(rooms)) {
		mounted := map[string]bool{}
		for _, o := range rooms[name] {
			for _, v := range o.Spec.Template.Spec.Volumes {
				if v.Secret != nil {
					mounted[v.Secret.SecretName] = true
				}
			}
		}
		for _, o := range rooms[name] {
			fail := func(format string, args ...any) {
				mistakes = append(mistakes, fmt.Sprintf("%s: %s %s: ", name, o.Kind, o.Metadata.Name)+fmt.Sprintf(format, args...))
			}
			switch o.Kind {
			case "Role", "ClusterRole":
				for _, r := range o.Rules {
					core := slices.Contains(r.APIGroups, "") || slices.Contains(r.APIGroups, "*")
					for _, resource := range r.Resources {
						switch {
						case resource == "*" && core:
							fail("every resource")
						case resource == "nodes/proxy" || resource == "nodes/*":
							fail("%s runs commands in every container of a node", resource)
						case resource == "secrets" && len(r.ResourceNames) == 0:
							fail("%s of every Secret", strings.Join(r.Verbs, ", "))
						}
						if resource == "secrets" {
							for _, secret := range r.ResourceNames {
								if mounted[secret] {
									fail("%s of the Secret %s, which is mounted", strings.Join(r.Verbs, ", "), secret)
								}
							}
						}
					}
					if slices.Contains(r.Verbs, "*") {
						fail("every verb")
					}
				}
			case "Deployment", "DaemonSet", "StatefulSet":
				labels := o.Spec.Template.Metadata.Labels
				if len(labels) == 0 || o.Spec.Template.Spec.HostNetwork {
					continue // A patch, or a Pod for which no NetworkPolicy holds.
				}
				if !slices.ContainsFunc(rooms[name], func(p object) bool { return p.Kind == "NetworkPolicy" && p.Spec.PodSelector.selects(labels) }) {
					fail("no NetworkPolicy selects its Pods")
				}
			case "NetworkPolicy":
				if !slices.Contains(o.Spec.PolicyTypes, "Ingress") || !slices.Contains(o.Spec.PolicyTypes, "Egress") {
					fail("it is not for both directions")
				}
			}
		}
	}
	return mistakes
}

func (s selector) selects(labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if labels[key] != value {
			return false
		}
	}
	return len(s.MatchLabels) != 0
}

// TestManifestsGrantLittle holds what programs may do and reach that are deployed as shipped.
func TestManifestsGrantLittle(t *testing.T) {
	files := shipped(t, "examples/*.yaml", "examples/*.yml", "charts/manifests/*.yaml", "cmd/*.yaml")
	for name := range files {
		if strings.Contains(name, "/testdata/") {
			delete(files, name)
		}
	}
	for _, mistake := range mistakesOf(files) {
		t.Error(mistake)
	}
}

// TestMistakesOfManifests holds that the rules find what they are for.
func TestMistakesOfManifests(t *testing.T) {
	const workload = "kind: Deployment\nmetadata: {name: d}\nspec: {template: {metadata: {labels: {app: d}}, spec: {volumes: [{name: tls, secret: {secretName: d-tls}}]}}}\n"
	const policy = "---\nkind: NetworkPolicy\nmetadata: {name: d}\nspec: {podSelector: {matchLabels: {app: d}}, policyTypes: [Ingress, Egress]}\n"
	rule := func(text string) string {
		return workload + policy + "---\nkind: Role\nmetadata: {name: r}\nrules:\n- " + text + "\n"
	}
	for _, test := range []struct{ name, text, want string }{
		{"nothing is wrong", rule(`{apiGroups: [""], resources: [secrets], resourceNames: [one], verbs: [get]}`), ""},
		{"the kubelet's commands", rule(`{apiGroups: [""], resources: [nodes/proxy], verbs: [get]}`), "nodes/proxy runs commands"},
		{"every Secret", rule(`{apiGroups: [""], resources: [configmaps, secrets], verbs: [get]}`), "get of every Secret"},
		{"the Secret with the key of TLS", rule(`{apiGroups: [""], resources: [secrets], resourceNames: [d-tls], verbs: [get]}`), "d-tls, which is mounted"},
		{"every resource", rule(`{apiGroups: ["*"], resources: ["*"], verbs: [get]}`), "every resource"},
		{"every verb", rule(`{apiGroups: [""], resources: [pods], verbs: ["*"]}`), "every verb"},
		{"no NetworkPolicy", workload, "no NetworkPolicy selects"},
		{"one for other Pods", workload + strings.ReplaceAll(policy, "app: d", "app: e"), "no NetworkPolicy selects"},
		{"one for a direction", workload + strings.ReplaceAll(policy, ", Egress", ""), "not for both directions"},
		{"a certificate that is not verified", "kubelet: {}\n  # insecure: true\n  insecure: true # Kubelets often sign their own.\n", "a certificate is not verified"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := strings.Join(mistakesOf(map[string][]byte{"examples/x/a.yaml": []byte(test.text)}), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("mistakes are %q, want %q", got, test.want)
			}
		})
	}
}

var (
	uses   = regexp.MustCompile(`(?m)^\s*(?:- )?uses:\s*(.*)$`)
	pinned = regexp.MustCompile(`^(\./\S+|docker://\S+@sha256:[0-9a-f]{64}|[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
)

// TestActionsArePinned holds that a workflow runs the commit of an action that was looked at:
// whoever owns the action can move a tag.
func TestActionsArePinned(t *testing.T) {
	found := 0
	for name, text := range shipped(t, ".github/*.yml", ".github/*.yaml") {
		for _, m := range uses.FindAllSubmatch(text, -1) {
			found++
			if !pinned.Match(bytes.TrimSpace(m[1])) {
				t.Errorf("%s: %s: want the SHA of a commit, and its version in a comment", name, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no workflow uses an action")
	}
	for _, moving := range []string{"actions/checkout@v4", "actions/checkout@main", "actions/checkout@11bd719 # v4.2.2", "actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683"} {
		if pinned.MatchString(moving) {
			t.Errorf("%s is taken for pinned", moving)
		}
	}
}
