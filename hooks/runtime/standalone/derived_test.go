package standalone_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// Resources of the node that a pod has through claims, by ResourceConfigForPod,
// generateLinuxContainerResources and GetHugepageLimitsFromResources of k8s.io/kubernetes v1.37.1.
func TestResourcesByClaimsAndHugepages(t *testing.T) {
	type amounts struct {
		shares, quota, memory int64 // 0 for none.
		hugepages             map[string]int64
	}
	const claim = `[{resourceClaimName: c, containers: [a, b], mapping: [{name: cpu, quantity: "1"}, {name: memory, quantity: 8Mi}, {name: hugepages-1Gi, quantity: 1Gi}],
    overhead: [{name: cpu, perPod: 100m, perContainer: 200m}, {name: memory, perContainer: 1Mi}]}]`
	for _, c := range []struct {
		name, spec, claims string
		pod                amounts
		containers         map[string]amounts
	}{
		{
			"limits, which the claim adds to", `containers: [{name: a, resources: {requests: {cpu: 500m}, limits: {cpu: "1", memory: 2Mi}}}, {name: b, resources: {limits: {cpu: "1", memory: 2Mi}}}]`, claim,
			// The pod has the overhead of both containers, each container its own.
			amounts{1024*3/2 + 1536, 350_000, (4 + 8 + 2) << 20, map[string]int64{"1GB": 1 << 30}},
			map[string]amounts{
				"a": {512, 230_000, (2 + 8 + 1) << 20, map[string]int64{"1GB": 1 << 30}},
				"b": {1024, 230_000, (2 + 8 + 1) << 20, map[string]int64{"1GB": 1 << 30}},
			},
		},
		{
			"no limits, which there are none of with a claim either", `containers: [{name: a, resources: {requests: {cpu: 500m}}}, {name: x}]`, claim,
			amounts{512 + 1536, 0, 0, map[string]int64{"1GB": 1 << 30}},
			map[string]amounts{"a": {512, 0, 0, map[string]int64{"1GB": 1 << 30}}, "x": {2, 0, 0, nil}},
		},
		{
			"huge pages of two sizes", `containers: [{name: a, resources: {limits: {cpu: "1", memory: 1Mi, hugepages-2Mi: 4Mi, hugepages-1Gi: 2Gi}, requests: {cpu: "1", memory: 1Mi, hugepages-2Mi: 4Mi, hugepages-1Gi: 2Gi}}}]`, "null",
			amounts{1024, 100_000, 1 << 20, map[string]int64{"2MB": 4 << 20, "1GB": 2 << 30}},
			map[string]amounts{"a": {1024, 100_000, 1 << 20, map[string]int64{"2MB": 4 << 20, "1GB": 2 << 30}}},
		},
		{
			"huge pages of the pod's own, and by a claim", `{resources: {limits: {hugepages-1Gi: 4Gi}, requests: {hugepages-1Gi: 4Gi}}, containers: [{name: a, resources: {limits: {cpu: "1"}}}, {name: b, resources: {limits: {hugepages-1Gi: 1Gi}, requests: {hugepages-1Gi: 1Gi}}}]}`, claim,
			amounts{1024 + 1536, 0, 0, map[string]int64{"1GB": 5 << 30}},
			map[string]amounts{"a": {1024, 230_000, 0, map[string]int64{"1GB": 4 << 30}}, "b": {2, 0, 0, map[string]int64{"1GB": 2 << 30}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := c.spec
			if !strings.HasPrefix(spec, "{") {
				spec = "{" + spec + "}"
			}
			text := "kind: Pod\nmetadata: {name: p, uid: u}\nspec: " + spec + `
status:
  qosClass: Burstable
  containerStatuses: [{name: a, containerID: "x://a"}, {name: b, containerID: "x://b"}, {name: x, containerID: "x://x"}]
  nodeAllocatableResourceClaimStatuses: ` + c.claims + "\n"
			pods, err := standalone.File(write(t, text)).Pods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatalf("%v: %s", err, text)
			}
			of := func(r *hookmsg.Resources, hugepages map[string]int64) (a amounts) {
				for into, from := range map[*int64]*int64{&a.shares: r.CPUShares, &a.quota: r.CFSQuotaUS, &a.memory: r.MemoryLimitBytes} {
					if from != nil {
						*into = *from
					}
				}
				a.hugepages = hugepages
				return a
			}
			if diff := cmp.Diff(c.pod, of(pods[0].Resources, pods[0].Hugepages), cmp.AllowUnexported(amounts{})); diff != "" {
				t.Errorf("the pod: %s", diff)
			}
			got := map[string]amounts{}
			for _, container := range pods[0].Containers {
				got[container.Name] = of(container.Resources, container.Hugepages)
			}
			if diff := cmp.Diff(c.containers, got, cmp.AllowUnexported(amounts{})); diff != "" {
				t.Errorf("the containers: %s", diff)
			}
		})
	}
}

