package assemblyscript_test

import (
	"context"
	"os"
	"strconv"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
	"github.com/kubewasm/kubewasm/sched"
)

func newRuntime(tb testing.TB) *host.Runtime {
	tb.Helper()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { rt.Close(context.Background()) })
	return rt
}

// scheduler loads a guest of which each node is asked about.
func scheduler(tb testing.TB, guest, config string, limits host.Limits) *sched.Plugin {
	tb.Helper()
	limits.Instances = 1
	p, err := sched.Load(tb.Context(), newRuntime(tb), sched.PluginConfig{
		Config:               host.Config{Name: "guest", Module: host.ModuleConfig{File: guest}, GuestConfig: []byte(config), Limits: limits},
		DisableResultSharing: true,
	}, framework.Of(nil))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close(context.Background()) })
	return p
}

func nodeNamed(n int, zone string) *framework.NodeInfo {
	return framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   "n" + strconv.Itoa(n),
		Labels: map[string]string{"kubernetes.io/arch": "amd64", "kubernetes.io/hostname": "n" + strconv.Itoa(n), "topology.kubernetes.io/zone": zone},
	}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}}})
}

var pod = &corev1.Pod{
	ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"kubewasm.dev/zones": "a, b"}},
	Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}},
}

// TestMemoryStaysFlat makes a million calls, in CI, in 4 MiB of memory, each about another version of a
// Node. What one call leaves is free in a later one.
func TestMemoryStaysFlat(t *testing.T) {
	calls := 1_000_000
	if os.Getenv("CI") == "" {
		calls = 100_000
	}
	p := scheduler(t, languages.Build(t, "../../examples/sched/zone/as"), "", host.Limits{MemoryBytes: 4 << 20})
	cycle := p.Begin(pod)
	if _, status := p.PreFilter(cycle, nil); status.Code() != 0 {
		t.Fatal(status)
	}
	for n := range calls {
		if n%1000 == 0 {
			cycle = p.Begin(pod.DeepCopy())
			if _, status := p.PreFilter(cycle, nil); status.Code() != 0 {
				t.Fatal(status)
			}
		}
		status := p.Filter(cycle, nodeNamed(n%100, "c"))
		if want := `node is in zone "c", the Pod wants a or b`; status.Message() != want {
			t.Fatalf("call %d: %v", n, status)
		}
	}
}

func benchmark(b *testing.B, dir string, run func(b *testing.B, guest string)) {
	for _, language := range []struct{ name, dir string }{{"go", dir}, {"as", dir + "/as"}} {
		b.Run(language.name, func(b *testing.B) { run(b, languages.Build(b, language.dir)) })
	}
}

func BenchmarkFilter(b *testing.B) {
	for _, kind := range []string{"seen", "changed"} {
		b.Run(kind, func(b *testing.B) {
			benchmark(b, "../../examples/sched/zone", func(b *testing.B, guest string) {
				p := scheduler(b, guest, "", host.Limits{})
				cycle := p.Begin(pod)
				if _, status := p.PreFilter(cycle, nil); status.Code() != 0 {
					b.Fatal(status)
				}
				var nodes []*framework.NodeInfo
				for n := range 1000 {
					nodes = append(nodes, nodeNamed(n, "a"))
				}
				i := 0
				for b.Loop() {
					if i == len(nodes) {
						i = 0
						if kind == "changed" {
							b.StopTimer()
							for n := range nodes {
								nodes[n] = nodeNamed(n, "a")
							}
							b.StartTimer()
						}
					}
					if status := p.Filter(cycle, nodes[i]); status.Code() != 0 {
						b.Fatal(status)
					}
					i++
				}
			})
		})
	}
}

func BenchmarkValidate(b *testing.B) {
	object, err := os.ReadFile("../../admission/testdata/pod.json")
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, "../../examples/admission/required-labels", func(b *testing.B, guest string) {
		p, err := admission.Load(b.Context(), newRuntime(b), admission.PluginConfig{Config: host.Config{
			Name: "labels", Module: host.ModuleConfig{File: guest}, GuestConfig: []byte(`{"labels":["app","owner"],"registries":["registry.example.com/"]}`),
		}})
		if err != nil {
			b.Fatal(err)
		}
		e := admission.NewEngine(p)
		b.Cleanup(func() { e.Close(context.Background()) })
		r := &admissionv1.AdmissionRequest{
			UID: "uid-1", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Name: "web", Namespace: "shop", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
		}
		for b.Loop() {
			if !e.Validate(b.Context(), r).Allowed {
				b.Fatal("denied")
			}
		}
	})
}

func BenchmarkDecide(b *testing.B) {
	benchmark(b, "../../examples/hooks/batch-resource", func(b *testing.B, guest string) {
		e, err := hooks.NewEngine(b.Context(), newRuntime(b), hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "batch", Module: host.ModuleConfig{File: guest}}}}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close(context.Background()) })
		req := &hookmsg.Request{
			Stage: abi.PreCreateContainer, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web"}, Container: hookmsg.ContainerMeta{Name: "worker"},
			PodLabels: map[string]string{"koordinator.sh/qosClass": "BE", "app": "web"},
			PodAnnotations: map[string]string{"node.koordinator.sh/extended-resource-spec": `{"containers": {"worker": {"requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
				"limits": {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}}}}`},
		}
		for b.Loop() {
			if _, err := e.Decide(b.Context(), req); err != nil {
				b.Fatal(err)
			}
		}
	})
}
