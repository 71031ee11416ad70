package standalone_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// What the kubelet writes to the cgroup of a pod and asks for its containers, by
// ResourceConfigForPod and generateLinuxContainerResources of k8s.io/kubernetes v1.37.1.
func TestResourcesOfAPod(t *testing.T) {
	resources := func(shares int64, quota, memory *int64) *hookmsg.Resources {
		return &hookmsg.Resources{CPUShares: &shares, CFSQuotaUS: quota, CFSPeriodUS: n(100_000), MemoryLimitBytes: memory}
	}
	const status = `
status:
  qosClass: Burstable
  initContainerStatuses: [{name: init, containerID: "x://i", state: {terminated: {}}}, {name: sidecar, containerID: "x://s", state: {running: {}}}]
  containerStatuses: [{name: a, containerID: "x://a", state: {running: {}}}, {name: b, containerID: "x://b", state: {running: {}}}]
`
	for _, c := range []struct {
		name, spec, status string
		pod                *hookmsg.Resources
		containers         map[string]*hookmsg.Resources
	}{
		{
			name: "two containers", spec: `containers: [{name: a, resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 1Mi}}}, {name: b, resources: {limits: {cpu: "1", memory: 2Mi}}}]`,
			pod:        resources(1280, n(150_000), n(3<<20)),
			containers: map[string]*hookmsg.Resources{"a": resources(256, n(50_000), n(1<<20)), "b": resources(1024, n(100_000), n(2<<20))},
		},
		{
			name: "one of them without limits", spec: `containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}, {name: b}]`,
			pod:        resources(512, nil, nil),
			containers: map[string]*hookmsg.Resources{"a": resources(512, n(50_000), n(1<<20)), "b": resources(2, nil, nil)},
		},
		{
			name: "limits of the pod's own", spec: `
resources: {requests: {cpu: 500m}, limits: {cpu: "2", memory: 4Mi}}
containers: [{name: a, resources: {requests: {cpu: 250m}, limits: {cpu: 500m}}}, {name: b}]`,
			pod:        resources(512, n(200_000), n(4<<20)),
			containers: map[string]*hookmsg.Resources{"a": resources(256, n(50_000), n(4<<20)), "b": resources(2048, n(200_000), n(4<<20))},
		},
		{
			name: "an overhead", spec: `
overhead: {cpu: 250m, memory: 1Mi}
containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			pod:        resources(768, n(75_000), n(2<<20)),
			containers: map[string]*hookmsg.Resources{"a": resources(512, n(50_000), n(1<<20))},
		},
		{
			name: "a sidecar and an init container that takes more", spec: `
initContainers: [{name: init, resources: {limits: {cpu: 100m, memory: 8Mi}}}, {name: sidecar, restartPolicy: Always, resources: {limits: {cpu: 250m, memory: 1Mi}}}]
containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			pod:        resources(768, n(75_000), n(8<<20)),
			containers: map[string]*hookmsg.Resources{"sidecar": resources(256, n(25_000), n(1<<20)), "a": resources(512, n(50_000), n(1<<20))},
		},
		{
			name: "a resize that is deferred", spec: `containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			status:     "  conditions: [{type: PodResizePending, status: \"True\", reason: Deferred}]\n",
			containers: map[string]*hookmsg.Resources{"a": nil},
		},
		{
			name: "a resize that is done", spec: `containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			status: "  conditions: [{type: PodResizeInProgress, status: \"True\"}]\n",
			pod:    resources(512, n(50_000), n(1<<20)), containers: map[string]*hookmsg.Resources{"a": resources(512, n(50_000), n(1<<20))},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "kind: Pod\nmetadata: {name: p, uid: u}\nspec:\n  " + strings.ReplaceAll(strings.TrimSpace(c.spec), "\n", "\n  ") + status + c.status
			pods, err := standalone.File(write(t, text)).Pods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatalf("%v: %s", err, text)
			}
			got := map[string]*hookmsg.Resources{}
			for _, container := range pods[0].Containers {
				got[container.Name] = container.Resources
			}
			if diff := cmp.Diff(c.pod, pods[0].Resources); diff != "" {
				t.Errorf("the pod: %s", diff)
			}
			if diff := cmp.Diff(c.containers, got); diff != "" {
				t.Errorf("the containers: %s", diff)
			}
		})
	}
	// The kubelet counts the pod's own resources for the class, too.
	pods, err := standalone.File(write(t, `{kind: Pod, metadata: {uid: u}, spec: {resources: {limits: {cpu: "1", memory: 1Mi}}, containers: [{name: a}]}}`)).Pods(t.Context())
	if err != nil || len(pods) != 1 || pods[0].QOSClass != abi.QOSGuaranteed {
		t.Errorf("got %v, error %v", pods, err)
	}
}

