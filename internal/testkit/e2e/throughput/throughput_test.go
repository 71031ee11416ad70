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
// One scheduler has a profile for each variant, and gets Pods for one after the other,
// a few hundred at a time: a process schedules fewer Pods a second the longer it has
// run, and two processes on a machine that is not ours alone differ by a third. The
// table at the end compares each batch with the native one of the same round.
//
// KUBEWASM_CLUSTER=same is the best case: nodes without labels and taints that never change, and
// Pods of one Deployment. Otherwise each node has labels and taints, the Pods are of 200 Deployments,
// and 50 nodes a second have a heartbeat.
//
// KUBEWASM_NODES (5000) says how large the cluster is, KUBEWASM_BATCH (200) how many
// Pods a variant gets at a time, KUBEWASM_ROUNDS (24) how many turns there are, and
// KUBEWASM_VARIANTS which ones there are beside the native one (all): batches of one
// variant differ by a fifth, so few variants and many rounds tell more.
package throughput

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	_ "k8s.io/component-base/logs/json/register"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/cluster"
	"github.com/kubewasm/kubewasm/sched/kube137"
)

func TestMain(m *testing.M) {
	if err := perf.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// native does what the tainttoleration guest of internal/testkit/e2e/differential does to
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
		if scores[i].Score = fwk.MaxScore - scores[i].Score*fwk.MaxScore/max(most, 1); most == 0 {
			scores[i].Score = fwk.MaxScore
		}
	}
	return nil
}

// variant is a profile of the scheduler, with a plugin or without. args are those of the
// guest beside its file.
type variant struct{ name, plugin, args string }

// moment is when a Pod was bound, and how much processor time the process, which has
// the API server in it, had used until then.
type moment struct {
	at        time.Time
	processor time.Duration
}

func now() moment {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err) // The arguments are constants.
	}
	return moment{time.Now(), time.Duration(r.Utime.Nano() + r.Stime.Nano())}
}

// bound records when Pods were bound, by their scheduler's names. Each profile has
// it.
type bound struct {
	mu      sync.Mutex
	moments map[string][]moment
}

func (b *bound) Name() string { return "bound" }

func (b *bound) PostBind(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.moments[pod.Spec.SchedulerName] = append(b.moments[pod.Spec.SchedulerName], now())
}

// batches returns how many Pods a second each batch of a variant had, and how many
// milliseconds of processor time a Pod took.
func (b *bound) batches(variant string, size int) (perSecond, processor []float64) {
	for batch := range slices.Chunk(b.moments[variant], size) {
		first, last, pods := batch[0], batch[len(batch)-1], float64(len(batch)-1)
		perSecond = append(perSecond, pods/last.at.Sub(first.at).Seconds())
		processor = append(processor, float64((last.processor-first.processor).Microseconds())/1000/pods)
	}
	return perSecond, processor
}

// ratiosOf returns the ratios of the values of the same rounds, in ascending order.
func ratiosOf(values, of []float64) (ratios []float64) {
	for i := range values {
		ratios = append(ratios, values[i]/of[i])
	}
	slices.Sort(ratios)
	return ratios
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
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

// beat gives 50 nodes a second a heartbeat, as the kubelets of a cluster of thousands do.
func beat(ctx context.Context, h fwk.Handle) {
	lister := h.SharedInformerFactory().Core().V1().Nodes().Lister()
	tick := time.NewTicker(time.Second / 50)
	defer tick.Stop()
	var names []string
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if n >= len(names) {
			nodes, err := lister.List(labels.Everything())
			if err != nil || len(nodes) == 0 {
				continue // They are not there yet.
			}
			names, n = names[:0], 0
			for _, node := range nodes {
				names = append(names, node.Name)
			}
		}
		patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		if _, err := h.ClientSet().CoreV1().Nodes().PatchStatus(ctx, names[n], patch); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "heartbeat:", err)
		}
	}
}

