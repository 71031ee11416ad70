// Package differential holds plugins of the scheduler that are written as guests
// against the scheduler's own, through the real framework.
package differential

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/e2e/guests"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

// clusters is how many random clusters there are.
const clusters = 1000

// hiding is how many of them instances answer that hide their memory while nobody has them, or that are in
// a process of their own: that takes twenty times as long.
const hiding = 50

// inTree are the plugins of the scheduler, and the guests that do the same.
var inTree = map[string]string{
	"NodeName": "nodename", "NodePorts": "nodeports", "TaintToleration": "tainttoleration",
	"NodeAffinity": "nodeaffinity", "NodeResourcesFit": "noderesourcesfit", "ImageLocality": "imagelocality",
	"PodTopologySpread": "../../../../../examples/sched/topology-spread",
}

// snapshot is the lister of a framework, whose content changes, and has the Pods that are
// nominated for a node.
type snapshot struct {
	*internalcache.Snapshot
	nominated map[string][]fwk.PodInfo
}

// update does with a node what the scheduler's cache does between two cycles: the NodeInfo stays,
// and its content is another one.
func (s *snapshot) update(node *corev1.Node, pods ...*corev1.Pod) {
	info, err := s.NodeInfos().Get(node.Name)
	if err != nil {
		panic(err)
	}
	next := framework.NewNodeInfo(pods...)
	next.SetNode(node)
	*info.(*framework.NodeInfo) = *next
}

// nominator has the nominated Pods of a snapshot.
type nominator struct {
	fwk.PodNominator
	of *snapshot
}

func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo { return n.of.nominated[node] }

// freeBytes is a plugin whose scores are bytes, and one of them the smallest number that there is.
type freeBytes struct{}

func (freeBytes) Name() string { return "FreeBytes" }

func (freeBytes) Score(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	requested, allocatable := node.GetRequested().GetMemory(), node.GetAllocatable().GetMemory()
	if requested > allocatable {
		return math.MinInt64, nil
	}
	return (allocatable - requested) << 24, nil
}

// PreFilter skips Filter, as a guest without one does.
func (freeBytes) PreFilter(context.Context, fwk.CycleState, *corev1.Pod, []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	return nil, fwk.NewStatus(fwk.Skip)
}

func (freeBytes) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (p freeBytes) ScoreExtensions() fwk.ScoreExtensions { return p }

func (freeBytes) NormalizeScore(_ context.Context, _ fwk.CycleState, _ *corev1.Pod, scores fwk.NodeScoreList) *fwk.Status {
	for i, s := range scores {
		switch s.Score {
		case math.MinInt64:
			scores[i].Score = 0
		default:
			scores[i].Score = 1 + s.Score>>24%100
		}
	}
	return nil
}

// newFramework makes a framework with one plugin. With a guest it takes the place
// of the scheduler's plugin of that name, with more arguments.
func newFramework(t testing.TB, rt *host.Runtime, lister *snapshot, name, guest, more string) framework.Framework {
	t.Helper()
	registry := plugins.NewInTreeRegistry()
	registry["FreeBytes"] = func(context.Context, apiruntime.Object, fwk.Handle) (fwk.Plugin, error) { return freeBytes{}, nil }
	var args apiruntime.Object
	switch {
	case guest != "":
		file := guests.File(t, "testdata/"+guest)
		registry[name] = kube.New(name, rt)
		args = &apiruntime.Unknown{Raw: []byte(`{"module": {"file": ` + strconv.Quote(file) + `}, "limits": {"instances": 3, "timeout": "1m"}` + more + `}`)}
	case name == "NodeResourcesFit":
		args = &schedconfig.NodeResourcesFitArgs{ScoringStrategy: &schedconfig.ScoringStrategy{
			Type: schedconfig.LeastAllocated, Resources: []schedconfig.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}},
		}}
	case name == "NodeAffinity":
		args = &schedconfig.NodeAffinityArgs{}
	case name == "PodTopologySpread":
		args = &schedconfig.PodTopologySpreadArgs{DefaultingType: schedconfig.ListDefaulting}
	}
	one := func(name string) schedconfig.PluginSet {
		return schedconfig.PluginSet{Enabled: []schedconfig.Plugin{{Name: name}}}
	}
	profile := &schedconfig.KubeSchedulerProfile{
		SchedulerName: name,
		Plugins:       &schedconfig.Plugins{QueueSort: one("PrioritySort"), Bind: one("DefaultBinder"), MultiPoint: one(name)},
	}
	if args != nil {
		profile.PluginConfig = []schedconfig.PluginConfig{{Name: name, Args: args}}
	}
	f, err := frameworkruntime.NewFramework(t.Context(), registry, profile, frameworkruntime.WithSnapshotSharedLister(lister), frameworkruntime.WithPodNominator(nominator{of: lister}))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// newRuntime returns a Runtime with a value of KUBEWASM_DEBUG.