// The swap of containers that the kubelet derives from its memorySwap.swapBehavior, and their huge
// pages, are handed to plugins that own these files, and given back.
func TestReconcilerGivesBackSwapAndHugepages(t *testing.T) {
	const (
		container = "kubepods/burstable/poda/ac"
		other     = "kubepods/burstable/podb/bc"
		// Of 8 GiB of swap space for 16 GiB of memory, a request of 64 MiB has half of that.
		limited = "33554432"
	)
	proc := t.TempDir()
	if err := os.WriteFile(filepath.Join(proc, "meminfo"), []byte("MemTotal:       16777216 kB\nMemFree:  5 kB\nHugePages_Total:  0\nSwapTotal:       8388608 kB\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	engine, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{{
		Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}}, Owns: []string{"unified[memory.swap.max]", "unified[hugetlb.2MB.max]", "unified[io.weight]"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.Background())
	const halves = "divide_unified memory.swap.max 2\ndivide_unified hugetlb.2MB.max 2\nunified io.weight \"default 50\""
	for _, c := range []struct {
		name string
		// The files of the container, and the swap of another.
		swap, hugepages, weight, other string
		script                         string
		decided                        [3]string
		// restarted is what the files have when another process of the agent decides, and given what
		// after it drops the decisions.
		restarted, given [3]string
	}{
		{
			"LimitedSwap", limited, "4194304", "default 100", limited, halves,
			[3]string{"16777216", "2097152", "default 50"}, [3]string{"16777216", "2097152", "default 50"}, [3]string{limited, "4194304", "default 100"},
		},
		{
			"NoSwap", "0", "4194304", "default 100", "0", halves,
			[3]string{"0", "2097152", "default 50"}, [3]string{"0", "2097152", "default 50"}, [3]string{"0", "4194304", "default 100"},
		},
		{
			"a value that an earlier process has decided, beside a container with LimitedSwap", "16777216", "2097152", "default 50", limited, halves,
			[3]string{"16777216", "2097152", "default 50"}, [3]string{"16777216", "2097152", "default 50"}, [3]string{limited, "4194304", "default 50"},
		},
		{
			"another value, of which it is not known what the kubelet asks for", "777", "4194304", "default 100", "0", halves,
			[3]string{"777", "2097152", "default 50"}, [3]string{"777", "2097152", "default 50"}, [3]string{"777", "4194304", "default 100"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			put := func(file, text string) {
				t.Helper()
				file = filepath.Join(root, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			put("cgroup.controllers", "cpu memory io hugetlb")
			for _, of := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort", "kubepods/burstable/poda", "kubepods/burstable/podb", container, other} {
				for file, text := range map[string]string{"cpu.weight": "100", "cpu.max": "max 100000", "memory.max": "max"} {
					put(of+"/"+file, text)
				}
			}
			put(container+"/memory.swap.max", c.swap)
			put(container+"/hugetlb.2MB.max", c.hugepages)
			put(container+"/io.weight", c.weight)
			put(other+"/memory.swap.max", c.other)
			read := func() (got [3]string) {
				for i, file := range []string{"memory.swap.max", "hugetlb.2MB.max", "io.weight"} {
					b, err := os.ReadFile(filepath.Join(root, container, file))
					if err != nil {
						t.Fatal(err)
					}
					got[i] = strings.TrimSpace(string(b))
				}
				return got
			}
			list := filepath.Join(t.TempDir(), "pods.json")
			var r *standalone.Reconciler
			var applier *cgroup.Applier
			start := func() {
				t.Helper()
				var err error
				applier, err = cgroup.NewApplier(cgroup.ApplierConfig{Root: root, Proc: proc})
				if err != nil {
					t.Fatal(err)
				}
				state := new(cgroup.State)
				enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: state, Applier: applier})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					enforcer.Close()
					enforcer.Applier().Close()
				})
				if r, err = standalone.New(standalone.Config{Engine: engine, State: state, Enforcer: enforcer, Discovery: standalone.File(list)}); err != nil {
					t.Fatal(err)
				}
			}
			sync := func(when, script string, want [3]string) {
				t.Helper()
				a, b := pod("a", ""), pod("b", "")
				a.Annotations = map[string]string{"p/Container": script}
				for _, p := range []*corev1.Pod{&a, &b} {
					p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), "hugepages-2Mi": resource.MustParse("4Mi")},
						Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi"), "hugepages-2Mi": resource.MustParse("4Mi")},
					}
				}
				text, err := json.Marshal(corev1.PodList{TypeMeta: a.TypeMeta, Items: []corev1.Pod{b, a}})
				if err == nil {
					err = os.WriteFile(list, []byte(strings.Replace(string(text), `"kind":"Pod"`, `"kind":"PodList"`, 1)), 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
				if _, err := r.Sync(t.Context()); (err != nil) != strings.HasPrefix(script, "error") {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, read()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", when, diff)
				}
			}
			start()
			sync("without a decision", "", [3]string{c.swap, c.hugepages, c.weight})
			sync("decided", c.script, c.decided)
			sync("decided again", c.script, c.decided)
			sync("after a failure", "error no answer", c.decided)
			sync("given back", "", [3]string{c.given[0], c.given[1], c.weight})
			sync("decided once more", c.script, c.decided)
			cgrouptest.KeepsNotes(t, root)
			start()
			sync("after a restart", c.script, c.restarted)
			sync("given back after a restart", "", c.given)
		})
	}
}

