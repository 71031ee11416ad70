//go:build !kube135 && !kube136

// Package poison runs guests that misbehave in a real scheduler, on a clientset without a server,
// beside a profile without plugins.
package poison

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/sched"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

var how = []string{"loops", "traps", "recurses", "grows"}

// guest returns the configuration of sched/testdata/poison.wat.
func guest(name string, functions abi.Mask, f abi.Function, how int, preFilter abi.Code, policy host.FailurePolicy, observer host.Observer) sched.PluginConfig {
	config := binary.LittleEndian.AppendUint64(nil, uint64(functions))
	for _, n := range []uint32{uint32(f), uint32(how), uint32(abi.EventNode), uint32(abi.ActionAdd | abi.ActionHint), uint32(abi.Success), uint32(preFilter)} {
		config = binary.LittleEndian.AppendUint32(config, n)
	}
	return sched.PluginConfig{FailurePolicy: policy, Config: host.Config{
		Name: name, Module: host.ModuleConfig{File: "../../../../sched/testdata/poison.wasm"}, GuestConfig: config, Observer: observer,
	}}
}

// failures counts the calls that failed, and their fuel.
type failures struct {
	mu    sync.Mutex
	calls int
	fuel  int64
}

func (f *failures) get() (calls int, fuel int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.fuel
}

func (f *failures) Called(_ context.Context, e host.CallEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Err != nil {
		f.calls++
		f.fuel += e.Fuel
	}
}

func (*failures) Built(context.Context, host.BuildEvent) {}
func (*failures) Refused(context.Context, string, error) {}
func (*failures) Restarted(string, bool)                 {}
func (*failures) CacheHits(_, _ string, _ uint64)        {}

// cluster is a scheduler with a profile without plugins of ours, good, and one for each guest.
type cluster struct {
	t      *testing.T
	client *fake.Clientset
	pods   int
	// run starts the scheduler with what there is by then.
	run func()
}

// start prepares a scheduler and starts it.
func start(t *testing.T, nodes int, queueSort bool, guests map[string]sched.PluginConfig) *cluster {
	t.Helper()
	c := prepare(t, nodes, queueSort, guests)
	c.run()
	return c
}

