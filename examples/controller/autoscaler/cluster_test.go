package autoscaler_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/scale"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/examples/controller/autoscaler"
	"github.com/kubewasm/kubewasm/examples/controller/scaler"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// The logs of controller-runtime are of no use here: what counts is in the API.
func init() { log.SetLogger(logr.FromSlogHandler(slog.DiscardHandler)) }

// moody returns the guest of testdata in a version, from 1 to 9.
func moody(t testing.TB, version byte) []byte {
	t.Helper()
	module, err := os.ReadFile("testdata/moody.wasm")
	if err != nil {
		t.Fatal(err)
	}
	const marker = "moody version "
	if bytes.Count(module, []byte(marker)) != 1 {
		t.Fatalf("testdata/moody.wasm does not have %q once", marker)
	}
	module[bytes.Index(module, []byte(marker))+len(marker)] = '0' + version
	if module, err = metadata.AddSection(module, abi.SchemaSection, scaler.Schema()); err != nil {
		t.Fatal(err)
	}
	return module
}

// digest returns the digest of a module.
func digest(module []byte) string {
	sum := sha256.Sum256(module)
	return hex.EncodeToString(sum[:])
}

// world is a cluster with the manifests of the controller.
type world struct {
	*cluster.Cluster
	admin client.WithWatch
}

// newWorld starts a control plane and applies the manifests.
func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("it runs a control plane")
	}
	w := &world{Cluster: cluster.Start(t, nil)}
	if _, err := envtest.InstallCRDs(w.Config, envtest.CRDInstallOptions{
		Paths: []string{"../manifests/autoscaling.kubewasm.dev_scalepolicies.yaml"}, ErrorIfPathMissing: true,
	}); err != nil {
		t.Fatal(err)
	}
	scheme := autoscaler.NewScheme()
	if err := errors.Join(appsv1.AddToScheme(scheme), eventsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(w.Config)
	config.QPS = -1
	var err error
	if w.admin, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../manifests/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(t, string(text))
	return w
}

// apply creates the objects of manifests.
func (w *world) apply(t testing.TB, manifests string) {
	t.Helper()
	for decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096); ; {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if err := w.admin.Create(t.Context(), object); err != nil {
			t.Fatalf("create %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

// setup is what differs between controllers of tests.
type setup struct {
	directory string
	metrics   autoscaler.Metrics
	limits    host.Limits
	clock     clock.PassiveClock
	// scales wraps the client of the subresource, client the one with a cache; nil for none.
	scales func(scale.ScalesGetter) scale.ScalesGetter
	client func(client.Client) client.Client
}

// running is a controller.
type running struct {
	runtime *host.Runtime
	stop    func()
}

// run runs a controller with the rights of its ServiceAccount until stop is called.
func (w *world) run(t *testing.T, s setup) *running {
	t.Helper()
	const namespace = "scalepolicy-system"
	config := rest.CopyConfig(w.Config)
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":scalepolicy-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
	mgr, err := manager.New(config, manager.Options{Scheme: autoscaler.NewScheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	scales, err := autoscaler.NewScales(mgr)
	if err != nil {
		t.Fatal(err)
	}
	if s.scales != nil {
		scales = s.scales(scales)
	}
	plugins := autoscaler.NewPlugins(autoscaler.PluginsConfig{
		Runtime: rt, Metrics: s.metrics, Limits: s.limits,
		Sources: autoscaler.Sources{Directory: s.directory, ConfigMaps: autoscaler.ConfigMaps(mgr.GetAPIReader(), mgr.GetCache())},
	})
	r := autoscaler.NewReconciler(mgr, scales, plugins, s.metrics)
	if s.client != nil {
		r.Client = s.client(r.Client)
	}
	if s.clock != nil {
		r.Clock = s.clock
	}
	// Several controllers of one process have the same name.
	opts := controller.Options{SkipNameValidation: ptr.To(true), MaxConcurrentReconciles: 8}
	if err := r.SetupWithManager(t.Context(), mgr, opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the controller ended: %v", err)
		}
		plugins.Close()
		if n := len(rt.Plugins()); n != 0 {
			t.Errorf("%d plugins are open after Close", n)
		}
		if err := rt.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return &running{rt, stop}
}

// eventually waits until check returns no error.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		last = check()
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%v: %v", err, last)
	}
}

// deployment returns a Deployment with one replica.
func deployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	}
}

// condition returns the status and the reason of a condition, as in "True Scaled".
func condition(p *v1alpha1.ScalePolicy, kind string) string {
	c := meta.FindStatusCondition(p.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// ignoreNotFound fails the test for any other error.
func ignoreNotFound(t testing.TB, err error) {
	t.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// module writes a module into a directory, as a whole.
func writeModule(t testing.TB, file string, module []byte) {
	t.Helper()
	next := filepath.Join(t.TempDir(), "next")
	if err := errors.Join(os.WriteFile(next, module, 0o644), os.Rename(next, file)); err != nil {
		t.Fatal(err)
	}
}