// A file that a plugin decides has what it had before when it does not any more. On the kernel's
// cgroups.
func TestReconcilerGivesBackOtherFiles(t *testing.T) {
	n := newNode(t, hooks.PluginConfig{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}}, Owns: []string{"unified"}})
	files := map[string][2]string{"memory.swappiness": {"60", "7"}} // As the runtime has made it, and as decided.
	if n.tree.V2 {
		files = map[string][2]string{"pids.max": {"100", "50"}, "memory.swap.max": {"1048576", "524288"}, "memory.oom.group": {"1", "0"}}
	}
	_, container := n.make("a")
	script := ""
	for file, of := range files {
		n.tree.Write(container, file, of[0])
		script += "unified " + file + " \"" + of[1] + "\"\n"
	}
	sync := func(when, script string, i int) {
		t.Helper()
		p := pod("a", "")
		p.Annotations = map[string]string{"p/Container": script}
		n.list(p)
		r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Sync(t.Context()); (err != nil) != strings.HasPrefix(script, "error") {
			t.Fatal(err)
		}
		for file, of := range files {
			if got := n.tree.Read(container, file); got != of[i] {
				t.Errorf("%s: %s is %s, want %s", when, file, got, of[i])
			}
		}
	}
	sync("without a decision", "", 0)
	sync("decided", script, 1)
	sync("after a failure", "error no answer", 1)
	sync("given back", "", 0)
	sync("decided once more", script, 1)
	n.restart(cgroup.EnforcerConfig{}) // What the files had is noted at the cgroup.
	sync("after a restart", script, 1)
	sync("given back after a restart", "", 0)
	if notes := n.enforcer.Applier().Notes(container); notes.Files != nil {
		t.Errorf("the notes %v are left", notes.Files)
	}
	sync("decided by that process", script, 1)
	n.restart(cgroup.EnforcerConfig{})
	sync("after another, without an answer", "error no answer", 1)
	sync("without a decision by this process", "", 0)
	sync("decided", script, 1)
	n.restart(cgroup.EnforcerConfig{})
	r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
	if err != nil {
		t.Fatal(err)
	}
	if changes, err := r.Restore(t.Context(), n.engine.Owned(), func(string) bool { return false }); err != nil || len(changes) != 0 {
		t.Errorf("of other files it restores %v, error %v", changes, err)
	}
	if changes, err := r.Restore(t.Context(), n.engine.Owned(), nil); err != nil || len(changes) != len(files) {
		t.Errorf("it restores %v, error %v", changes, err)
	}
	for file, of := range files {
		if got := n.tree.Read(container, file); got != of[0] {
			t.Errorf("restored, %s is %s, want %s", file, got, of[0])
		}
	}
}
