package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

// violations returns what Pod security's restricted level has against a Pod, a line each.
func violations(t *testing.T, meta *metav1.ObjectMeta, spec *corev1.PodSpec) (lines []string) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, result := range evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}, meta, spec) {
		if !result.Allowed {
			lines = append(lines, fmt.Sprintf("%s: %s", result.ForbiddenReason, result.ForbiddenDetail))
		}
	}
	slices.Sort(lines)
	return lines
}

// TestServersAreRestricted holds that the Pods of all programs but the agent have the restricted
// level of Pod security, and a read-only root file system besides.
func TestServersAreRestricted(t *testing.T) {
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			i := install(t, name)
			check := func(name string, meta *metav1.ObjectMeta, spec *corev1.PodSpec) {
				for _, line := range violations(t, meta, spec) {
					t.Errorf("%s: %s", name, line)
				}
				for _, c := range spec.Containers {
					if c.SecurityContext.ReadOnlyRootFilesystem == nil || !*c.SecurityContext.ReadOnlyRootFilesystem {
						t.Errorf("%s: the root file system of %s is writable", name, c.Name)
					}
				}
			}
			for _, w := range i.workloads() {
				if w.component != "agent" {
					check(w.GetName(), &w.template.ObjectMeta, &w.template.Spec)
				}
			}
			for _, job := range all[*batchv1.Job](i) {
				check(job.Name, &job.Spec.Template.ObjectMeta, &job.Spec.Template.Spec)
			}
			for _, p := range all[*unstructured.Unstructured](i) { // As Kubewarden's controller makes its Pods.
				if p.GetKind() != "PolicyServer" {
					continue
				}
				contexts, _, err := unstructured.NestedMap(p.Object, "spec", "securityContexts")
				if err != nil {
					t.Fatal(err)
				}
				var of struct {
					Pod       *corev1.PodSecurityContext `json:"pod"`
					Container *corev1.SecurityContext    `json:"container"`
				}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(contexts, &of); err != nil {
					t.Fatal(err)
				}
				check(p.GetName(), &metav1.ObjectMeta{}, &corev1.PodSpec{SecurityContext: of.Pod, Containers: []corev1.Container{{Name: "policy-server", SecurityContext: of.Container}}})
			}
		})
	}
}

// TestAgentsNeed lists what the Pods of agents need beyond the restricted level, for each mode.
// docs/installing.md has the reasons.
func TestAgentsNeed(t *testing.T) {
	i := install(t, "agent-pools")
	ofDefault := install(t, "agent")
	pools := map[string]*appsv1.DaemonSet{"all": all[*appsv1.DaemonSet](ofDefault)[0]}
	for _, d := range all[*appsv1.DaemonSet](i) {
		pools[d.Spec.Template.Labels["kubewasm.dev/pool"]] = d
	}
	const (
		root    = `runAsUser=0: pod must not set runAsUser=0`
		nonRoot = `runAsNonRoot != true: pod or container "agent" must set securityContext.runAsNonRoot=true`
		scores  = `unrestricted capabilities: container "agent" must not include "DAC_OVERRIDE", "SYS_RESOURCE" in securityContext.capabilities.add`
		cores   = `unrestricted capabilities: container "agent" must not include "SYS_PTRACE" in securityContext.capabilities.add`
	)
	types := func(volumes string) string {
		return `restricted volume types: volumes ` + volumes + ` use restricted volume type "hostPath"`
	}
	const port = `hostPort: container "agent" uses hostPort 9808`
	for _, test := range []struct {
		pool string
		// want is in the words of Pod security.
		want []string
		// mounts are the directories of the node, with rw or ro.
		mounts []string
		// token is set if the Pod has the token of its account.
		token bool
	}{
		{"all", []string{"host namespaces: hostNetwork=true", port, types(`"cache", "cgroup", "nri"`), root, nonRoot},
			[]string{"/sys/fs/cgroup rw", "/var/cache/kubewasm rw", "/var/run/nri rw"}, true},
		{"required", []string{"host namespaces: hostNetwork=true, hostPID=true", port, types(`"cache", "cgroup", "nri", "root"`), root, nonRoot, scores},
			[]string{"/ ro", "/sys/fs/cgroup rw", "/var/cache/kubewasm rw", "/var/run/nri rw"}, true},
		{"cache", []string{"host namespaces: hostPID=true", types(`"cache", "cgroup", "cri", "resctrl"`), root, nonRoot, cores,
			`forbidden AppArmor profile: container "agent" must not set AppArmor profile type to "Unconfined"`},
			[]string{"/run/containerd rw", "/sys/fs/cgroup rw", "/sys/fs/resctrl rw", "/var/cache/kubewasm rw"}, false},
		{"proxy", []string{types(`"cache", "cgroup", "hooks", "registration"`), root, nonRoot},
			[]string{"/etc/runtime/hookserver.d rw", "/run/kubewasm rw", "/sys/fs/cgroup rw", "/var/cache/kubewasm rw"}, false},
		{"others", []string{"host namespaces: hostNetwork=true", port, types(`"cache", "cgroup", "nri", "kubelet"`), root, nonRoot},
			[]string{"/sys/fs/cgroup rw", "/var/cache/kubewasm rw", "/var/lib/kubelet/pki/kubelet.crt ro", "/var/run/nri rw"}, true},
	} {
		t.Run(test.pool, func(t *testing.T) {
			d := pools[test.pool]
			spec := &d.Spec.Template.Spec
			slices.Sort(test.want)
			if diff := cmp.Diff(test.want, violations(t, &d.Spec.Template.ObjectMeta, spec)); diff != "" {
				t.Errorf("beyond the restricted level (-want +got)\n%s", diff)
			}
			var mounts []string
			for _, m := range spec.Containers[0].VolumeMounts {
				i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
				if h := spec.Volumes[i].HostPath; h != nil {
					mode := " rw"
					if m.ReadOnly {
						mode = " ro"
					}
					mounts = append(mounts, h.Path+mode)
				} else if !m.ReadOnly {
					t.Errorf("%s is mounted for writing", m.Name)
				}
			}
			slices.Sort(mounts)
			if diff := cmp.Diff(test.mounts, mounts); diff != "" {
				t.Errorf("directories of the node (-want +got)\n%s", diff)
			}
			if got := *spec.AutomountServiceAccountToken; got != test.token {
				t.Errorf("the Pod has a token: %t", got)
			}
			if dns := spec.DNSPolicy; (dns == corev1.DNSClusterFirstWithHostNet) != spec.HostNetwork {
				t.Errorf("dnsPolicy is %s, hostNetwork %t", dns, spec.HostNetwork)
			}
		})
	}
}