func BenchmarkPerfScheduling(b *testing.B) {
	etcd := cluster.BuildKubernetes(b, "go.etcd.io/etcd/server/v3", "etcd")
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
	same := os.Getenv("KUBEWASM_CLUSTER") == "same"
	nodeHas, podHas := `
spec:
  taints:
  - {key: example.com/maintenance, value: "week-{{Mod .Index 12}}", effect: PreferNoSchedule}
  - {key: example.com/rack, value: "rack-{{Mod .Index 40}}", effect: PreferNoSchedule}`, `, labels: {app: "web-{{Mod .Index 200}}"}`
	nodeLabels := `, labels: {topology.kubernetes.io/zone: "zone-{{Mod .Index 3}}", example.com/rack: "rack-{{Mod .Index 40}}", kubernetes.io/os: linux, kubernetes.io/arch: amd64,
  node.kubernetes.io/instance-type: m6i.4xlarge, example.com/team: platform, example.com/environment: production, karpenter.sh/nodepool: default}`
	if same {
		nodeHas, podHas, nodeLabels = "", "", ""
	}
	node := write("node.yaml", `apiVersion: v1
kind: Node
metadata: {generateName: scheduler-perf-`+nodeLabels+`}`+nodeHas+`
status:
  capacity: {pods: "110", cpu: "4", memory: 32Gi}
  conditions: [{status: "True", type: Ready}]
  phase: Running
`)
	// Each is compared with the native one.
	variants := []variant{
		{"native", "native", ""},
		{"without", "", ""},
		{"guest", "guest", ""},
		{"each", "guest", ", disableResultSharing: true"},
	}
	if only := os.Getenv("KUBEWASM_VARIANTS"); only != "" {
		variants = slices.DeleteFunc(variants, func(v variant) bool {
			return v.name != "native" && !slices.Contains(strings.Split(only, ","), v.name)
		})
	}
	batch, rounds := number(b, "KUBEWASM_BATCH", 200), number(b, "KUBEWASM_ROUNDS", 24)
	var config, operations strings.Builder
	config.WriteString("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n")
	pods := map[string]string{}
	for _, v := range variants {
		plugins := "{name: bound}"
		if v.plugin != "" {
			plugins += ", {name: " + v.plugin + "}"
		}
		fmt.Fprintf(&config, "- schedulerName: %s\n  plugins: {multiPoint: {enabled: [%s]}}\n", v.name, plugins)
		if v.plugin == "guest" {
			fmt.Fprintf(&config, "  pluginConfig:\n  - {name: guest, args: {module: {file: %q}%s}}\n", guest, v.args)
		}
		pods[v.name] = write(v.name+".yaml", `apiVersion: v1
kind: Pod
metadata: {generateName: pod-`+podHas+`}
spec: {schedulerName: `+v.name+`, containers: [{image: pause, name: pause, resources: {requests: {cpu: 10m, memory: 50Mi}}}]}
`)
	}
	// The round before the first one warms up.
	for round := range 1 + rounds {
		for i := range variants {
			v := variants[(round+i)%len(variants)]
			fmt.Fprintf(&operations, "  - {opcode: createPods, count: %d, podTemplatePath: %s, collectMetrics: %t}\n", batch, pods[v.name], round == rounds && i == 0)
		}
	}
	cases := fmt.Sprintf(`- name: turns
  schedulerConfigPath: %s
  workloadTemplate:
  - {opcode: createNodes, countParam: $nodes, nodeTemplatePath: %s}
%s  workloads:
  - {name: run, labels: [performance], params: {nodes: %d}}
`, write("scheduler.yaml", config.String()), node, &operations, number(b, "KUBEWASM_NODES", 5000))
	var once sync.Once
	recorded := &bound{moments: map[string][]moment{}}
	perf.PluginNames = append(perf.PluginNames, "guest", "native", "bound")
	perf.RunBenchmarkPerfScheduling(b, write("performance-config.yaml", cases), "kubewasm", runtime.Registry{
		"guest": kube137.New("guest", rt), "native": newNative,
		"bound": func(ctx context.Context, _ apiruntime.Object, h fwk.Handle) (fwk.Plugin, error) {
			if !same {
				once.Do(func() { go beat(ctx, h) })
			}
			return recorded, nil
		},
	})

	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "PODS A SECOND\tMEDIAN\tOF NATIVE, MEDIAN OF ROUNDS\tMIDDLE HALF\tTARGET\tPROCESSOR TIME OF A POD\tOF NATIVE\tMIDDLE HALF")
	native, nativeTime := recorded.batches("native", batch)
	for _, v := range variants {
		own, ownTime := recorded.batches(v.name, batch)
		if len(own) != 1+rounds {
			b.Fatalf("%s had %d batches, want %d", v.name, len(own), 1+rounds)
		}
		ratios, times := ratiosOf(own[1:], native[1:]), ratiosOf(ownTime[1:], nativeTime[1:])
		target := ""
		if v.plugin == "guest" {
			target = ">= 0.95: short"
			if median(ratios) >= 0.95 {
				target = ">= 0.95: ok"
			}
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%.2f-%.2f\t%s\t%.2fms\t%.2f\t%.2f-%.2f\n", v.name, median(own[1:]), median(ratios), ratios[rounds/4], ratios[rounds*3/4], target,
			median(ownTime[1:]), median(times), times[rounds/4], times[rounds*3/4])
	}
}