func newRuntime(t *testing.T, debug string) *host.Runtime {
	t.Helper()
	t.Setenv("KUBEWASM_DEBUG", debug)
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	return rt
}

func TestGuestsAnswerAsThePluginsOfTheScheduler(t *testing.T) {
	metrics.Register()
	hidden, walled, rt := newRuntime(t, "memory"), newRuntime(t, "process"), newRuntime(t, "")
	compare := func(test, name, guest string) {
		t.Run(test, func(t *testing.T) {
			needToolchain(t, guest)
			lister := &snapshot{Snapshot: internalcache.NewEmptySnapshot()}
			theirs := newFramework(t, rt, lister, name, "", "")
			const asked = `, "disableResultSharing": true`
			ours := map[string]framework.Framework{
				"guest":                       newFramework(t, rt, lister, name, guest, ""),
				"guest asked about each Node": newFramework(t, rt, lister, name, guest, asked),
				"guest that hides its memory": newFramework(t, hidden, lister, name, guest, ""),
				"guest asked about each Node that hides its memory": newFramework(t, hidden, lister, name, guest, asked),
				"guest in a process":                       newFramework(t, walled, lister, name, guest, ""),
				"guest asked about each Node in a process": newFramework(t, walled, lister, name, guest, asked),
			}
			r := rand.New(rand.NewPCG(20261121, 0))
			all := counts{}
			for n := range clusters {
				if n == hiding {
					maps.DeleteFunc(ours, func(name string, _ framework.Framework) bool {
						return strings.HasSuffix(name, "hides its memory") || strings.HasSuffix(name, "in a process")
					})
				}
				c := newCluster(r, n)
				lister.Snapshot, lister.nominated = internalcache.NewSnapshot(c.running, c.nodes), c.nominated
				for i, pod := range c.pending {
					if i != 0 {
						all.updated += c.change(r, lister)
					}
					seed := r.Uint64()
					want := cycle(t.Context(), theirs, lister, pod, seed)
					for guest, ours := range ours {
						got := cycle(t.Context(), ours, lister, pod, seed)
						got.narrow(want)
						if diff := cmp.Diff(want, got); diff != "" {
							t.Fatalf("cluster %d, Pod %s (-%s +%s):\n%s", n, pod.Name, name, guest, diff)
						}
					}
					all.add(want)
				}
			}
			t.Logf("%d Pods: %v", all.pods, all)
			if inTree[test] != "" { // docs/compatibility.md counts the guests in Go.
				t.Attr("compared", fmt.Sprintf("%s %d Pods", test, all.pods))
			}
			// What never happens is not compared.
			filters := name != "ImageLocality" && name != "FreeBytes"
			if all.passed == 0 || all.updated == 0 || filters && (all.refused == 0 || all.tried == 0) {
				t.Errorf("the clusters are too alike: %+v", all)
			}
			// Pods that are nominated for a node count there.
			if counts := name == "NodePorts" || name == "NodeResourcesFit" || name == "PodTopologySpread"; counts != (all.nominated != 0) {
				t.Errorf("the clusters are too alike: %+v", all)
			}
		})
	}
	compare("FreeBytes", "FreeBytes", "freebytes")
	for name, guest := range inTree {
		compare(name, name, guest)
		for _, language := range []string{"as", "rust"} {
			if other := guest + "/" + language; isDir("testdata/" + other) {
				compare(name+" in "+language, name, other)
			}
		}
	}
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// needToolchain skips a test of a guest whose toolchain is not on the machine, but not in CI.
func needToolchain(t *testing.T, guest string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		return // The guest does not build.
	}
	_, err := guestbuild.Build(t.Context(), "testdata/"+guest)
	if missing := (*guestbuild.MissingToolError)(nil); errors.As(err, &missing) {
		t.Skip(missing)
	}
}

// counts says what happened in all cycles. nominated are the nodes on which a nominated Pod made
// another answer, and updated those that changed between two cycles.
type counts struct{ pods, skipped, passed, refused, tried, changed, scored, nominated, updated int }

func (c *counts) add(r *result) {
	c.pods++
	if strings.HasPrefix(r.PreFilter, "Skip") || len(r.Skipped) > 0 {
		c.skipped++
	}
	for name, status := range r.Filter {
		if status == "Success" {
			c.passed++
		} else {
			c.refused++
		}
		if status != r.Alone[name] {
			c.nominated++
		}
		c.tried += len(r.DryRuns[name])
		for _, s := range r.DryRuns[name] {
			if s != status {
				c.changed++
			}
		}
	}
	c.scored += len(r.Scores)
}

