package autoscaler_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/examples/controller/scaler"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// fixed are metrics that do not change.
type fixed struct {
	usage map[string]scaler.Usage
	queue map[string]float64
}

func (f fixed) PodUsage(_ context.Context, namespace string, selector labels.Selector) (map[string]scaler.Usage, error) {
	if namespace != "shop" || selector.String() != "app=web" {
		return nil, fmt.Errorf("no usage of %s in %s", selector, namespace)
	}
	return f.usage, nil
}

func (f fixed) Query(_ context.Context, namespace, name string, series map[string]string) ([]float64, error) {
	length, ok := f.queue[namespace+"/"+name+"/"+series["queue"]]
	if !ok {
		return nil, errors.New("there is no such metric")
	}
	return []float64{length}, nil
}

// TestGuestsOfTheImage runs the policies of manifests/samples.yaml with the guests of the
// image, and what the schema makes of policies.
func TestGuestsOfTheImage(t *testing.T) {
	w := newWorld(t)
	dir := t.TempDir()
	for _, guest := range []string{"utilization", "queue", "schedule"} {
		file, err := guestbuild.Build(t.Context(), "../"+guest)
		if err != nil {
			t.Fatal(err)
		}
		module, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeModule(t, filepath.Join(dir, guest+".wasm"), module)
	}
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	web, worker := deployment("shop", "web"), deployment("shop", "worker")
	template := deployment("shop", "office").Spec
	office := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "office"},
		Spec:       appsv1.StatefulSetSpec{Replicas: template.Replicas, Selector: template.Selector, Template: template.Template},
	}
	for _, o := range []client.Object{shop, web, worker, office, pod("web-1"), pod("web-2")} {
		status, _ := o.(*corev1.Pod)
		if status != nil {
			status = status.DeepCopy()
		}
		if err := w.admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if status != nil {
			status.ResourceVersion = o.GetResourceVersion()
			if err := w.admin.Status().Update(t.Context(), status); err != nil {
				t.Fatal(err)
			}
		}
	}
	samples, err := os.ReadFile("../manifests/samples.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(samples))
	w.run(t, setup{
		directory: dir,
		metrics: fixed{
			usage: map[string]scaler.Usage{"web-1": {CpuMillis: 300}, "web-2": {CpuMillis: 420}},
			queue: map[string]float64{"shop/queue_length/mail": 6_000},
		},
		// Thursday, 09:30 in Berlin.
		clock: clocktesting.NewFakePassiveClock(started.Add(time.Hour)),
	})

	for _, test := range []struct {
		name, reason, limited string
		workload              client.Object
		replicas              int64
	}{
		{"web", "360% of the requested cpu is used, the target is 60%", "False WithinBounds", web, 12},
		{"worker", "the queue has 6000 entries, 100 for a replica", "True OutOfBounds", worker, 50},
		{"office", `"0 8 * * 1-5" since Thu 2026-07-02 08:00`, "False WithinBounds", office, 10},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &v1alpha1.ScalePolicy{}
			eventually(t, func() error {
				if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: test.name}, p); err != nil {
					return err
				}
				if got := condition(p, v1alpha1.Ready); got != "True Scaled" {
					return fmt.Errorf("Ready is %s: %+v", got, p.Status)
				}
				return nil
			})
			module, err := os.ReadFile(filepath.Join(dir, p.Spec.Guest.File))
			if err != nil {
				t.Fatal(err)
			}
			d := p.Status.LastDecision
			got := []string{condition(p, v1alpha1.ModuleCurrent), condition(p, v1alpha1.GuestAnswers), condition(p, v1alpha1.Limited), d.Reason, d.Digest}
			want := []string{"True Serving", "True Answered", test.limited, test.reason, digest(module)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if p.Status.ObservedGeneration != p.Generation || int64(*p.Status.DesiredReplicas) != test.replicas || p.Status.LastScaleTime == nil {
				t.Errorf("status %+v", p.Status)
			}
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind(p.Spec.ScaleTargetRef.Kind))
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(test.workload), object); err != nil {
				t.Fatal(err)
			}
			if n, _, _ := unstructured.NestedInt64(object.Object, "spec", "replicas"); n != test.replicas {
				t.Errorf("the workload has %d replicas, want %d", n, test.replicas)
			}
			eventually(t, func() error {
				return event(w, t, p, "Scaled", fmt.Sprintf("from 1 to %d replicas: %s", test.replicas, test.reason))
			})
		})
	}
	t.Run("a second policy for the same workload", func(t *testing.T) {
		w.apply(t, `{apiVersion: autoscaling.kubewasm.dev/v1alpha1, kind: ScalePolicy, metadata: {name: xrival, namespace: shop}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 1, guest: {file: queue.wasm}}}`)
		w.ready(t, "xrival", "False Conflict")
	})
	t.Run("what cannot be scaled", func(t *testing.T) {
		for name, target := range map[string]string{
			"configmap": "{apiVersion: v1, kind: ConfigMap, name: kube-root-ca.crt}",
			"namespace": "{apiVersion: v1, kind: Namespace, name: shop}",
			"unknown":   "{apiVersion: example.com/v1, kind: Car, name: c}",
			"forbidden": "{apiVersion: apps/v1, kind: ReplicaSet, name: r}",
		} {
			w.apply(t, `{apiVersion: autoscaling.kubewasm.dev/v1alpha1, kind: ScalePolicy, metadata: {name: `+name+`, namespace: shop}, spec: {scaleTargetRef: `+target+`, maxReplicas: 1, guest: {file: queue.wasm}}}`)
		}
		w.ready(t, "namespace", "False NotScalable")
		w.ready(t, "unknown", "False UnknownKind")
		w.ready(t, "forbidden", "False NotScalable")
		w.ready(t, "configmap", "False NotScalable")
	})
	t.Run("schema", w.schema)
}

