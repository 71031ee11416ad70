// Package neutral holds in the scheduler's own framework that a plugin of package sched does
// what a plugin does that has the methods of its guest's extension points only.
package neutral

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

// common is every interface of an extension point that all minors have. A minor's all has it,
// and what the minor has beside it.
type common interface {
	fwk.PreEnqueuePlugin
	fwk.PreFilterPlugin
	fwk.PreScorePlugin
	fwk.ReservePlugin
	fwk.PermitPlugin
	fwk.PreBindPlugin
	fwk.BindPlugin
	fwk.PostBindPlugin
	fwk.SignPlugin
}

// point is the functions of a guest, and a plugin with the methods of their extension points
// only.
type point struct {
	functions abi.Mask
	only      func(p kube.Plugin) fwk.Plugin
}

// exact are the extension points that all minors have. A minor adds its own.
var exact = map[string]point{
	"PreEnqueue": {abi.MaskOf(abi.PreEnqueue), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.PreEnqueuePlugin }{p.(common)} }},
	"QueueSort":  {abi.MaskOf(abi.QueueSort), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.QueueSortPlugin }{p.(fwk.QueueSortPlugin)} }},
	"EnqueueExtensions": {abi.MaskOf(abi.EventsToRegister), func(p kube.Plugin) fwk.Plugin {
		return struct{ fwk.EnqueueExtensions }{p.(fwk.EnqueueExtensions)}
	}},
	"PreFilter":  {abi.MaskOf(abi.PreFilter), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.PreFilterPlugin }{p.(common)} }},
	"Filter":     {abi.MaskOf(abi.Filter), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.FilterPlugin }{p.(fwk.FilterPlugin)} }},
	"PostFilter": {abi.MaskOf(abi.PostFilter), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.PostFilterPlugin }{p.(fwk.PostFilterPlugin)} }},
	"PreScore":   {abi.MaskOf(abi.PreScore), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.PreScorePlugin }{p.(common)} }},
	"Score":      {abi.MaskOf(abi.Score), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.ScorePlugin }{p.(fwk.ScorePlugin)} }},
	"Reserve":    {abi.MaskOf(abi.Reserve, abi.Unreserve), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.ReservePlugin }{p.(common)} }},
	"Permit":     {abi.MaskOf(abi.Permit), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.PermitPlugin }{p.(common)} }},
	"PreBind":    {abi.MaskOf(abi.PreBind), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.PreBindPlugin }{p.(common)} }},
	"Bind":       {abi.MaskOf(abi.Bind), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.BindPlugin }{p.(common)} }},
	"PostBind":   {abi.MaskOf(abi.PostBind), func(p kube.Plugin) fwk.Plugin { return struct{ fwk.PostBindPlugin }{p.(common)} }},
	// A guest that only signs is asked, too, which the framework does not do by itself: then
	// fewer Pods are batched.
	"Sign": {abi.MaskOf(abi.SignPod, abi.Filter), func(p kube.Plugin) fwk.Plugin { return signs{p.(common), p.(fwk.FilterPlugin)} }},
	"Filter and Score": {abi.MaskOf(abi.Filter, abi.Score), func(p kube.Plugin) fwk.Plugin {
		return struct {
			fwk.FilterPlugin
			scorer
		}{p.(fwk.FilterPlugin), p.(scorer)}
	}},
	"PreFilter and Reserve": {abi.MaskOf(abi.PreFilter, abi.Reserve), func(p kube.Plugin) fwk.Plugin {
		return struct {
			fwk.PreFilterPlugin
			reserver
		}{p.(common), p.(common)}
	}},
}

// scorer and reserver are fwk.ScorePlugin and fwk.ReservePlugin without a Name.
type scorer interface {
	Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status)
	ScoreExtensions() fwk.ScoreExtensions
}

type reserver interface {
	Reserve(context.Context, fwk.CycleState, *corev1.Pod, string) *fwk.Status
	Unreserve(context.Context, fwk.CycleState, *corev1.Pod, string)
}

const name = "guest"

// outcome is the result of a profile.
type outcome struct {
	Refused                      string // why there is no framework
	Filters, PostFilters, Scores bool
	Events                       []string // by plugin, in how many kinds of events it is interested
	Signature                    string
	PreFilter, PostFilter        string
	Nodes                        map[string]string
	PreScore                     string
	Totals                       map[string]int64
	Reserve, Permit              string
	Placements                   string // how many, and their scores
	PreFlight, PreBind, Bind     string
}

// TestWhatAGuestLacksIsNeutral runs a Pod through profiles with a plugin of package sched, and
// with one that has the methods of the guest's extension points only. The guest agrees with
// everything in one run and refuses in another.
func TestWhatAGuestLacksIsNeutral(t *testing.T) {
	metrics.Register()
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	profiles := map[string][]string{
		"nothing else":  {"PrioritySort", "DefaultBinder"},
		"other plugins": {"PrioritySort", "DefaultBinder", "NodeName", "NodeUnschedulable", "NodeResourcesFit", "SchedulingGates", "TaintToleration", "ImageLocality"},
	}
	for guest, g := range exact {
		for profile, others := range profiles {
			for _, code := range []abi.Code{abi.Success, abi.Unschedulable, abi.Skip} {
				if guest == "PostFilter" && code == abi.Skip {
					continue // The framework panics.
				}
				t.Run(fmt.Sprintf("%s/%s/%v", guest, profile, code), func(t *testing.T) {
					factory := func(ctx context.Context, _ apiruntime.Object, h fwk.Handle) (fwk.Plugin, error) {
						config := binary.LittleEndian.AppendUint64(nil, uint64(g.functions))
						config = append(binary.LittleEndian.AppendUint32(config, uint32(code)), 0, 0, 0, 0)
						p, err := kube.Load(ctx, rt, sched.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{File: "../../../../sched/testdata/scripted.wasm"}, GuestConfig: config, Limits: host.Limits{Instances: 1}}}, h)
						if err == nil {
							t.Cleanup(func() { p.Close(context.Background()) })
						}
						return p, err
					}
					got := run(t, others, factory)
					want := run(t, others, func(ctx context.Context, args apiruntime.Object, h fwk.Handle) (fwk.Plugin, error) {
						p, err := factory(ctx, args, h)
						if err != nil {
							return nil, err
						}
						return g.only(p.(kube.Plugin)), nil
					})
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("with exactly its methods -, as package sched makes it +\n%s", diff)
					}
				})
			}
		}
	}
}