// The period, and whether there are quotas at all, are the kubelet's configuration: plugins
// see what it and the runtime have written, whatever the spec would make by default.
func TestReconcilerSeesTheLimitsOfTheKubelet(t *testing.T) {
	const script = "divide_quota 2\ncpu_shares 300"
	for _, c := range []struct {
		name string
		// The quota and the period of the pod and of its container, and what they become.
		pod, container, wantPod, wantContainer [2]int64
		// late is set if they are written after the cgroups were found.
		late bool
	}{
		{"a kubelet as it is by default", [2]int64{200_000, 100_000}, [2]int64{200_000, 100_000}, [2]int64{100_000, 100_000}, [2]int64{100_000, 100_000}, false},
		{"cpuCFSQuotaPeriod is 10 ms", [2]int64{20_000, 10_000}, [2]int64{20_000, 10_000}, [2]int64{10_000, 10_000}, [2]int64{10_000, 10_000}, false},
		{"CPUs of the container's own, by the static CPU manager", [2]int64{-1, 100_000}, [2]int64{-1, 100_000}, [2]int64{-1, 100_000}, [2]int64{-1, 100_000}, false},
		{"cpuCFSQuota is off", [2]int64{-1, 10_000}, [2]int64{-1, 10_000}, [2]int64{-1, 10_000}, [2]int64{-1, 10_000}, false},
		{"a pod of two containers, one with CPUs of its own", [2]int64{-1, 100_000}, [2]int64{200_000, 100_000}, [2]int64{-1, 100_000}, [2]int64{100_000, 100_000}, false},
		{"cgroups that are found before the kubelet has written to them", [2]int64{20_000, 10_000}, [2]int64{20_000, 10_000}, [2]int64{10_000, 10_000}, [2]int64{10_000, 10_000}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNode(t)
			podCgroup, container := n.make("a")
			limit := func(cgroup string, l [2]int64) {
				if n.tree.V2 {
					quota := strconv.FormatInt(l[0], 10)
					if l[0] < 0 {
						quota = "max"
					}
					n.tree.Write(cgroup, "cpu.max", fmt.Sprintf("%s %d", quota, l[1]))
					return
				}
				n.tree.Write(cgroup, "cpu.cfs_period_us", strconv.FormatInt(l[1], 10))
				n.tree.Write(cgroup, "cpu.cfs_quota_us", strconv.FormatInt(l[0], 10))
			}
			p := pod("a", script)
			limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("64Mi")}
			p.Spec.Containers[0].Resources.Limits = limits
			n.list(p)
			if c.late {
				n.run(nil)
				n.within(soon, container, 300)
			}
			if c.late { // The pod's becomes less at once, and then the container's cannot be more.
				limit(container, c.container)
				limit(podCgroup, c.pod)
			} else {
				limit(podCgroup, c.pod)
				limit(container, c.container)
				n.run(nil)
				n.within(soon, container, 300)
			}
			got := func(cgroup string) (l [2]int64) {
				r := n.enforcer.Applier().Limits(cgroup)
				return [2]int64{*r.CFSQuotaUS, *r.CFSPeriodUS}
			}
			for start := time.Now(); got(podCgroup) != c.wantPod || got(container) != c.wantContainer; time.Sleep(time.Millisecond) {
				if time.Since(start) > soon {
					t.Fatalf("the pod has %v and the container %v, want %v and %v", got(podCgroup), got(container), c.wantPod, c.wantContainer)
				}
			}
			n.within(soon, podCgroup, 300)
			// A second agent, without a memory, decides the same.
			n.restart(cgroup.EnforcerConfig{})
			r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
			if err != nil {
				t.Fatal(err)
			}
			if report, err := r.Sync(t.Context()); err != nil || len(report.Changes) != 0 {
				t.Errorf("after a restart, changes are %v, error %v", report.Changes, err)
			}
		})
	}
}

