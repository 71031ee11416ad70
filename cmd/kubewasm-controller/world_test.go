package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/entries"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// The logs of controller-runtime are of no use here: what counts is in the API.
func init() { log.SetLogger(logr.FromSlogHandler(slog.DiscardHandler)) }

const namespace = "kubewasm"

// world is a cluster with the resources and the namespace of the controller.
type world struct {
	*cluster.Cluster
	admin  client.WithWatch
	caFile string
	// registries is the configuration of the controllers.
	registries oci.Config
	// transport is that of simulated nodes.
	transport http.RoundTripper
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return startWorld(t, resources)
}

// resources is the directory of the CustomResourceDefinitions.
const resources = "../../charts/kubewasm/files/crds"

// startWorld starts a control plane with the CustomResourceDefinitions of a directory.
func startWorld(t *testing.T, crds string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs a control plane")
	}
	w := &world{Cluster: cluster.Start(t, nil), caFile: filepath.Join(t.TempDir(), "ca.crt")}
	w.install(t, crds)
	config := rest.CopyConfig(w.Config)
	config.QPS = -1
	var err error
	if w.admin, err = client.NewWithWatch(config, client.Options{Scheme: scheme()}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.caFile, w.Config.CAData, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{namespace, "team"} {
		w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return w
}

// install creates the CustomResourceDefinitions of a directory, or replaces those that are there.
func (w *world) install(t testing.TB, crds string) {
	t.Helper()
	if _, err := envtest.InstallCRDs(w.Config, envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) create(t testing.TB, o client.Object) {
	t.Helper()
	if err := w.admin.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// options returns the options of a controller of the world.
func (w *world) options() *options {
	return &options{
		entries: entries.Config{
			Name: "kubewasm-webhook-cluster", Namespace: namespace, Service: "kubewasm-webhook", Port: 443, CAFile: w.caFile, Replicas: 1, Timeout: 5 * time.Second,
			Exempt: []string{"kube-system"},
		},
		metricsAddress: "0", probeAddress: "0", interval: 100 * time.Millisecond,
	}
}

// run runs a controller until stop is called.
func (w *world) run(t testing.TB, o *options) (stop func()) {
	t.Helper()
	config := rest.CopyConfig(w.Config)
	config.QPS = -1
	mgr, err := o.manager(config)
	if err != nil {
		t.Fatal(err)
	}
	registries, err := oci.New(w.registries)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.setup(mgr, registries); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// policy returns a ClusterAdmissionPolicy about ConfigMaps, with more members of its spec.
func policy(name, more string) *v1alpha1.ClusterAdmissionPolicy {
	return &v1alpha1.ClusterAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec(more)}
}

// spec returns a spec with rules about ConfigMaps, whose members more replaces.
func spec(more string) runtime.RawExtension {
	s := map[string]any{
		"module": map[string]any{"configMap": map[string]any{"namespace": namespace, "name": "m", "key": "k"}},
		"match":  map[string]any{"rules": []any{map[string]any{"operations": []string{"CREATE"}, "apiGroups": []string{""}, "apiVersions": []string{"v1"}, "resources": []string{"configmaps"}}}},
	}
	if more != "" {
		if err := json.Unmarshal([]byte(more), &s); err != nil {
			panic(err)
		}
	}
	raw, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return runtime.RawExtension{Raw: raw}
}

// pod creates a running Pod of a component on a node.
func (w *world) pod(t testing.TB, component, name, node string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/component": component, "app.kubernetes.io/part-of": "kubewasm"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "c"}}, TerminationGracePeriodSeconds: new(int64)},
	}
	w.create(t, pod)
	return pod
}

// write writes the report of a Pod with states.
func (w *world) write(ctx context.Context, pod *corev1.Pod, states ...v1alpha1.PluginState) error {
	r := &v1alpha1.PluginReport{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err := w.admin.Get(ctx, client.ObjectKeyFromObject(r), r)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	r.Component, r.Node, r.Plugins = "kubewasm-"+pod.Labels["app.kubernetes.io/component"], pod.Spec.NodeName, states
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
	if err != nil {
		return w.admin.Create(ctx, r)
	}
	return w.admin.Update(ctx, r)
}

func (w *world) report(t testing.TB, pod *corev1.Pod, states ...v1alpha1.PluginState) {
	t.Helper()
	if err := w.write(t.Context(), pod, states...); err != nil {
		t.Fatalf("write the report of %s: %v", pod.Name, err)
	}
}

// state returns the state of a plugin.
func state(o client.Object, state, message string) v1alpha1.PluginState {
	p, _ := plugin.Of(o)
	return v1alpha1.PluginState{
		Kind: p.Key.Kind, Namespace: p.Key.Namespace, Name: p.Key.Name, UID: o.GetUID(), Generation: o.GetGeneration(), State: state, Message: message,
		Webhooks: []string{"validate"}, Digest: strings.Repeat("a", 64),
	}
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		last = holds()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v: %v", what, err, last)
	}
}

// status waits until the status of a plugin is as wanted: the counts, and the conditions in the form
// "Ready=True/Serving".
func (w *world) status(t testing.TB, o client.Object, ready string, conditions ...string) {
	t.Helper()
	eventually(t, "status of "+o.GetName(), func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		p, _ := plugin.Of(o)
		if p.Status.Ready != ready || p.Status.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("ready is %q of generation %d, want %q of %d: %v", p.Status.Ready, p.Status.ObservedGeneration, ready, o.GetGeneration(), p.Status.Conditions)
		}
		for _, want := range conditions {
			kind, _, _ := strings.Cut(want, "=")
			c := meta.FindStatusCondition(p.Status.Conditions, kind)
			if c == nil || c.ObservedGeneration != o.GetGeneration() || fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason) != want {
				return fmt.Errorf("conditions are %v, want %s", p.Status.Conditions, want)
			}
		}
		return nil
	})
}