// result is all that a plugin says about a Pod.
type result struct {
	PreFilter string
	NodeNames []string
	Skipped   []string
	Filter    map[string]string
	// Alone are the statuses without the nominated Pods.
	Alone map[string]string
	// DryRuns are the statuses of a node while Pods are taken from it and put
	// back.
	DryRuns  map[string][]string
	PreScore string
	Scores   map[string]int64
}

// narrow forgets that the guest narrowed the nodes in PreFilter if the plugin did not and its
// Filter refuses all others: NodeName has a PreFilter from 1.37 on.
func (r *result) narrow(plugin *result) {
	if len(plugin.NodeNames) != 0 || len(r.NodeNames) == 0 {
		return
	}
	for name, status := range plugin.Filter {
		if status == "Success" && !slices.Contains(r.NodeNames, name) {
			return
		}
	}
	r.NodeNames = nil
}

func text(s *fwk.Status) string {
	if s.IsSuccess() {
		return "Success"
	}
	return fmt.Sprintf("%s %q by %s", s.Code(), s.Reasons(), s.Plugin())
}

// cycle runs the scheduling cycle of a Pod as the scheduler does, and then tries
// out on each node, all at the same time, what preemption would.
func cycle(ctx context.Context, f framework.Framework, lister *snapshot, pod *corev1.Pod, seed uint64) *result {
	r := &result{Filter: map[string]string{}, Alone: map[string]string{}, DryRuns: map[string][]string{}, Scores: map[string]int64{}}
	state := framework.NewCycleState()
	narrowed, status, _ := f.RunPreFilterPlugins(ctx, state, pod)
	r.PreFilter = text(status)
	if narrowed != nil {
		r.NodeNames = sets.List(narrowed.NodeNames)
	}
	if !status.IsSuccess() {
		return r
	}
	r.Skipped = sets.List(state.GetSkipFilterPlugins())
	infos, err := lister.NodeInfos().List()
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var fitting []fwk.NodeInfo
	for _, info := range infos {
		wg.Go(func() {
			name := info.Node().Name
			status := f.RunFilterPluginsWithNominatedPods(ctx, state, pod, info)
			alone := status
			if len(lister.nominated[name]) != 0 {
				alone = f.RunFilterPlugins(ctx, state, pod, info)
			}
			tried := dryRun(ctx, f, state, pod, info, seed)
			mu.Lock()
			defer mu.Unlock()
			r.Filter[name], r.Alone[name], r.DryRuns[name] = text(status), text(alone), tried
			if status.IsSuccess() {
				fitting = append(fitting, info)
			}
		})
	}
	wg.Wait()
	status = f.RunPreScorePlugins(ctx, state, pod, fitting)
	r.PreScore = text(status)
	if !status.IsSuccess() || len(fitting) == 0 {
		return r
	}
	scores, status := f.RunScorePlugins(ctx, state, pod, fitting)
	if !status.IsSuccess() {
		r.PreScore += ", score: " + text(status)
		return r
	}
	for _, s := range scores {
		r.Scores[s.Name] = s.TotalScore
	}
	return r
}

// dryRun works on a copy of the state and of the node. It takes the Pods of the node
// away, one by one, and puts some of them back, as the selection of victims does.
func dryRun(ctx context.Context, f framework.Framework, state fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo, seed uint64) (statuses []string) {
	state, info = state.Clone(), info.Snapshot()
	note := func(s *fwk.Status) { statuses = append(statuses, text(s)) }
	victims := append([]fwk.PodInfo(nil), info.GetPods()...)
	for _, v := range victims {
		if err := info.RemovePod(klog.Background(), v.GetPod()); err != nil {
			panic(err)
		}
		if s := f.RunPreFilterExtensionRemovePod(ctx, state, pod, v, info); !s.IsSuccess() {
			note(s)
		}
		note(f.RunFilterPluginsWithNominatedPods(ctx, state, pod, info))
	}
	for i, v := range victims {
		if seed>>(i%64)&1 == 0 {
			continue
		}
		info.AddPodInfo(v)
		if s := f.RunPreFilterExtensionAddPod(ctx, state, pod, v, info); !s.IsSuccess() {
			note(s)
		}
		note(f.RunFilterPluginsWithNominatedPods(ctx, state, pod, info))
	}
	return statuses
}

