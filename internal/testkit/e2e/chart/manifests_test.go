// Package chart tests the scheduler that the chart runs, with the rights that it gives.
package chart

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host"
)

// namespace is where the manifests install the scheduler.
const namespace = "kubewasm-scheduler"

const manifests = "../../../../charts/manifests/scheduler/scheduler.yaml"

// manifest is what one rendering of the chart consists of.
type manifest struct {
	objects        []runtime.Object
	deployment     *appsv1.Deployment
	serviceAccount *corev1.ServiceAccount
	configMap      *corev1.ConfigMap
	disruptions    *policyv1.PodDisruptionBudget
	network        *networkingv1.NetworkPolicy
	// roles and clusterRoles are by name, and bindings those to the service account.
	roles        map[string]*rbacv1.Role
	clusterRoles map[string]*rbacv1.ClusterRole
	bindings     []*rbacv1.RoleBinding
	cluster      []*rbacv1.ClusterRoleBinding
}

// read decodes a file. A field that its kind lacks is an error.
func read(t *testing.T, file string) *manifest {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	m := &manifest{roles: map[string]*rbacv1.Role{}, clusterRoles: map[string]*rbacv1.ClusterRole{}}
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(data)))
	for {
		text := make([]byte, len(data))
		n, err := documents.Read(text)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text = bytes.TrimSpace(bytes.TrimPrefix(text[:n], []byte("---"))); len(text) == 0 {
			continue
		}
		object, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		m.objects = append(m.objects, object)
		switch o := object.(type) {
		case *appsv1.Deployment:
			m.deployment = o
		case *corev1.ServiceAccount:
			m.serviceAccount = o
		case *corev1.ConfigMap:
			m.configMap = o
		case *policyv1.PodDisruptionBudget:
			m.disruptions = o
		case *networkingv1.NetworkPolicy:
			m.network = o
		case *rbacv1.Role:
			m.roles[o.Name] = o
		case *rbacv1.ClusterRole:
			m.clusterRoles[o.Name] = o
		case *rbacv1.RoleBinding:
			m.bindings = append(m.bindings, o)
		case *rbacv1.ClusterRoleBinding:
			m.cluster = append(m.cluster, o)
		default:
			t.Errorf("an object of the kind %T", object)
		}
	}
	if m.deployment == nil || m.serviceAccount == nil || m.configMap == nil {
		t.Fatal("the Deployment, the ServiceAccount or the ConfigMap is missing")
	}
	return m
}

// configuration decodes the scheduler's configuration as kube-scheduler does, strictly, and
// validates it.
func (m *manifest) configuration(t *testing.T) *config.KubeSchedulerConfiguration {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(m.configMap.Data["scheduler.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := options.LoadConfigFromFile(klog.Background(), file)
	if err != nil {
		t.Fatal(err)
	}
	if err := validation.ValidateKubeSchedulerConfiguration(c); err != nil {
		t.Error(err)
	}
	return c
}

// TestManifests holds that the rendered manifests are complete and consistent.
func TestManifests(t *testing.T) {
	m := read(t, manifests)
	m.checkPods(t)
	m.checkRights(t)
	m.checkConfiguration(t)
}

// checkPods compares the Deployment with what it refers to.
func (m *manifest) checkPods(t *testing.T) {
	spec, pod := m.deployment.Spec, m.deployment.Spec.Template
	for _, o := range m.objects {
		meta := o.(metav1.Object)
		switch o.(type) {
		case *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding:
			if meta.GetNamespace() != "" {
				t.Errorf("%T %s is in a namespace", o, meta.GetName())
			}
		default:
			if at := meta.GetNamespace(); at != namespace && (meta.GetName() != m.deployment.Name+":authentication-reader" || at != "kube-system") {
				t.Errorf("%T %s is in the namespace %q", o, meta.GetName(), at)
			}
		}
	}
	selectors := map[string]*metav1.LabelSelector{"the Deployment": spec.Selector}
	if (m.disruptions != nil) != (*spec.Replicas > 1) {
		t.Errorf("%d replicas, PodDisruptionBudget %v", *spec.Replicas, m.disruptions)
	}
	if m.disruptions != nil {
		selectors["the PodDisruptionBudget"] = m.disruptions.Spec.Selector
	}
	if m.network == nil {
		t.Error("the NetworkPolicy is missing")
	} else {
		selectors["the NetworkPolicy"] = &m.network.Spec.PodSelector
	}
	for _, c := range pod.Spec.TopologySpreadConstraints {
		selectors["a topology spread constraint"] = c.LabelSelector
	}
	for of, selector := range selectors {
		s, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		if s.Empty() || !s.Matches(labels.Set(pod.Labels)) {
			t.Errorf("%s selects %s, the Pods have %v", of, s, pod.Labels)
		}
	}
	if pod.Spec.ServiceAccountName != m.serviceAccount.Name {
		t.Errorf("service account %s, want %s", pod.Spec.ServiceAccountName, m.serviceAccount.Name)
	}
	c := pod.Spec.Containers[0]
	volumes := map[string]corev1.Volume{}
	for _, v := range pod.Spec.Volumes {
		if v.ConfigMap != nil && v.ConfigMap.Name != m.configMap.Name && v.Name != "module-"+v.ConfigMap.Name {
			t.Errorf("the volume %s is of the ConfigMap %s, which nothing mentions", v.Name, v.ConfigMap.Name)
		}
		volumes[v.Name] = v
	}
	for _, mount := range c.VolumeMounts {
		if _, ok := volumes[mount.Name]; !ok {
			t.Errorf("%s is mounted, and is no volume", mount.Name)
		}
		delete(volumes, mount.Name)
	}
	if len(volumes) != 0 {
		t.Errorf("volumes that are not mounted: %v", volumes)
	}
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe, "readiness": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet.Port.StrVal != c.Ports[0].Name || probe.HTTPGet.Scheme != corev1.URISchemeHTTPS {
			t.Errorf("%s probe: %+v", name, probe)
		}
	}
	if got := c.Ports[0].ContainerPort; got != 10259 {
		t.Errorf("port %d, kube-scheduler serves 10259", got)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("security contexts %+v, %+v", s, pod.Spec.SecurityContext)
	}
}

// checkRights checks that the scheduler's service account has roles, and that those exist.
func (m *manifest) checkRights(t *testing.T) {
	bound := map[string]bool{}
	check := func(name string, ref rbacv1.RoleRef, subjects []rbacv1.Subject, exists bool) {
		bound[ref.Name] = true
		if !exists {
			t.Errorf("%s binds to %s %s, which does not exist", name, ref.Kind, ref.Name)
		}
		if len(subjects) != 1 || subjects[0] != (rbacv1.Subject{Kind: "ServiceAccount", Name: m.serviceAccount.Name, Namespace: m.serviceAccount.Namespace}) {
			t.Errorf("%s binds %+v", name, subjects)
		}
	}
	for _, b := range m.cluster {
		_, ours := m.clusterRoles[b.RoleRef.Name]
		check(b.Name, b.RoleRef, b.Subjects, ours || slices.Contains([]string{"system:kube-scheduler", "system:volume-scheduler"}, b.RoleRef.Name))
	}
	for _, b := range m.bindings {
		role, ours := m.roles[b.RoleRef.Name]
		check(b.Name, b.RoleRef, b.Subjects, ours && role.Namespace == b.Namespace || b.Namespace == "kube-system" && b.RoleRef.Name == "extension-apiserver-authentication-reader")
	}
	for _, name := range []string{"system:kube-scheduler", "system:volume-scheduler", "extension-apiserver-authentication-reader"} {
		if !bound[name] {
			t.Errorf("%s is not bound", name)
		}
	}
	for name := range m.roles {
		if !bound[name] {
			t.Errorf("the Role %s is not bound", name)
		}
	}
	for name := range m.clusterRoles {
		if !bound[name] {
			t.Errorf("the ClusterRole %s is not bound", name)
		}
	}
}

// allows reports whether a rule allows a verb on a resource of a name.
func allows(rules []rbacv1.PolicyRule, group, resource, name, verb string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
	})
}