// change updates the spec of an object, as set by change.
func (w *world) change(t testing.TB, o client.Object, change func()) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return w.admin.Update(t.Context(), o)
	})
	if err != nil {
		t.Fatalf("change %s: %v", o.GetName(), err)
	}
}

// delete deletes an object and waits until it is gone.
func (w *world) delete(t testing.TB, o client.Object) {
	t.Helper()
	if err := w.admin.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deletion of "+o.GetName(), func() error {
		err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		if err == nil {
			return fmt.Errorf("it is there, with the finalizers %v", o.GetFinalizers())
		}
		return client.IgnoreNotFound(err)
	})
}

// entries returns the entries of the configurations.
func (w *world) entries(t testing.TB) ([]admissionv1.ValidatingWebhook, []admissionv1.MutatingWebhook) {
	t.Helper()
	v, m := &admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}
	key := client.ObjectKey{Name: "kubewasm-webhook-cluster"}
	if err := errors.Join(w.admin.Get(t.Context(), key, v), w.admin.Get(t.Context(), key, m)); err != nil {
		t.Fatal(err)
	}
	return v.Webhooks, m.Webhooks
}

// overwrite writes the validating configuration by hand: with nil it deletes it.
func (w *world) overwrite(t testing.TB, change func([]admissionv1.ValidatingWebhook) []admissionv1.ValidatingWebhook) {
	t.Helper()
	v := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kubewasm-webhook-cluster"}}
	if change == nil {
		if err := w.admin.Delete(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		return
	}
	w.change(t, v, func() { v.Webhooks = change(v.Webhooks) })
}

// paths returns the paths of both configurations.
func (w *world) paths(ctx context.Context) ([]string, error) {
	v, m := &admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}
	key := client.ObjectKey{Name: "kubewasm-webhook-cluster"}
	if err := errors.Join(w.admin.Get(ctx, key, v), w.admin.Get(ctx, key, m)); err != nil {
		return nil, err
	}
	all := []string{}
	for _, e := range v.Webhooks {
		all = append(all, *e.ClientConfig.Service.Path)
	}
	for _, e := range m.Webhooks {
		all = append(all, *e.ClientConfig.Service.Path)
	}
	slices.Sort(all)
	return all, nil
}

// sent waits until the configurations have paths and no others.
func (w *world) sent(t testing.TB, want ...string) {
	t.Helper()
	eventually(t, "entries", func() error {
		got, err := w.paths(t.Context())
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the paths are %v, want %v", got, want)
		}
		return err
	})
}