// run makes a framework of a profile with the guest before the other plugins.
func run(t *testing.T, others []string, factory frameworkruntime.PluginFactory) (o outcome) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	registry := plugins.NewInTreeRegistry()
	registry[name] = factory
	profile := &schedconfig.KubeSchedulerProfile{SchedulerName: "default", Plugins: &schedconfig.Plugins{}}
	for _, plugin := range append([]string{name}, others...) {
		profile.Plugins.MultiPoint.Enabled = append(profile.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: plugin})
		if plugin == "NodeResourcesFit" {
			profile.PluginConfig = append(profile.PluginConfig, schedconfig.PluginConfig{Name: plugin, Args: &schedconfig.NodeResourcesFitArgs{
				ScoringStrategy: &schedconfig.ScoringStrategy{Type: schedconfig.LeastAllocated, Resources: []schedconfig.ResourceSpec{{Name: "cpu", Weight: 1}}},
			}})
		}
	}
	var nodes []*corev1.Node
	for i := range 4 {
		nodes = append(nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i+1)},
			Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(i + 1)), "memory": resource.MustParse("1Gi"), "pods": resource.MustParse("10")}},
		})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "p"}, Spec: corev1.PodSpec{SchedulerName: "default"}}
	client := fake.NewClientset(pod)
	snapshot := internalcache.NewSnapshot(nil, nodes)
	f, err := frameworkruntime.NewFramework(ctx, registry, profile, frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithClientSet(client), frameworkruntime.WithPodNominator(noNominations{}), frameworkruntime.WithParallelism(1))
	if err != nil {
		return outcome{Refused: err.Error()}
	}
	o = outcome{Filters: f.HasFilterPlugins(), PostFilters: f.HasPostFilterPlugins(), Scores: f.HasScorePlugins(), Nodes: map[string]string{}, Totals: map[string]int64{}}
	for _, e := range f.EnqueueExtensions() {
		if events, err := e.EventsToRegister(ctx); err != nil || len(events) > 0 {
			o.Events = append(o.Events, fmt.Sprint(e.Name(), len(events), err))
		}
	}
	for _, p := range f.PreEnqueuePlugins() {
		if s := p.PreEnqueue(ctx, pod); !s.IsSuccess() {
			o.Events = append(o.Events, p.Name()+" gates: "+text(s))
		}
	}
	slices.Sort(o.Events) // Plugins come in the order of a map.
	o.Signature = signature(ctx, f, pod)
	state := framework.NewCycleState()
	result, status, _ := f.RunPreFilterPlugins(ctx, state, pod)
	o.PreFilter = fmt.Sprint(text(status), " ", result)
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		o.Nodes[info.Node().Name] = text(f.RunFilterPlugins(ctx, state, pod, info))
	}
	nominated, status := f.RunPostFilterPlugins(ctx, state, pod, framework.NewDefaultNodeToStatus())
	o.PostFilter = fmt.Sprintf("%s %+v", text(status), nominated)
	o.PreScore = text(f.RunPreScorePlugins(ctx, state, pod, infos))
	scores, status := f.RunScorePlugins(ctx, state, pod, infos)
	o.PreScore += ", " + text(status)
	for _, s := range scores {
		o.Totals[s.Name] = s.TotalScore
	}
	o.Placements = placements(ctx, f, state, infos, others)
	o.Reserve = text(f.RunReservePluginsReserve(ctx, state, pod, "n1"))
	o.Permit = text(permit(ctx, f, state, pod, "n1"))
	o.PreFlight = text(f.RunPreBindPreFlights(ctx, state, pod, "n1"))
	o.PreBind = text(f.RunPreBindPlugins(ctx, state, pod, "n1"))
	o.Bind = text(f.RunBindPlugins(ctx, state, pod, "n1"))
	f.RunPostBindPlugins(ctx, state, pod, "n1")
	f.RunReservePluginsUnreserve(ctx, state, pod, "n1")
	return o
}

// text is a status without the plugin that gave it.
func text(s *fwk.Status) string { return s.Code().String() + ": " + s.Message() }

// noNominations is a scheduler that has nominated no Pod.
type noNominations struct{ fwk.PodNominator }

func (noNominations) NominatedPodsForNode(string) []fwk.PodInfo { return nil }

// signs is a plugin that filters and signs Pods.
type signs struct {
	signer fwk.SignPlugin
	fwk.FilterPlugin
}

func (s signs) SignPod(ctx context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return s.signer.SignPod(ctx, pod)
}