// The kubelet writes the quota of a pod after a round has looked at its cgroups, while the round
// still decides on others.
func TestReconcilerSeesAQuotaThatIsWrittenDuringARound(t *testing.T) {
	n := newNode(t)
	podCgroup, container := n.make("a")
	n.make("z")
	first, last := pod("a", "divide_quota 2"), pod("z", "loop")
	first.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	n.list(first)
	r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout, Resync: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 { // Until rounds do not look of themselves.
		if _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	n.list(first, last)
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	all.Go(func() { r.Run(ctx) })
	poll := func(what string, done func() bool) {
		t.Helper()
		for start := time.Now(); !done(); time.Sleep(time.Millisecond) {
			if time.Since(start) > soon {
				t.Fatal(what)
			}
		}
	}
	poll("nothing is watched", func() bool { watches, _ := r.Watches(); return watches != 0 })
	for _, cgroup := range []string{podCgroup, container} {
		if n.tree.V2 {
			n.tree.Write(cgroup, "cpu.max", "200000 100000")
		} else {
			n.tree.Write(cgroup, "cpu.cfs_quota_us", "200000")
		}
	}
	for _, cgroup := range []string{podCgroup, container} {
		poll("the quota of "+cgroup+" is not halved", func() bool { return *n.enforcer.Applier().Limits(cgroup).CFSQuotaUS == 100_000 })
	}
}

// On a node without cpuCFSQuota no cgroup has the quota of its pod's spec. Rounds do not look at all
// of them each time.
func TestReconcilerSeesThatThereAreNoQuotas(t *testing.T) {
	n := newNode(t)
	var pods []corev1.Pod
	const many = 5
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		n.make(name)
		p := pod(name, "divide_quota 2\ncpu_shares 300")
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("64Mi")}
		pods = append(pods, p)
	}
	n.list(pods...)
	r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout, Resync: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if looks := r.Looks(); looks == 0 || looks > 2*many*3 {
		t.Errorf("%d cgroups were looked at %d times", 2*many, looks)
	}
}

// A plugin that reads what no Pod has is refused by its name, and with a list that has
// it, is not.
func TestAPluginThatReadsWhatIsNotKnown(t *testing.T) {
	kubelet, err := standalone.Kubelet(standalone.KubeletConfig{})
	if err != nil {
		t.Fatal(err)
	}
	file := standalone.File(write(t, "kind: PodList"))
	for name, c := range map[string]struct {
		standalone.Discovery
		want string
	}{
		"a file":      {file, `plugin "gpu": it reads container_envs, which is unavailable in the standalone mode with a file of pods`},
		"the kubelet": {kubelet, `plugin "gpu": it reads container_envs, which is unavailable in the standalone mode with the kubelet's pods endpoint`},
		"another":     {claims{Discovery: file}, ""},
	} {
		n := newNode(t, hooks.PluginConfig{Config: host.Config{Name: "gpu", Module: host.ModuleConfig{Source: source(t, scripted)}}, Reads: []string{"pod", "container_envs[GPU]"}})
		_, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Layout: n.layout, Discovery: c.Discovery})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %s", name, err, c.want)
		}
	}
}
