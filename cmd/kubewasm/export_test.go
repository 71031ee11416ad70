package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// constraint returns a constraint of Gatekeeper with a member of its match.
func constraint(match string) string {
	return "apiVersion: constraints.gatekeeper.sh/v1beta1\nkind: K8sPrivileged\nmetadata: {name: one}\nspec: {match: {" + match + "}}\n"
}

// matching returns the policy of such a constraint. Its rules have the groups and resources of rules, in
// YAML.
func matching(rules string) string {
	var match struct {
		Rules []map[string]any `json:"rules"`
	}
	if err := yaml.Unmarshal([]byte("rules:"+rules+"\n"), &match); err != nil {
		panic(err)
	}
	for _, rule := range match.Rules {
		rule["apiVersions"], rule["operations"] = []string{"*"}, []string{"CREATE", "UPDATE"}
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubewasm.dev/v1alpha1", "kind": "ClusterAdmissionPolicy", "metadata": map[string]any{"name": "k8sprivileged-one"},
		"spec": map[string]any{"dialect": map[string]any{"rego": map[string]any{"gatekeeper": true}}, "match": match, "module": map[string]any{"oci": "a/b:1"}},
	})
	if err != nil {
		panic(err)
	}
	return string(text)
}

func TestExport(t *testing.T) {
	tests := map[string]struct {
		in   string
		args []string
		// want is the output, and err a part of the error.
		want, err string
	}{
		"a policy of a file": {
			in: `
plugins:
- name: zone
  version: "1.2"
  module: {oci: "ghcr.io/acme/zone:1.2"}
  guestConfig: {zones: [a]}
  mode: Monitor
  match: {rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  record: {path: /var/record}
`,
			want: `apiVersion: kubewasm.dev/v1alpha1
kind: ClusterAdmissionPolicy
metadata:
  name: zone
spec:
  guestConfig:
    zones:
    - a
  match:
    rules:
    - apiGroups:
      - ""
      apiVersions:
      - v1
      operations:
      - CREATE
      resources:
      - pods
  mode: Monitor
  module:
    oci: ghcr.io/acme/zone:1.2
  version: "1.2"
`,
		},
		"a hook of an agent's file": {
			in: `
cacheDir: /var/cache
plugins:
- name: share
  module: {oci: "ghcr.io/acme/share:1"}
  nodeSelector: pool=batch
  failurePolicy: Ignore
`,
			want: `apiVersion: kubewasm.dev/v1alpha1
kind: NodeHook
metadata:
  name: share
spec:
  failurePolicy: Ignore
  module:
    oci: ghcr.io/acme/share:1
  nodeSelector: pool=batch
`,
		},
		"a plugin that may be of two kinds": {
			in:  "plugins:\n- name: any\n  module: {oci: \"a/b:1\"}\n",
			err: "any may be a ClusterAdmissionPolicy or a NodeHook: choose one by --kind",
		},
		"a plugin of the kind that is chosen": {
			args: []string{"--kind", "NodeHook"},
			in:   "plugins:\n- name: any\n  module: {oci: \"a/b:1\"}\n",
			want: `apiVersion: kubewasm.dev/v1alpha1
kind: NodeHook
metadata:
  name: any
spec:
  module:
    oci: a/b:1
`,
		},
		"a plugin without a name, a group and a wrong member": {
			in: `
groups: [{name: both}]
plugins:
- module: {oci: "a/b:1"}
- name: x
  module: {oci: "a/b:1"}
  limits: {fule: 1}
`,
			err: "the group both stays in the file: there are no objects of groups\n" +
				"\tplugins[0] has no name\n\tx as a ClusterAdmissionPolicy: spec: unknown field \"limits.fule\"",
		},
		"a policy of Kubewarden": {
			in: `
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {name: hosts}
spec:
  module: registry://ghcr.io/kubewarden/policies/unique-hosts:v1
  policyServer: default
  backgroundAudit: true
  timeoutEvalSeconds: 2
  mutating: true
  mode: monitor
  failurePolicy: Ignore
  settings: {a: 1}
  rules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [ingresses]}]
  contextAwareResources: [{apiVersion: networking.k8s.io/v1, kind: Ingress}]
`,
			want: `apiVersion: kubewasm.dev/v1alpha1
kind: ClusterAdmissionPolicy
metadata:
  name: hosts
spec:
  allowedToMutate: true
  dialect:
    kubewarden:
      contextAwareResources:
      - apiVersion: networking.k8s.io/v1
        kind: Ingress
      hostCapabilities:
      - kubernetes/get_resource
      - kubernetes/list_resources_all
      - kubernetes/list_resources_by_namespace
  failurePolicy: Ignore
  guestConfig:
    a: 1
  limits:
    timeout: 2s
  match:
    rules:
    - apiGroups:
      - networking.k8s.io
      apiVersions:
      - v1
      operations:
      - CREATE
      - UPDATE
      resources:
      - ingresses
  mode: Monitor
  module:
    oci: ghcr.io/kubewarden/policies/unique-hosts:v1
`,
		},
		"policies of Kubewarden that do not map": {
			in: `
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicyGroup
metadata: {name: group}
spec: {}
---
apiVersion: policies.kubewarden.io/v1
kind: ClusterAdmissionPolicy
metadata: {name: conditions}
spec:
  module: ghcr.io/a/b:1
  matchConditions: [{name: x, expression: "false"}]
---
apiVersion: policies.kubewarden.io/v1
kind: AdmissionPolicy
metadata: {name: sees, namespace: shop}
spec:
  module: ghcr.io/a/b:1
  contextAwareResources: [{apiVersion: v1, kind: Pod}]
---
apiVersion: policies.kubewarden.io/v1
kind: AdmissionPolicy
metadata: {name: later, namespace: shop}
spec:
  module: ghcr.io/a/b:1
  newMember: 1
`,
			err: "ClusterAdmissionPolicyGroup group: there are no objects of groups",
		},
		"a constraint of Gatekeeper": {
			args: []string{"--template", "K8sRequiredLabels=ghcr.io/acme/labels:1"},
			in: `
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: owner}
spec:
  enforcementAction: dryrun
  match:
    kinds: [{apiGroups: [""], kinds: [Namespace]}, {apiGroups: [networking.k8s.io], kinds: [Ingress, NetworkPolicy]}]
    excludedNamespaces: [kube-system]
    labelSelector: {matchLabels: {a: b}}
  parameters: {labels: [owner]}
---
apiVersion: templates.gatekeeper.sh/v1
kind: ConstraintTemplate
metadata: {name: k8srequiredlabels}
`,
			want: `apiVersion: kubewasm.dev/v1alpha1
kind: ClusterAdmissionPolicy
metadata:
  name: k8srequiredlabels-owner
spec:
  dialect:
    rego:
      gatekeeper: true
  guestConfig:
    labels:
    - owner
  match:
    namespaceSelector:
      matchExpressions:
      - key: kubernetes.io/metadata.name
        operator: NotIn
        values:
        - kube-system
    objectSelector:
      matchLabels:
        a: b
    rules:
    - apiGroups:
      - ""
      apiVersions:
      - '*'
      operations:
      - CREATE
      - UPDATE
      resources:
      - namespaces
    - apiGroups:
      - networking.k8s.io
      apiVersions:
      - '*'
      operations:
      - CREATE
      - UPDATE
      resources:
      - ingresses
      - networkpolicies
  mode: Monitor
  module:
    oci: ghcr.io/acme/labels:1
`,
		},
		"a constraint on Pods": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`kinds: [{apiGroups: ["", apps], kinds: [Pod, Deployment]}]`),
			want: matching(`
    - apiGroups: ["", apps]
      resources: [pods, deployments]
    - apiGroups: [""]
      resources: [pods/ephemeralcontainers]`),
		},
		"a constraint on all kinds": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`scope: "*"`),
			want: matching(`
    - apiGroups: ['*']
      resources: ['*']
    - apiGroups: [""]
      resources: [pods/ephemeralcontainers, pods/binding, services/status, pods/eviction, replicationcontrollers/scale]
    - apiGroups: [apps]
      resources: [deployments/scale, replicasets/scale, statefulsets/scale]`),
		},
		"a constraint on a subresource, and a Service": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`kinds: [{apiGroups: [policy], kinds: [Eviction]}, {apiGroups: [""], kinds: [Service, Endpoints]}]`),
			want: matching(`
    - apiGroups: [""]
      resources: [pods/eviction]
    - apiGroups: [""]
      resources: [services, endpoints, services/status]`),
		},
		"a constraint on kinds of Kubernetes in other modules": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`kinds: [{apiGroups: [apiextensions.k8s.io], kinds: [CustomResourceDefinition]}, {apiGroups: [apiregistration.k8s.io], kinds: [APIService]}]`),
			want: matching(`
    - apiGroups: [apiextensions.k8s.io]
      resources: [customresourcedefinitions]
    - apiGroups: [apiregistration.k8s.io]
      resources: [apiservices]`),
		},
		"a constraint on a kind whose plural is named": {
			args: []string{"--template", "K8sPrivileged=a/b:1", "--resource", "Gateway=gateways"},
			in:   constraint(`kinds: [{apiGroups: [gateway.networking.k8s.io], kinds: [Gateway]}]`),
			want: matching(`
    - apiGroups: [gateway.networking.k8s.io]
      resources: [gateways]`),
		},
		"a constraint on a kind whose plural is not known": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`kinds: [{apiGroups: [gateway.networking.k8s.io], kinds: [Gateway]}]`),
			err:  "name it by --resource Gateway=PLURAL",
		},
		"a constraint on a kind of another group": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`kinds: [{apiGroups: [serving.knative.dev], kinds: [Service]}]`),
			err:  "name it by --resource Service=PLURAL",
		},
		"a constraint on versions": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`kinds: [{apiGroups: [""], kinds: [Pod], apiVersions: [v1]}]`),
			err:  "match.kinds[].apiVersions have no equivalent",
		},
		"a constraint with a wrong list": {
			args: []string{"--template", "K8sPrivileged=a/b:1"},
			in:   constraint(`excludedNamespaces: kube-system`),
			err:  "match.excludedNamespaces is no list",
		},
		"two plugins of a name": {
			args: []string{"--kind", "NodeHook"},
			in:   "plugins:\n- {name: a, module: {oci: \"a/b:1\"}}\n- {name: a, module: {oci: \"a/b:2\"}}\n",
			err:  "there are two objects NodeHook a",
		},
		"plugins in another order than that of their names": {
			args: []string{"--kind", "NodeHook", "-o", "json"},
			in:   "plugins:\n- {name: b, module: {oci: \"a/b:1\"}}\n- {name: a, module: {oci: \"a/b:1\"}}\n- {name: c, order: -1, module: {oci: \"a/b:1\"}}\n",
			want: `{
  "apiVersion": "v1",
  "items": [
    {
      "apiVersion": "kubewasm.dev/v1alpha1",
      "kind": "NodeHook",
      "metadata": {
        "name": "b"
      },
      "spec": {
        "module": {
          "oci": "a/b:1"
        },
        "order": 2
      }
    },
    {
      "apiVersion": "kubewasm.dev/v1alpha1",
      "kind": "NodeHook",
      "metadata": {
        "name": "a"
      },
      "spec": {
        "module": {
          "oci": "a/b:1"
        },
        "order": 3
      }
    },
    {
      "apiVersion": "kubewasm.dev/v1alpha1",
      "kind": "NodeHook",
      "metadata": {
        "name": "c"
      },
      "spec": {
        "module": {
          "oci": "a/b:1"
        },
        "order": 1
      }
    }
  ],
  "kind": "List"
}
`,
		},
		"a constraint with a pattern": {
			args: []string{"--template", "K8sRequiredLabels=ghcr.io/acme/labels:1"},
			in: `
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: owner}
spec: {match: {excludedNamespaces: ["kube-*"]}}
`,
			err: `match.excludedNamespaces has the pattern "kube-*"`,
		},
		"a constraint without its module": {
			in: `
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: owner}
`,
			err: "--template K8sRequiredLabels=REFERENCE",
		},
		"nothing to export": {
			in:  "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
			err: "there are no plugins",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "in.yaml")
			if err := os.WriteFile(file, []byte(test.in), 0o600); err != nil {
				t.Fatal(err)
			}
			var out, errs strings.Builder
			code := dispatch(t.Context(), &tool{out: &out, err: &errs}, append(append([]string{"export"}, test.args...), file))
			if test.err != "" {
				if code != exitError || !strings.Contains(errs.String(), test.err) || out.Len() != 0 {
					t.Errorf("got exit code %d, output %q and error\n%s\nwant an error with\n%s", code, out.String(), errs.String(), test.err)
				}
				return
			}
			if code != 0 {
				t.Fatalf("exit code %d: %s", code, errs.String())
			}
			if diff := cmp.Diff(test.want, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
