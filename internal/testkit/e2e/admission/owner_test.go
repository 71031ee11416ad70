package admission_test

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	arv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// shippedWebhooks returns the configurations of the manifests, which call the program at addr.
func (f *fixture) shippedWebhooks(t *testing.T, addr string) (m *arv1.MutatingWebhookConfiguration, v *arv1.ValidatingWebhookConfiguration) {
	t.Helper()
	for _, object := range documents(t, charts+"webhook/webhooks.yaml") {
		var into any = new(arv1.ValidatingWebhookConfiguration)
		if object.GetKind() == "MutatingWebhookConfiguration" {
			into = new(arv1.MutatingWebhookConfiguration)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
			t.Fatal(err)
		}
		switch c := into.(type) {
		case *arv1.MutatingWebhookConfiguration:
			m = c
		case *arv1.ValidatingWebhookConfiguration:
			v = c
		}
	}
	config := func(path string) arv1.WebhookClientConfig {
		url := "https://" + addr + path
		return arv1.WebhookClientConfig{URL: &url, CABundle: f.authority.PEM}
	}
	m.Webhooks[0].ClientConfig, v.Webhooks[0].ClientConfig = config("/mutate"), config("/validate")
	return m, v
}

// shippedPolicy makes the API server's own policy of the node agent's manifests.
func (f *fixture) shippedPolicy(t *testing.T) {
	t.Helper()
	policy, binding := new(arv1.ValidatingAdmissionPolicy), new(arv1.ValidatingAdmissionPolicyBinding)
	into := map[string]any{"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
	for _, object := range rendered(t, "kubewasm-agent", "kube-system", "agent", "agent.guardAnnotation=true") {
		if of := into[object.GetKind()]; of != nil {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, of); err != nil {
				t.Fatal(err)
			}
		}
	}
	client := f.Client.AdmissionregistrationV1()
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// owner is a user who may do everything in the namespace tenant, and change the namespace.
type owner struct {
	kubernetes.Interface
	config *rest.Config
}

func (f *fixture) owner(t *testing.T) *owner {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: "tenant"}}
	if _, err := f.Client.CoreV1().ServiceAccounts("tenant").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}}
	all := []string{"*"}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "owner"}, Rules: []rbacv1.PolicyRule{{APIGroups: all, Resources: all, Verbs: all}}}
	namespace := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "owner-of-tenant"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{"namespaces"}, ResourceNames: []string{"tenant"}, Verbs: all,
	}}}
	client := f.Client.RbacV1()
	for _, create := range []func() error{
		func() error {
			_, err := client.Roles("tenant").Create(t.Context(), role, metav1.CreateOptions{})
			return err
		},
		func() error {
			binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "owner"}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
			_, err := client.RoleBindings("tenant").Create(t.Context(), binding, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := client.ClusterRoles().Create(t.Context(), namespace, metav1.CreateOptions{})
			return err
		},
		func() error {
			binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: namespace.Name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: namespace.Name}}
			_, err := client.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{})
			return err
		},
	} {
		if err := create(); err != nil {
			t.Fatal(err)
		}
	}
	token, err := f.Client.CoreV1().ServiceAccounts("tenant").CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(f.Config)
	config.BearerToken, config.QPS = token.Status.Token, -1
	o := &owner{config: config}
	if o.Interface, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return o
}

// as returns the owner's client that impersonates another user.
func (o *owner) as(t *testing.T, user string, groups ...string) kubernetes.Interface {
	t.Helper()
	config := rest.CopyConfig(o.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// badPod returns a Pod of the tenant without the label and with an image of elsewhere.
func badPod(name string) *corev1.Pod {
	p := pod(name)
	p.Namespace, p.Spec.Containers[0].Image = "tenant", "busybox"
	return p
}

func goodPod(name string) *corev1.Pod {
	p := pod(name)
	p.Namespace, p.Labels = "tenant", map[string]string{"team": "tenant"}
	return p
}

// withoutAgent gives a Pod the annotation by which it starts without the node agent.
func withoutAgent(p *corev1.Pod) *corev1.Pod {
	p.Annotations["kubewasm.dev/tolerate-no-agent"] = "true"
	return p
}

func tenantIngress(name, host string, finalizers ...string) *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}, Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: host}}}}
}

