package standalone_test

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// What a plugin does not decide any more is what the kubelet asks for again, unless the
// plugin has failed or does not own it; and so it is at a word when the plugins are gone.
func TestReconcilerGivesBackWhatIsNotDecidedAnyMore(t *testing.T) {
	const decided = "cpu_shares 300\ncfs_quota_us 50000\ncpu_burst_us 1000\nmemory_limit_bytes 33554432\ncpuset_cpus 0"
	n := newNode(t, hooks.PluginConfig{
		Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: source(t, scripted)}}, FailurePolicy: host.Ignore,
		Owns: []string{"cpu_shares", "cfs_quota_us", "cpu_burst_us", "memory_limit_bytes", "cpuset_cpus"},
	})
	podCgroup, container := n.make("a")
	files := []string{"cpu.cfs_quota_us", "cpu.cfs_burst_us", "memory.limit_in_bytes", "cpuset.cpus"}
	if n.tree.V2 {
		files = []string{"cpu.max", "cpu.max.burst", "memory.max", "cpuset.cpus.effective"}
	}
	read := func() map[string]string {
		t.Helper()
		got := map[string]string{}
		for _, of := range []string{podCgroup, container} {
			weight, _ := n.shares(0)
			for _, file := range append(files, weight) {
				got[of+"/"+file] = n.tree.Read(of, file)
			}
		}
		return got
	}
	p := pod("a", "")
	p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	// As the kubelet and the runtime have made them.
	for _, of := range []string{podCgroup, container} {
		weight, shares := n.shares(2048)
		if n.tree.V2 && of == podCgroup {
			shares = strconv.FormatInt(cgroup.WeightLinear.Weight(2048), 10)
		}
		n.tree.Write(of, weight, shares)
		if n.tree.V2 {
			n.tree.Write(of, "cpu.max", "200000 100000")
		} else {
			n.tree.Write(of, "cpu.cfs_quota_us", "200000")
		}
		n.tree.Write(of, files[2], "67108864")
	}
	kubelets := read()
	sync := func(script string) *standalone.Reconciler {
		t.Helper()
		p.Annotations = map[string]string{"p": script}
		n.list(p)
		r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r
	}
	sync(decided)
	plugins := read()
	if cmp.Equal(kubelets, plugins) {
		t.Fatal("nothing was decided")
	}
	sync("error no answer")
	if diff := cmp.Diff(plugins, read()); diff != "" {
		t.Errorf("after a failure: %s", diff)
	}
	sync(decided)
	sync("")
	if diff := cmp.Diff(kubelets, read()); diff != "" {
		t.Errorf("without a decision: %s", diff)
	}
	sync(decided)

	n.restart(cgroup.EnforcerConfig{}) // Nothing is remembered.
	r := sync("error no answer")
	if diff := cmp.Diff(plugins, read()); diff != "" {
		t.Errorf("after a restart: %s", diff)
	}
	if _, err := r.Restore(t.Context(), n.engine.Owned(), nil); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(kubelets, read()); diff != "" {
		t.Errorf("restored: %s", diff)
	}
	if changes, err := r.Restore(t.Context(), n.engine.Owned(), nil); err != nil || len(changes) != 0 {
		t.Errorf("restored again: %v, error %v", changes, err)
	}
}