// aCluster is nodes with Pods, Pods that are to be scheduled, and Pods that are nominated for a
// node.
type aCluster struct {
	nodes            []*corev1.Node
	running, pending []*corev1.Pod
	nominated        map[string][]fwk.PodInfo
}

// change changes each twentieth node, starts a Pod on one and ends those of another. It returns how
// many nodes it has changed.
func (c *aCluster) change(r *rand.Rand, lister *snapshot) (changed int) {
	podsOf := func(node *corev1.Node) (pods []*corev1.Pod) {
		info, err := lister.NodeInfos().Get(node.Name)
		if err != nil {
			panic(err)
		}
		for _, p := range info.GetPods() {
			pods = append(pods, p.GetPod())
		}
		return pods
	}
	for i, node := range c.nodes {
		if r.IntN(20) != 0 {
			continue
		}
		changed++
		next := newNode(r, node.Name)
		lister.update(next, podsOf(node)...)
		c.nodes[i] = next
	}
	if r.IntN(2) == 0 {
		node, pod := pick(r, c.nodes...), newPod(r, fmt.Sprintf("started-%d", r.Uint32()))
		pod.Spec.NodeName = node.Name
		lister.update(node, append(podsOf(node), pod)...)
		changed++
	}
	if r.IntN(2) == 0 {
		lister.update(pick(r, c.nodes...))
		changed++
	}
	return changed
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func newCluster(r *rand.Rand, n int) *aCluster {
	c := &aCluster{}
	for i := range 2 + r.IntN(8) {
		c.nodes = append(c.nodes, newNode(r, fmt.Sprint("n", i)))
	}
	for i := range r.IntN(30) {
		p := newPod(r, fmt.Sprintf("running-%d-%d", n, i))
		p.Spec.NodeName = pick(r, c.nodes...).Name
		c.running = append(c.running, p)
	}
	for i := range 2 {
		p := newPod(r, fmt.Sprintf("pending-%d-%d", n, i))
		if r.IntN(4) == 0 {
			p.Spec.NodeName = pick(r, "n0", "n1", "n9")
		}
		p.Spec.Priority = new(r.Int32N(3))
		c.pending = append(c.pending, p)
	}
	c.nominated = map[string][]fwk.PodInfo{}
	for i := range max(0, r.IntN(8)-4) {
		p := newPod(r, fmt.Sprintf("nominated-%d-%d", n, i))
		p.Spec.Priority = new(r.Int32N(3))
		info, err := framework.NewPodInfo(p)
		if err != nil {
			panic(err)
		}
		node := pick(r, c.nodes...).Name
		c.nominated[node] = append(c.nominated[node], info)
	}
	return c
}

var effects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

func newNode(r *rand.Rand, name string) *corev1.Node {
	quantity := resource.MustParse
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"zone": pick(r, "a", "b", "c"), "disk": pick(r, "ssd", "hdd", ""), "gen": strconv.Itoa(r.IntN(5)), "kubernetes.io/hostname": name,
		}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			corev1.ResourceCPU: quantity(pick(r, "1", "2500m", "8", "0")), corev1.ResourceMemory: quantity(pick(r, "512Mi", "4Gi", "16Gi")),
			corev1.ResourceEphemeralStorage: quantity(pick(r, "1Gi", "100Gi")), corev1.ResourcePods: quantity(pick(r, "2", "5", "110")),
		}},
	}
	if r.IntN(3) == 0 {
		n.Status.Allocatable["example.com/gpu"] = quantity(pick(r, "1", "4"))
	}
	for range r.IntN(4) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: pick(r, "a", "b", "c"), Value: pick(r, "", "x", "5"), Effect: pick(r, effects...)})
	}
	for range r.IntN(4) {
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{
			Names: []string{pick(r, images...)}, SizeBytes: int64(r.IntN(2000)) << 20,
		})
	}
	return n
}

var images = []string{"web:latest", "db:2", "registry:5000/app:latest", "big:1"}

