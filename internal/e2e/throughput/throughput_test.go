//go:build throughput

// Package throughput measures how many Pods a scheduler binds in a second, with
// the scheduler_perf of Kubernetes: without a plugin, with a guest, and with a
// native plugin of the same logic, in turns.
//
//	go test -tags throughput ./throughput -run '^$' -bench . -benchtime 1x -timeout 60m
//
// It has a build tag of its own: scheduler_perf takes minutes to compile, and no
// test needs it.
//
// A process schedules fewer Pods a second the longer it has run: to compare two
// variants closely, run each in a process of its own, in turns, by -bench
// PerfScheduling/guest, /nameless, /remembering, /native or /without.
//
// KUBEWASM_NODES (500) and KUBEWASM_PODS (1000) say how large the cluster is,
// KUBEWASM_ROUNDS (3) how many turns there are. Compare the medians of
// SchedulingThroughput/Average.
package throughput

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/component-base/logs/json/register"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/e2e/cluster"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// native does what the tainttoleration guest of internal/e2e/differential does to
// nodes and Pods without taints and tolerations.
type native struct{}

func newNative(context.Context, apiruntime.Object, fwk.Handle) (fwk.Plugin, error) {
	return native{}, nil
}

func (native) Name() string { return "native" }

func (native) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	for i := range info.Node().Spec.Taints {
		if t := &info.Node().Spec.Taints[i]; t.Effect != corev1.TaintEffectPreferNoSchedule && len(pod.Spec.Tolerations) == 0 {
			return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node(s) had untolerated taint(s)")
		}
	}
	return nil
}

func (native) Score(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, info fwk.NodeInfo) (count int64, _ *fwk.Status) {
	for i := range info.Node().Spec.Taints {
		if info.Node().Spec.Taints[i].Effect == corev1.TaintEffectPreferNoSchedule {
			count++
		}
	}
	return count, nil
}

func (n native) ScoreExtensions() fwk.ScoreExtensions { return n }

func (native) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	var most int64
	for _, s := range scores {
		most = max(most, s.Score)
	}
	for i := range scores {
		if scores[i].Score = fwk.MaxNodeScore - scores[i].Score*fwk.MaxNodeScore/max(most, 1); most == 0 {
			scores[i].Score = fwk.MaxNodeScore
		}
	}
	return nil
}

func number(b *testing.B, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func BenchmarkPerfScheduling(b *testing.B) {
	etcd := cluster.Build(b, "..", "go.etcd.io/etcd/server/v3", "etcd")
	b.Setenv("PATH", filepath.Dir(etcd)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	guest, err := guestbuild.Build(b.Context(), "../differential/testdata/tainttoleration")
	if err != nil {
		b.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { rt.Close(context.Background()) })

	dir := b.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
		return file
	}
	config := func(name, plugin, args string) string {
		return write(name+".yaml", `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [`+plugin+`]}}
`+args)
	}
	pod := write("pod.yaml", `apiVersion: v1
kind: Pod
metadata: {generateName: pod-}
spec: {containers: [{image: pause, name: pause, resources: {requests: {cpu: 100m, memory: 500Mi}}}]}
`)
	node := write("node.yaml", `apiVersion: v1
kind: Node
metadata: {generateName: scheduler-perf-}
status:
  capacity: {pods: "110", cpu: "4", memory: 32Gi}
  conditions: [{status: "True", type: Ready}]
  phase: Running
`)
	guestConfig := func(name, args string) string {
		return config(name, "{name: guest}", fmt.Sprintf("  pluginConfig:\n  - {name: guest, args: {file: %q, %s}}\n", guest, args))
	}
	variants := []struct{ name, config string }{
		{"without", config("without", "", "")},
		{"guest", guestConfig("guest", "projection: [node.spec.taints, pod.spec.tolerations]")},
		{"nameless", guestConfig("nameless", "projection: [node.spec.taints, pod.spec.tolerations, -node.metadata]")},
		{"remembering", guestConfig("remembering", "projection: [node.spec.taints, pod.spec.tolerations, -node.metadata], rememberByProjection: true")},
		{"native", config("native", "{name: native}", "")},
	}
	var cases strings.Builder
	for round := range number(b, "KUBEWASM_ROUNDS", 3) {
		// Each begins a round once: the process grows as it goes on.
		for i := range variants {
			v := variants[(round+i)%len(variants)]
			fmt.Fprintf(&cases, `- name: %s-%d
  schedulerConfigPath: %s
  defaultPodTemplatePath: %s
  workloadTemplate:
  - {opcode: createNodes, countParam: $nodes, nodeTemplatePath: %s}
  - {opcode: createPods, count: 1000}
  - {opcode: createPods, countParam: $pods, collectMetrics: true}
  workloads:
  - {name: run, labels: [performance], params: {nodes: %d, pods: %d}}
`, v.name, round, v.config, pod, node, number(b, "KUBEWASM_NODES", 500), number(b, "KUBEWASM_PODS", 1000))
		}
	}
	perf.PluginNames = append(perf.PluginNames, "guest", "native")
	perf.RunBenchmarkPerfScheduling(b, write("performance-config.yaml", cases.String()), "kubewasm", runtime.Registry{
		"guest": sched.New("guest", rt), "native": newNative,
	})
}
