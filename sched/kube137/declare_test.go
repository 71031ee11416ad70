package kube137_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
)

// declaring returns the zone guest with metadata that declare what it reads.
func declaring(t *testing.T, paths ...string) []byte {
	t.Helper()
	module, err := os.ReadFile(buildZone(t))
	if err != nil {
		t.Fatal(err)
	}
	module, err = metadata.Add(module, &metadata.Metadata{ABI: 1, Reads: paths})
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// zonePaths is what the zone guest reads.
var zonePaths = []string{
	"pod.metadata.annotations", "pod.spec.containers.image", "pod.spec.tolerations",
	"node.metadata.labels", "node.spec.unschedulable", "node.spec.taints",
}

// heartbeat returns a Node as the kubelet updates it every some seconds.
func heartbeat(node *corev1.Node, second int64) *corev1.Node {
	node = node.DeepCopy()
	node.ResourceVersion = fmt.Sprint(second)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Unix(second, 0)}}
	return node
}

// TestNothingIsFetchedTwice holds that a guest fetches of an object what it reads, once for
// each version on each instance: a call that fetches takes more fuel than one that does not.
func TestNothingIsFetchedTwice(t *testing.T) {
	for name, module := range map[string][]byte{"nothing is declared": declaring(t), "all is declared": declaring(t, zonePaths...)} {
		t.Run(name, func(t *testing.T) {
			m := &meter{}
			p := load(t, host.Config{Name: "zone", Module: host.ModuleConfig{Bytes: module}, Limits: host.Limits{Instances: 1}, Observer: m}, unshared)
			nodes := make([]*corev1.Node, 100)
			for i := range nodes {
				nodes[i] = heartbeat(node(fmt.Sprint("n", i), "a"), 0)
			}
			// fuel returns what Filter takes of each of some Nodes.
			fuel := func(c *cycle, nodes []*corev1.Node) int64 {
				t.Helper()
				before := m.fuel[abi.Filter.String()]
				for _, n := range nodes {
					if status := c.filter(n); !status.IsSuccess() {
						t.Fatal(status.AsError())
					}
				}
				return (m.fuel[abi.Filter.String()] - before) / int64(len(nodes))
			}
			web := pod("web", "a")
			first := fuel(begin(t, p, web), nodes)
			again := fuel(begin(t, p, web), nodes)
			// A host function takes 100.
			if first < again+100 {
				t.Errorf("the first Filter of a Node takes %d, the second %d", first, again)
			}
			for second := range int64(3) {
				for i := range nodes {
					nodes[i] = heartbeat(nodes[i], second+1)
				}
				if got := fuel(begin(t, p, web), nodes); got > again+again/10 {
					t.Errorf("after a heartbeat Filter takes %d, before %d", got, again)
				}
			}
			one := nodes[7:8]
			before := fuel(begin(t, p, web), one)
			nodes[7] = nodes[7].DeepCopy()
			nodes[7].Labels["example.com/rack"] = "7"
			if got := fuel(begin(t, p, web), one); got > before+before/10 {
				t.Errorf("with a label that it does not read Filter takes %d, before %d", got, before)
			}
			nodes[7] = nodes[7].DeepCopy()
			nodes[7].Spec.Taints = []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectPreferNoSchedule}}
			if got := fuel(begin(t, p, web), one); got < before+100 {
				t.Errorf("with another taint Filter takes %d, before %d", got, before)
			}
		})
	}
}

// TestProjectionOfTheArguments holds that what the arguments say takes the place
// of what the module declares.
func TestProjectionOfTheArguments(t *testing.T) {
	file := buildZone(t)
	args := func(reads string) runtime.Object {
		return &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: []byte(`{"module": {"file": "` + file + `"}, "reads": ` + reads + `}`)}
	}
	// Without its labels the Node is in no zone.
	p, err := kube137.New("zone", shared)(t.Context(), args(`["node.spec", "pod"]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.(kube137.Plugin).Close(t.Context())
	c := begin(t, p.(kube137.Plugin), pod("web", "a"))
	if got, want := text(c.filter(node("n", "a"))), `Unschedulable: node is in zone "", the Pod wants a`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = kube137.New("zone", shared)(t.Context(), args(`["node.spec.taint"]`), nil)
	if err == nil || !strings.Contains(err.Error(), `field path "node.spec.taint": NodeSpec has no field "taint"; did you mean "taints"?`) {
		t.Errorf("got error %v", err)
	}
}

func TestMetadataThatCannotBeRead(t *testing.T) {
	_, err := kube137.Load(t.Context(), shared, sched.PluginConfig{Config: host.Config{Name: "zone", Module: host.ModuleConfig{Bytes: declaring(t, "node.speck")}}}, nil)
	if err == nil || !strings.Contains(err.Error(), `read the module's declaration of its reads: field path "node.speck": Node has no field "speck"; did you mean "spec"?`) {
		t.Errorf("got error %v", err)
	}
}