func newPod(r *rand.Rand, name string) *corev1.Pod {
	quantity := resource.MustParse
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)}}
	container := func(i int) corev1.Container {
		c := corev1.Container{Name: fmt.Sprint("c", i), Image: pick(r, "web", "db:2", "registry:5000/app", "big:1", "unknown")}
		requests := corev1.ResourceList{}
		if r.IntN(3) > 0 {
			requests[corev1.ResourceCPU] = quantity(pick(r, "100m", "1", "2", "0", "1500m"))
		}
		if r.IntN(3) > 0 {
			requests[corev1.ResourceMemory] = quantity(pick(r, "64Mi", "300M", "1Gi", "2.5Gi"))
		}
		if r.IntN(6) == 0 {
			requests[corev1.ResourceEphemeralStorage] = quantity(pick(r, "100Mi", "2Gi"))
		}
		if r.IntN(6) == 0 {
			requests["example.com/gpu"] = quantity(pick(r, "1", "2"))
		}
		c.Resources.Requests = requests
		for range r.IntN(3) {
			c.Ports = append(c.Ports, corev1.ContainerPort{
				ContainerPort: 80, HostPort: pick[int32](r, 0, 8080, 8081), HostIP: pick(r, "", "0.0.0.0", "10.0.0.1", "10.0.0.2"), Protocol: pick(r, corev1.ProtocolTCP, corev1.ProtocolUDP, ""),
			})
		}
		return c
	}
	for i := range 1 + r.IntN(2) {
		p.Spec.Containers = append(p.Spec.Containers, container(i))
	}
	if r.IntN(4) == 0 {
		init := container(9)
		init.Ports = nil
		p.Spec.InitContainers = append(p.Spec.InitContainers, init)
	}
	if r.IntN(8) == 0 {
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: quantity("250m"), corev1.ResourceMemory: quantity("120Mi")}
	}
	for range r.IntN(4) {
		t := corev1.Toleration{Key: pick(r, "", "a", "b", "c"), Operator: pick(r, corev1.TolerationOpExists, corev1.TolerationOpEqual, ""), Effect: pick(r, append(effects, "")...)}
		if t.Operator != corev1.TolerationOpExists {
			t.Value = pick(r, "", "x", "5")
		}
		p.Spec.Tolerations = append(p.Spec.Tolerations, t)
	}
	if r.IntN(3) == 0 {
		p.Spec.NodeSelector = map[string]string{pick(r, "zone", "disk", "none"): pick(r, "a", "b", "ssd", "")}
	}
	if r.IntN(2) == 0 {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: newAffinity(r)}
	}
	p.Labels = map[string]string{"app": pick(r, "web", "db"), "tier": pick(r, "front", "back")}
	if r.IntN(8) == 0 {
		p.Namespace = "other"
	}
	if r.IntN(16) == 0 {
		p.DeletionTimestamp = &metav1.Time{}
	}
	for _, key := range []string{"zone", "disk", "kubernetes.io/hostname", "none"}[:r.IntN(4)+r.IntN(9)/8] {
		if r.IntN(2) == 0 {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, newSpreading(r, key))
		}
	}
	return p
}

func newSpreading(r *rand.Rand, key string) corev1.TopologySpreadConstraint {
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	few, many := int32(1), int32(4)
	return corev1.TopologySpreadConstraint{
		TopologyKey: key, MaxSkew: 1 + r.Int32N(3), WhenUnsatisfiable: corev1.DoNotSchedule,
		LabelSelector: pick(r, nil, &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}}},
		}),
		MatchLabelKeys: pick(r, nil, []string{"tier"}, []string{"tier", "none"}),
		MinDomains:     pick(r, nil, &few, &many), NodeAffinityPolicy: pick(r, nil, &honor, &ignore), NodeTaintsPolicy: pick(r, nil, &honor, &ignore),
	}
}

func newAffinity(r *rand.Rand) *corev1.NodeAffinity {
	a := &corev1.NodeAffinity{}
	if r.IntN(3) > 0 {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
		for range r.IntN(3) {
			a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = append(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms, newTerm(r))
		}
	}
	for range r.IntN(3) {
		a.PreferredDuringSchedulingIgnoredDuringExecution = append(a.PreferredDuringSchedulingIgnoredDuringExecution, corev1.PreferredSchedulingTerm{
			Weight: int32(r.IntN(101)), Preference: newTerm(r),
		})
	}
	return a
}

func newTerm(r *rand.Rand) (t corev1.NodeSelectorTerm) {
	for range r.IntN(3) {
		e := corev1.NodeSelectorRequirement{Key: pick(r, "zone", "disk", "gen", "none"), Operator: pick(r,
			corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist, corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt)}
		switch e.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			e.Values = pick(r, []string{"a"}, []string{"a", "b"}, []string{"ssd", "3"})
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			e.Key, e.Values = pick(r, "gen", "zone"), []string{pick(r, "1", "3")}
		}
		t.MatchExpressions = append(t.MatchExpressions, e)
	}
	for range r.IntN(3) / 2 {
		t.MatchFields = append(t.MatchFields, corev1.NodeSelectorRequirement{
			Key: "metadata.name", Operator: pick(r, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn), Values: []string{pick(r, "n0", "n1", "n2")},
		})
	}
	return t
}

func TestMain(m *testing.M) {
	// Each goroutine of a cycle is one that filters.
	runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0)))
	os.Exit(m.Run())
}