// checkConfiguration compares the scheduler's configuration with what its Pod has and may.
func (m *manifest) checkConfiguration(t *testing.T) {
	c := m.configuration(t)
	lock := c.LeaderElection
	role, ok := m.roles[m.deployment.Name+":leader"]
	if !lock.LeaderElect || lock.ResourceNamespace != namespace || lock.ResourceName != m.deployment.Name || !ok {
		t.Errorf("leader election %+v, role %v", lock, ok)
	}
	for _, verb := range []string{"create", "get", "update"} {
		name := lock.ResourceName
		if verb == "create" {
			name = "" // It is not known when a request is authorized.
		}
		if ok && !allows(role.Rules, "coordination.k8s.io", "leases", name, verb) {
			t.Errorf("the lease: no right to %s", verb)
		}
	}
	args := m.deployment.Spec.Template.Spec.Containers[0].Args
	if want := "--config=/configuration/scheduler.yaml"; !slices.Contains(args, want) {
		t.Errorf("arguments %q, want %s", args, want)
	}

	modules := 0
	for _, p := range c.Profiles[0].PluginConfig {
		raw, ok := p.Args.(*runtime.Unknown)
		if !ok {
			continue // One of kube-scheduler's own.
		}
		var args struct {
			Module  host.ModuleConfig  `json:"module"`
			Objects []host.ObjectGrant `json:"objects"`
		}
		if err := sigsyaml.Unmarshal(raw.Raw, &args); err != nil {
			t.Fatal(err)
		}
		of := args.Module
		modules++
		if !slices.ContainsFunc(c.Profiles[0].Plugins.MultiPoint.Enabled, func(e config.Plugin) bool { return e.Name == p.Name }) {
			t.Errorf("%s is not enabled", p.Name)
		}
		if mounted := slices.ContainsFunc(m.deployment.Spec.Template.Spec.Containers[0].VolumeMounts, func(v corev1.VolumeMount) bool {
			return strings.HasPrefix(of.File, v.MountPath+"/")
		}); of.File != "" && !mounted && path.Dir(of.File) != "/plugins" {
			t.Errorf("%s: %s is on no volume", p.Name, of.File)
		}
		if errs := of.Check("module"); len(errs) != 0 {
			t.Errorf("%s: %v", p.Name, errs)
		}
		for _, grant := range args.Objects {
			object := grant.Resource
			group, resource := "", path.Base(object)
			if parts := strings.Split(object, "/"); len(parts) == 3 {
				group = parts[0]
			}
			for _, verb := range []string{"get", "list", "watch"} {
				if role := m.clusterRoles[m.deployment.Name+":plugins"]; role == nil || !allows(role.Rules, group, resource, "", verb) {
					t.Errorf("%s looks up %s, without the right to %s", p.Name, object, verb)
				}
			}
		}
	}
	if modules == 0 {
		t.Error("no plugin has a module")
	}
}