// What the owner reads.
const (
	noLabel   = "required-labels: metadata.labels[team]: Required value: every Pod must have it"
	badImage  = `Invalid value: "busybox": must come from registry.example.com/`
	takenHost = `unique-hosts: spec.rules[0].host: Invalid value: "taken.example.com": the Ingress other/taken has it`
	finalizer = "tenant.example.com/keep"
	noAgent   = "the annotation kubewasm.dev/tolerate-no-agent is for Pods of kube-system"
)

// TestNamespaceOwner holds that a user with every right in a namespace gets past no policy of
// the manifests, on a real API server with RBAC.
func TestNamespaceOwner(t *testing.T) {
	f := start(t)
	admin := f.Client
	for _, name := range []string{installed, "tenant", "other"} {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o := f.owner(t)
	// What is there before the webhooks are.
	if _, err := admin.NetworkingV1().Ingresses("other").Create(t.Context(), tenantIngress("taken", "taken.example.com"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the owner's rights", func() bool {
		_, err := o.CoreV1().ConfigMaps("tenant").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "stuck", Finalizers: []string{finalizer, finalizer + "-too"}}, Data: map[string]string{"a": "1"},
		}, metav1.CreateOptions{})
		return err == nil
	})

	file := shippedPolicies(t)
	for _, name := range []string{"required-labels", "resource-defaults", "stellar-node", "unique-hosts"} {
		file = strings.Replace(file, "/plugins/"+name+".wasm", guest(t, examples+"admission/"+name), 1)
	}
	// Policies that name one version, and one that denies whatever it is asked about.
	nope := base64.StdEncoding.EncodeToString(denier("nope"))
	file += fmt.Sprintf(`
- name: scaling
  module: {bytes: %[1]s}
  match: {rules: [{operations: [CREATE, UPDATE], apiGroups: [autoscaling], apiVersions: [v2], resources: [horizontalpodautoscalers]}]}
- name: silence
  module: {bytes: %[1]s}
  match: {rules: [{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [events]}]}
- name: frozen
  module: {bytes: %[1]s}
  match: {rules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [configmaps]}]}
`, nope)
	policies := filepath.Join(f.dir, "owner.yaml")
	replace(t, policies, []byte(file))
	addr := f.programWith(t, "-config", policies, "-kubeconfig", f.serviceAccount(t), "-interval", "100ms")
	mutating, validating := f.shippedWebhooks(t, addr)
	// A webhook that sends all versions, by the conditions of the manifests.
	more := *validating.Webhooks[0].DeepCopy()
	more.Name = "more.kubewasm.dev"
	more.Rules = []arv1.RuleWithOperations{{Operations: []arv1.OperationType{arv1.Create, arv1.Update}, Rule: arv1.Rule{
		APIGroups: []string{"", "autoscaling", "events.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"configmaps", "horizontalpodautoscalers", "events"},
	}}}
	validating.Webhooks = append(validating.Webhooks, more)
	client := admin.AdmissionregistrationV1()
	if _, err := client.ValidatingWebhookConfigurations().Create(t.Context(), validating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.MutatingWebhookConfigurations().Create(t.Context(), mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	eventually(t, "the webhooks of the manifests", func() bool {
		_, err := o.CoreV1().Pods("tenant").Create(t.Context(), badPod("bad"), dryRun)
		if err == nil || !strings.Contains(err.Error(), noLabel) {
			return false
		}
		p, err := o.CoreV1().Pods("tenant").Create(t.Context(), goodPod("defaults"), dryRun)
		return err == nil && p.Labels["kubewasm.dev/resource-defaults"] == "true"
	})
	if p, err := o.CoreV1().Pods("tenant").Create(t.Context(), goodPod("good"), metav1.CreateOptions{}); err != nil {
		t.Fatal(p, err)
	}
	f.shippedPolicy(t)
	eventually(t, "the policy of the node agent's manifests", func() bool {
		_, err := o.CoreV1().Pods("tenant").Create(t.Context(), withoutAgent(goodPod("agentless")), dryRun)
		return err != nil && strings.Contains(err.Error(), noAgent)
	})
	t.Run("the label that exempted a namespace", o.testLabel)
	t.Run("an Ingress that is being deleted", o.testIngressBeingDeleted)
	t.Run("an object that no update of would be admitted", o.testRemovalOfFinalizers)
	t.Run("a version that the policy does not name", o.testOtherVersion)
	t.Run("further attempts", o.testAttempts)
	t.Run("the namespace is being deleted", o.testNamespaceBeingDeleted)
}

// expect reports an error that does not say what it should.
func expect(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error is %v, want %s", what, err, want)
	}
}

func (o *owner) testLabel(t *testing.T) {
	patch := []byte(`{"metadata":{"labels":{"kubewasm.dev/webhook":"ignore","kubernetes.io/metadata.name":"kube-system","name":"kube-system"}}}`)
	namespace, err := o.CoreV1().Namespaces().Patch(t.Context(), "tenant", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil || namespace.Labels["kubewasm.dev/webhook"] != "ignore" || namespace.Labels["kubernetes.io/metadata.name"] != "tenant" {
		t.Fatalf("labels are %v, %v", namespace.Labels, err)
	}
	_, err = o.CoreV1().Pods("tenant").Create(t.Context(), badPod("bad"), metav1.CreateOptions{})
	expect(t, "a Pod", err, noLabel)
}

func (o *owner) testIngressBeingDeleted(t *testing.T) {
	ingresses := o.NetworkingV1().Ingresses("tenant")
	if _, err := ingresses.Create(t.Context(), tenantIngress("held", "held.example.com", finalizer), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := ingresses.Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	held, err := ingresses.Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil || held.DeletionTimestamp == nil {
		t.Fatalf("it is not being deleted: %v", err)
	}
	changed := held.DeepCopy()
	changed.Spec.Rules[0].Host = "taken.example.com"
	_, err = ingresses.Update(t.Context(), changed, metav1.UpdateOptions{})
	expect(t, "another host", err, takenHost)
	changed.Finalizers = nil
	_, err = ingresses.Update(t.Context(), changed, metav1.UpdateOptions{})
	expect(t, "another host, and no finalizer", err, takenHost)
	held.Finalizers = nil
	if _, err := ingresses.Update(t.Context(), held, metav1.UpdateOptions{}); err != nil {
		t.Errorf("no finalizer: %v", err)
	}
	if _, err := ingresses.Get(t.Context(), "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Ingress is there without its finalizer: %v", err)
	}
}

// testRemovalOfFinalizers holds that an object goes away that a policy denies each update of.
func (o *owner) testRemovalOfFinalizers(t *testing.T) {
	configMaps := o.CoreV1().ConfigMaps("tenant")
	patch := func(patch string) error {
		_, err := configMaps.Patch(t.Context(), "stuck", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	expect(t, "its finalizers, while it is not being deleted", patch(`{"metadata":{"finalizers":null}}`), "frozen: nope")
	if err := configMaps.Delete(t.Context(), "stuck", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, patch, want string }{
		{"data", `{"data":{"a":"2"}}`, "frozen: nope"},
		{"new data", `{"data":{"b":"2"}}`, "frozen: nope"},
		{"no data", `{"data":null}`, "frozen: nope"},
		{"immutable", `{"immutable":true}`, "frozen: nope"},
		{"a label", `{"metadata":{"labels":{"a":"b"}}}`, "frozen: nope"},
		{"an annotation beside the removal of a finalizer", `{"metadata":{"annotations":{"a":"b"},"finalizers":["` + finalizer + `"]}}`, "frozen: nope"},
		{"an owner", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"good","uid":"u"}]}}`, "frozen: nope"},
		{"another finalizer", `{"metadata":{"finalizers":["` + finalizer + `","example.com/new"]}}`, "no new finalizers can be added if the object is being deleted"},
		{"no deletion", `{"metadata":{"deletionTimestamp":null},"data":{"a":"3"}}`, "frozen: nope"},
	} {
		expect(t, test.name, patch(test.patch), test.want)
	}
	if err := patch(`{"metadata":{"finalizers":["` + finalizer + `"]}}`); err != nil {
		t.Errorf("one finalizer of two: %v", err)
	}
	if err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
		t.Errorf("the last finalizer: %v", err)
	}
	if _, err := configMaps.Get(t.Context(), "stuck", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap is there without its finalizers: %v", err)
	}
}

func (o *owner) testOtherVersion(t *testing.T) {
	meta := metav1.ObjectMeta{Name: "web"}
	const unnamed = `policy "scaling": match: the request is for horizontalpodautoscalers of autoscaling/v1, and the rules name autoscaling/v2`
	_, err := o.AutoscalingV2().HorizontalPodAutoscalers("tenant").Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web", APIVersion: "apps/v1"}, MaxReplicas: 1000,
	}}, metav1.CreateOptions{})
	expect(t, "the version that it names", err, "scaling: nope")
	_, err = o.AutoscalingV1().HorizontalPodAutoscalers("tenant").Create(t.Context(), &autoscalingv1.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "web", APIVersion: "apps/v1"}, MaxReplicas: 1000,
	}}, metav1.CreateOptions{})
	expect(t, "another version", err, unnamed)
	_, err = o.CoreV1().Events("tenant").Create(t.Context(), &corev1.Event{ObjectMeta: meta, InvolvedObject: corev1.ObjectReference{Namespace: "tenant"}}, metav1.CreateOptions{})
	expect(t, "the group that it names", err, "silence: nope")
	_, err = o.EventsV1().Events("tenant").Create(t.Context(), &eventsv1.Event{
		ObjectMeta: meta, EventTime: metav1.NowMicro(), Action: "a", Reason: "r", Type: "Normal", ReportingController: "example.com/c", ReportingInstance: "i",
		Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "tenant", Name: "good"},
	}, metav1.CreateOptions{})
	expect(t, "another group", err, `policy "silence": match: the request is for events of events.k8s.io/v1, and the rules name v1`)
}

func (o *owner) testAttempts(t *testing.T) {
	ctx := t.Context()
	create, force := metav1.CreateOptions{}, true
	core := o.CoreV1()
	pods := core.Pods("tenant")
	post := func(p *corev1.Pod, change func(*corev1.Pod)) error {
		change(p)
		_, err := pods.Create(ctx, p, create)
		return err
	}
	patch := func(kind types.PatchType, patch string, options metav1.PatchOptions, subresources ...string) error {
		_, err := pods.Patch(ctx, "good", kind, []byte(patch), options, subresources...)
		return err
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "tenant"}}, Spec: badPod("").Spec}
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	once := *template.DeepCopy()
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	meta := metav1.ObjectMeta{Name: "attempt"}
	apply := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"team":"tenant"}},"spec":{"containers":[{"name":"web","image":"busybox"}]}}`
	const cannot, forbidden = "cannot impersonate", "is forbidden: User \"system:serviceaccount:tenant:owner\" cannot"
	for _, test := range []struct {
		name string
		try  func() error
		want string
	}{
		{"a name that the API server gives", func() error {
			return post(badPod(""), func(p *corev1.Pod) { p.GenerateName = "attempt-" })
		}, noLabel},
		{"a dry run", func() error {
			_, err := pods.Create(ctx, badPod("attempt"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}, noLabel},
		{"labels and annotations of the Pod", func() error {
			return post(badPod("attempt"), func(p *corev1.Pod) {
				p.Labels = map[string]string{"kubewasm.dev/webhook": "ignore"}
				p.Annotations = map[string]string{"kubewasm.dev/webhook": "ignore", "kubernetes.io/config.source": "file"}
			})
		}, noLabel},
		{"an owner", func() error {
			return post(badPod("attempt"), func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u", Controller: &force}}
			})
		}, noLabel},
		{"a node, past the scheduler", func() error { return post(badPod("attempt"), func(p *corev1.Pod) { p.Spec.NodeName = "n1" }) }, noLabel},
		{"an object of nearly all that can be stored", func() error {
			return post(badPod("attempt"), func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{strings.Repeat("x", 1<<20)} })
		}, noLabel},
		{"a creation of what the server says is being deleted", func() error {
			return post(badPod("attempt"), func(p *corev1.Pod) {
				now := metav1.Now()
				p.DeletionTimestamp, p.Finalizers = &now, []string{finalizer}
			})
		}, noLabel},
		{"a Deployment", func() error {
			_, err := o.AppsV1().Deployments("tenant").Create(ctx, &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}, create)
			return err
		}, badImage},
		{"a StatefulSet", func() error {
			_, err := o.AppsV1().StatefulSets("tenant").Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}, create)
			return err
		}, badImage},
		{"a Job", func() error {
			_, err := o.BatchV1().Jobs("tenant").Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: once}}, create)
			return err
		}, badImage},
		{"a CronJob", func() error {
			_, err := o.BatchV1().CronJobs("tenant").Create(ctx, &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "* * * * *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}}}}, create)
			return err
		}, badImage},
		{"a ReplicationController", func() error {
			_, err := core.ReplicationControllers("tenant").Create(ctx, &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: template.Labels, Template: &template}}, create)
			return err
		}, badImage},
		{"a JSON patch that removes the label", func() error {
			return patch(types.JSONPatchType, `[{"op":"remove","path":"/metadata/labels/team"}]`, metav1.PatchOptions{})
		}, noLabel},
		{"a merge patch of all containers", func() error {
			return patch(types.MergePatchType, `{"spec":{"containers":[{"name":"web","image":"busybox","imagePullPolicy":"IfNotPresent","resources":{"requests":{"cpu":"100m","memory":"128Mi"}}}]}}`, metav1.PatchOptions{})
		}, badImage},
		{"a strategic merge patch of an image", func() error {
			return patch(types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"web","image":"busybox"}]}}`, metav1.PatchOptions{})
		}, badImage},
		{"server-side apply of a new Pod", func() error {
			_, err := pods.Patch(ctx, "attempt", types.ApplyPatchType, fmt.Appendf(nil, apply, "attempt"), metav1.PatchOptions{FieldManager: "kubelet"})
			return err
		}, badImage},
		{"server-side apply that takes fields from others", func() error {
			_, err := pods.Patch(ctx, "good", types.ApplyPatchType, fmt.Appendf(nil, apply, "good"), metav1.PatchOptions{FieldManager: "kubelet", Force: &force})
			return err
		}, badImage},
		{"labels, by the status", func() error {
			return patch(types.MergePatchType, `{"metadata":{"labels":{"team":null}},"status":{"phase":"Running"}}`, metav1.PatchOptions{}, "status")
		}, noLabel},
		{"an ephemeral container", func() error {
			return patch(types.StrategicMergePatchType, `{"spec":{"ephemeralContainers":[{"name":"debug","image":"busybox"}]}}`, metav1.PatchOptions{}, "ephemeralcontainers")
		}, badImage},
		{"an image of a Pod that is being deleted", func() error {
			p := goodPod("deleted")
			p.Finalizers = []string{finalizer}
			if _, err := pods.Create(ctx, p, create); err != nil {
				return err
			}
			if err := pods.Delete(ctx, "deleted", metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := pods.Patch(ctx, "deleted", types.StrategicMergePatchType, []byte(`{"metadata":{"finalizers":null},"spec":{"containers":[{"name":"web","image":"busybox"}]}}`), metav1.PatchOptions{})
			return err
		}, badImage},
		{"server-side apply of a host that is taken", func() error {
			_, err := o.NetworkingV1().Ingresses("tenant").Patch(ctx, "attempt", types.ApplyPatchType,
				[]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"attempt"},"spec":{"rules":[{"host":"taken.example.com"}]}}`), metav1.PatchOptions{FieldManager: "a"})
			return err
		}, takenHost},
		{"a Pod that starts without the node agent", func() error { return post(withoutAgent(goodPod("attempt")), func(*corev1.Pod) {}) }, noAgent},
		{"the same, by an update", func() error {
			return patch(types.MergePatchType, `{"metadata":{"annotations":{"kubewasm.dev/tolerate-no-agent":"true"}}}`, metav1.PatchOptions{})
		}, noAgent},
		{"the same, by the status", func() error {
			return patch(types.MergePatchType, `{"metadata":{"annotations":{"kubewasm.dev/tolerate-no-agent":"true"}}}`, metav1.PatchOptions{}, "status")
		}, noAgent},
		{"the same, by a binding", func() error {
			return pods.Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: "good", Annotations: withoutAgent(goodPod("")).Annotations}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"},
			}, create)
		}, noAgent},
		{"to be a node", func() error {
			_, err := o.as(t, "system:node:n1", "system:nodes", "system:authenticated").CoreV1().Pods("tenant").Create(ctx, badPod("attempt"), create)
			return err
		}, cannot},
		{"to be oneself in the group of nodes", func() error {
			_, err := o.as(t, "system:serviceaccount:tenant:owner", "system:nodes").CoreV1().Pods("tenant").Create(ctx, badPod("attempt"), create)
			return err
		}, cannot},
		{"to be an administrator", func() error {
			_, err := o.as(t, "admin", "system:masters").CoreV1().Pods("tenant").Create(ctx, badPod("attempt"), create)
			return err
		}, cannot},
		{"a Pod in kube-system", func() error {
			p := badPod("attempt")
			p.Namespace = "kube-system"
			_, err := core.Pods("kube-system").Create(ctx, p, create)
			return err
		}, forbidden},
		{"a Pod in the server's namespace", func() error {
			p := badPod("attempt")
			p.Namespace = installed
			_, err := core.Pods(installed).Create(ctx, p, create)
			return err
		}, forbidden},
		{"a namespace of another name", func() error {
			_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "attempt"}}, create)
			return err
		}, forbidden},
		{"a change of the webhook configuration", func() error {
			_, err := o.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(ctx, "kubewasm-webhook", types.MergePatchType, []byte(`{"webhooks":[]}`), metav1.PatchOptions{})
			return err
		}, forbidden},
		{"no webhook configuration", func() error {
			return o.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, "kubewasm-webhook", metav1.DeleteOptions{})
		}, forbidden},
		{"a webhook of one's own, which puts the image back", func() error {
			_, err := o.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &arv1.MutatingWebhookConfiguration{ObjectMeta: meta}, create)
			return err
		}, forbidden},
		{"other policies", func() error {
			_, err := core.ConfigMaps(installed).Patch(ctx, "kubewasm-webhook-policies", types.MergePatchType, []byte(`{"data":{"policies.yaml":"plugins: []\n"}}`), metav1.PatchOptions{})
			return err
		}, forbidden},
		{"the key of the server", func() error {
			_, err := core.Secrets(installed).Get(ctx, "kubewasm-webhook-tls", metav1.GetOptions{})
			return err
		}, forbidden},
		{"a token of the server", func() error {
			_, err := core.ServiceAccounts(installed).CreateToken(ctx, "kubewasm-webhook", &authenticationv1.TokenRequest{}, create)
			return err
		}, forbidden},
		{"more rights", func() error {
			_, err := o.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
				ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "owner", Namespace: "tenant"}},
			}, create)
			return err
		}, forbidden},
	} {
		t.Run(test.name, func(t *testing.T) { expect(t, "attempt", test.try(), test.want) })
	}
	// Nothing of it was stored.
	stored, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range stored.Items {
		if p.Labels["team"] != "tenant" || p.Spec.Containers[0].Image == "busybox" || len(p.Spec.EphemeralContainers) != 0 {
			t.Errorf("the Pod %s has the labels %v and the image %s", p.Name, p.Labels, p.Spec.Containers[0].Image)
		}
	}
	if len(stored.Items) != 2 {
		t.Errorf("%d Pods are stored, want the good one and the deleted one", len(stored.Items))
	}
}

// testNamespaceBeingDeleted: nothing ends the deletion here, so the namespace stays.
func (o *owner) testNamespaceBeingDeleted(t *testing.T) {
	if err := o.CoreV1().Namespaces().Delete(t.Context(), "tenant", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := o.CoreV1().Pods("tenant").Patch(t.Context(), "good", types.StrategicMergePatchType, []byte(`{"spec":{"containers":[{"name":"web","image":"busybox"}]}}`), metav1.PatchOptions{})
	expect(t, "an image", err, badImage)
	_, err = o.CoreV1().Pods("tenant").Create(t.Context(), goodPod("late"), metav1.CreateOptions{})
	expect(t, "a Pod", err, "because it is being terminated")
}