// TestOneAgentOnANode holds that the Pods of different DaemonSets and releases exclude each other.
func TestOneAgentOnANode(t *testing.T) {
	for _, name := range []string{"agent", "agent-pools", "all"} {
		for _, d := range all[*appsv1.DaemonSet](install(t, name)) {
			spec := d.Spec.Template.Spec
			terms := spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			if !slices.ContainsFunc(terms, func(term corev1.PodAffinityTerm) bool {
				s, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
				everywhere := term.NamespaceSelector != nil && len(term.NamespaceSelector.MatchLabels)+len(term.NamespaceSelector.MatchExpressions) == 0
				return err == nil && everywhere && term.TopologyKey == corev1.LabelHostname && s.String() == "kubewasm.dev/agent=true"
			}) || d.Spec.Template.Labels["kubewasm.dev/agent"] != "true" {
				t.Errorf("%s: %s may run beside another agent", name, d.Name)
			}
			// What the user says of nodes is kept.
			if d.Name == "kubewasm-agent-others" && spec.Affinity.NodeAffinity == nil {
				t.Errorf("%s: %s has lost its affinity", name, d.Name)
			}
		}
	}
}

// TestAgentsFollowIfTheyAreTold holds that the file of each pool has agent.follow: without it, agents
// follow their file, and a change would reach all nodes at once and not by maxUnavailable.
func TestAgentsFollowIfTheyAreTold(t *testing.T) {
	for _, follow := range []bool{false, true} {
		values, err := readValues("agent-pools")
		if err != nil {
			t.Fatal(err)
		}
		values["agent"].(map[string]any)["follow"] = follow
		i := installValues(t, values)
		for _, w := range i.workloads() {
			var file struct {
				Follow *bool `json:"follow"`
			}
			if err := yaml.Unmarshal([]byte(i.file(t, w, argument(w, "-config"))), &file); err != nil {
				t.Fatal(err)
			}
			if file.Follow == nil {
				t.Errorf("with agent.follow %t, the file of %s has no follow", follow, w.GetName())
			} else if *file.Follow != follow {
				t.Errorf("with agent.follow %t, the file of %s has %t", follow, w.GetName(), *file.Follow)
			}
			if _, rolls := w.template.Annotations["checksum/configuration"]; rolls == follow {
				t.Errorf("with agent.follow %t, the Pods of %s roll: %t", follow, w.GetName(), rolls)
			}
		}
	}
}

// TestAgentsRollByTheirConfiguration holds that the Pods of a pool change with its configuration, and
// with no other pool's.
func TestAgentsRollByTheirConfiguration(t *testing.T) {
	sums := func(change func(pools []any)) map[string]string {
		values, err := readValues("agent-pools")
		if err != nil {
			t.Fatal(err)
		}
		change(values["agent"].(map[string]any)["pools"].([]any))
		got := map[string]string{}
		for _, d := range all[*appsv1.DaemonSet](installValues(t, values)) {
			got[strings.TrimPrefix(d.Name, "kubewasm-agent-")] = d.Spec.Template.Annotations["checksum/configuration"]
		}
		return got
	}
	before := sums(func([]any) {})
	after := sums(func(pools []any) {
		pools[3].(map[string]any)["configuration"] = map[string]any{"dryRun": true}
	})
	for pool, sum := range before {
		if sum == "" || (after[pool] != sum) != (pool == "others") {
			t.Errorf("the checksum of %s was %s and is %s", pool, sum, after[pool])
		}
	}
}