// prepare returns a cluster whose scheduler does not run. Each of the guests is a plugin of the
// profile of its name. With queueSort it is also the one that sorts the queue, for all profiles.
func prepare(t *testing.T, nodes int, queueSort bool, guests map[string]sched.PluginConfig) *cluster {
	t.Helper()
	metrics.Register()
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, client: fake.NewClientset()}
	c.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := a.(clienttesting.CreateAction).GetObject().(*corev1.Binding)
		gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		o, err := c.client.Tracker().Get(gvr, b.Namespace, b.Name)
		if err != nil {
			return true, nil, err
		}
		p := o.(*corev1.Pod).DeepCopy()
		p.Spec.NodeName = b.Target.Name
		return true, b, c.client.Tracker().Update(gvr, p, b.Namespace)
	})
	for n := range nodes {
		c.node(fmt.Sprint("n", n))
	}
	var versioned configv1.KubeSchedulerConfiguration
	scheme.Scheme.Default(&versioned)
	var defaults schedconfig.KubeSchedulerConfiguration
	if err := scheme.Scheme.Convert(&versioned, &defaults, nil); err != nil {
		t.Fatal(err)
	}
	good := defaults.Profiles[0].DeepCopy()
	good.SchedulerName = "good"
	registry := frameworkruntime.Registry{}
	for name := range guests {
		if queueSort {
			good.Plugins.QueueSort.Enabled = []schedconfig.Plugin{{Name: name}}
			good.Plugins.QueueSort.Disabled = []schedconfig.Plugin{{Name: "PrioritySort"}}
		}
	}
	profiles := []schedconfig.KubeSchedulerProfile{*good}
	for name, cfg := range guests {
		bad := good.DeepCopy()
		bad.SchedulerName = name
		bad.Plugins.MultiPoint.Enabled = append(bad.Plugins.MultiPoint.Enabled, schedconfig.Plugin{Name: name, Weight: 1})
		profiles = append(profiles, *bad)
		registry[name] = func(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			return kube.Load(ctx, rt, cfg, h)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	inf := informers.NewSharedInformerFactory(c.client, 0)
	recorder := events.NewFakeRecorder(1)
	recorder.Events = nil // It drops them.
	s, err := scheduler.New(ctx, c.client, inf, nil, profile.RecorderFactory(func(string) events.EventRecorderLogger { return recorder }),
		scheduler.WithProfiles(profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	c.run = func() {
		t.Helper()
		inf.Start(ctx.Done())
		inf.WaitForCacheSync(ctx.Done())
		if err := s.WaitForHandlersSync(ctx); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { s.Run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := rt.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *cluster) node(name string) {
	resources := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: resources, Allocatable: resources}}
	if _, err := c.client.CoreV1().Nodes().Create(c.t.Context(), node, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// pod creates a Pod and returns its name.
func (c *cluster) pod(name, profile string) string {
	c.pods++
	name = fmt.Sprint(name, "-", c.pods)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec:       corev1.PodSpec{SchedulerName: profile, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	if _, err := c.client.CoreV1().Pods("default").Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	return name
}

func (c *cluster) remove(pod string) {
	if err := c.client.CoreV1().Pods("default").Delete(c.t.Context(), pod, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// bound waits until a Pod is bound, and returns how long that took.
func (c *cluster) bound(name string) time.Duration {
	begun := time.Now()
	for c.t.Context().Err() == nil {
		pod, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		if pod.Spec.NodeName != "" {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(begun)
}

// TestGoodPodsOfAnotherProfile holds what the calls for a Pod or an event use at most whose guest
// misbehaves, and says how long a Pod of a profile without plugins waits for them. The time is no
// verdict: docs/performance.md has that of a quiet machine.
func TestGoodPodsOfAnotherProfile(t *testing.T) {
	cycle := abi.MaskOf(abi.PreFilter, abi.Filter, abi.Score, abi.Reserve, abi.Permit)
	type profile struct {
		name     string
		function abi.Function
		failed   *failures
	}
	for _, nodes := range []int{400, 5_000} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			var profiles []profile
			guests := map[string]sched.PluginConfig{}
			for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
				for n, does := range how {
					for _, f := range append(cycle.Functions(), abi.PreEnqueue, abi.QueueingHint) {
						functions, preFilter := cycle, abi.Success
						switch f {
						case abi.PreEnqueue:
							functions = abi.MaskOf(abi.PreEnqueue)
						case abi.QueueingHint:
							functions, preFilter = abi.MaskOf(abi.EventsToRegister, abi.QueueingHint, abi.PreFilter), abi.UnschedulableAndUnresolvable
						}
						p := profile{fmt.Sprintf("%s-%s-%s", f, does, strings.ToLower(string(policy))), f, new(failures)}
						guests[p.name] = guest(p.name, functions, f, n, preFilter, policy, p.failed)
						profiles = append(profiles, p)
					}
				}
			}
			c := start(t, nodes, false, guests)
			for _, p := range profiles {
				t.Run(p.name, func(t *testing.T) {
					c.t = t
					c.bound(c.pod("before", "good"))
					var bad []string
					add := func() { bad = append(bad, c.pod(fmt.Sprint("bad", len(bad)), p.name)) }
					if add(); p.function == abi.QueueingHint {
						for range 49 {
							add()
						}
						c.bound(c.pod("between", "good")) // By now the others were refused.
						c.node("new-" + p.name)
					}
					waited := c.bound(c.pod("next", "good"))
					for _, name := range bad {
						c.remove(name)
					}
					calls, fuel := p.failed.get()
					t.Logf("the next good Pod waited %s; %d calls failed and used %d of fuel", waited.Round(time.Millisecond), calls, fuel)
					// The Pod may have been tried again meanwhile, once in a second at most.
					tries := int64(2 + waited/time.Second)
					if most := tries * 1_020_000_000; fuel > most {
						t.Errorf("the calls that failed have used %d of fuel, more than %d", fuel, most)
					}
					if calls == 0 && p.function != abi.QueueingHint {
						t.Error("no call has failed")
					}
				})
			}
		})
	}
}

// TestLessThatMisbehaves holds that Pods are bound while the guest fails that sorts the queue, which
// all profiles of a scheduler share.
func TestLessThatMisbehaves(t *testing.T) {
	for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
		for n, does := range how {
			t.Run(fmt.Sprintf("%s %s", does, policy), func(t *testing.T) {
				failed := new(failures)
				c := prepare(t, 10, true, map[string]sched.PluginConfig{
					"less": guest("less", abi.MaskOf(abi.QueueSort), abi.QueueSort, n, abi.Success, policy, failed),
				})
				var pods []string
				for n := range 50 { // Before the scheduler runs: one that takes each at once compares none.
					pods = append(pods, c.pod("p", []string{"good", "less"}[n%2]))
				}
				c.run()
				waited := time.Duration(0)
				for _, name := range pods {
					waited += c.bound(name)
				}
				calls, fuel := failed.get()
				t.Logf("50 Pods waited %s; %d calls failed and used %d of fuel", waited.Round(time.Millisecond), calls, fuel)
				if calls == 0 {
					t.Error("no call has failed")
				}
			})
		}
	}
}