// ready waits for the condition Ready of a policy.
func (w *world) ready(t *testing.T, name, want string) {
	t.Helper()
	eventually(t, func() error {
		p := &v1alpha1.ScalePolicy{}
		if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, p); err != nil {
			return err
		}
		if got := condition(p, v1alpha1.Ready); got != want {
			return fmt.Errorf("Ready of %s is %q, want %q: %+v", name, got, want, p.Status.Conditions)
		}
		return nil
	})
}

// event returns an error unless there is an Event about a policy.
func event(w *world, t *testing.T, p *v1alpha1.ScalePolicy, reason, note string) error {
	list := &eventsv1.EventList{}
	if err := w.admin.List(t.Context(), list, client.InNamespace(p.Namespace)); err != nil {
		return err
	}
	if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.UID == p.UID && e.Reason == reason && e.Note == note }) {
		return fmt.Errorf("no event %s: %s", reason, note)
	}
	return nil
}

// pod returns a ready Pod of the Deployment web that requests 100m.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
		}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, StartTime: new(metav1.NewTime(started)),
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// started is when the Pods have started.
var started = time.Date(2026, 7, 2, 6, 30, 0, 0, time.UTC)

// schema holds what the API server makes of policies. What the controller could not decode is
// refused: one such policy would keep it from reading all others.
func (w *world) schema(t *testing.T) {
	const good = `{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}, maxReplicas: 3, guest: {configMap: {name: m}}}`
	tests := []struct{ name, spec, want string }{
		{"without a guest", `guest: {}`, "a guest has one of configMap, file and oci"},
		{"with two sources", `guest: {file: a, oci: b}`, "a guest has one of configMap, file and oci"},
		{"a file of the machine", `guest: {file: /etc/passwd}`, "a file is a path without .. that does not begin with /"},
		{"a file above the directory", `guest: {file: a/../../b}`, "a file is a path without .. that does not begin with /"},
		{"bounds that exclude one another", `minReplicas: 4`, "minReplicas must not be more than maxReplicas"},
		{"a number below zero", `minReplicas: -1`, "should be greater than or equal to 0"},
		{"a number of more than 32 bits", `maxReplicas: 4294967296`, "should be less than or equal to 2147483647"},
		{"a number of more than 64 bits", `guest: {file: a, limits: {fuel: 1.0e+30}}`, "fuel"},
		{"another grant", `guest: {file: a, grants: [clock]}`, `supported values: "metrics"`},
		{"a configuration that is no object", `guest: {file: a, config: [1]}`, "config"},
		{"a digest that is none", `guest: {file: a, sha256: abc}`, "sha256"},
		{"the time zone of the machine", `timeZone: Local`, "a time zone has a name"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := w.admin.Create(t.Context(), specOf(t, "bad", good, test.spec))
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if err := w.admin.Create(t.Context(), specOf(t, "good", good, `{}`)); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.ScalePolicy{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "good"}, p); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.ScalePolicySpec{
		ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "none"},
		MinReplicas:    1, MaxReplicas: 3, IntervalSeconds: 15, TimeZone: "UTC",
		Guest: v1alpha1.Guest{ConfigMap: &v1alpha1.ConfigMapKey{Name: "m", Key: "module.wasm"}},
	}
	if diff := cmp.Diff(want, p.Spec); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// specOf returns a policy with the members of change in place of those of spec.
func specOf(t testing.TB, name, spec, change string) *unstructured.Unstructured {
	t.Helper()
	members := map[string]any{}
	if err := errors.Join(yaml.Unmarshal([]byte(spec), &members), yaml.Unmarshal([]byte(change), &members)); err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ScalePolicy",
		"metadata": map[string]any{"namespace": "shop", "name": name}, "spec": members,
	}}
}
