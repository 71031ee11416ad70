package sched_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/testkit/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// declaring returns the zone guest with metadata that declare what it reads.
func declaring(t *testing.T, paths ...string) []byte {
	t.Helper()
	module, err := os.ReadFile(buildZone(t))
	if err != nil {
		t.Fatal(err)
	}
	module, err = metadata.Add(module, &metadata.Metadata{ABI: 1, Projection: paths})
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

// TestCrossings holds that an object crosses the boundary at most once for each
// of its versions and instances, and that a change of what the guest does not
// read is no version.
func TestCrossings(t *testing.T) {
	tests := map[string]struct {
		module     []byte
		heartbeats uint64 // The crossings for each of them.
	}{
		"everything":      {declaring(t), 1},
		"with projection": {declaring(t, zonePaths...), 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := load(t, host.Config{Name: "zone", Source: host.Bytes(test.module), Limits: host.Limits{Instances: 1}})
			sched.AskAboutEachNode(p)
			// Of the first Pod and the first Node two fields each cross one after the
			// other, before the guest knows that it reads both.
			const found = 2
			crossed := func() uint64 {
				t.Helper()
				return sched.Crossings(p) - found
			}
			nodes := make([]*corev1.Node, 100)
			for i := range nodes {
				nodes[i] = heartbeat(node(fmt.Sprint("n", i), "a"), 0)
			}
			cycleOverAll := func(pod *corev1.Pod) {
				t.Helper()
				c := begin(t, p, pod)
				for _, n := range nodes {
					if status := c.filter(n); !status.IsSuccess() {
						t.Fatal(status.AsError())
					}
				}
			}
			web := pod("web", "a")
			cycleOverAll(web)
			if got := crossed(); got != 101 {
				t.Errorf("the first cycle: %d objects crossed, want a Pod and 100 Nodes", got)
			}
			for range 3 {
				cycleOverAll(web)
			}
			if got := crossed(); got != 101 {
				t.Errorf("more cycles of the same Pod: %d objects crossed, want none more than 101", got)
			}
			cycleOverAll(pod("other", "a"))
			if got := crossed(); got != 102 {
				t.Errorf("another Pod: %d objects crossed, want 102", got)
			}
			for second := range int64(3) {
				for i := range nodes {
					nodes[i] = heartbeat(nodes[i], second+1)
				}
				cycleOverAll(web)
			}
			if got, want := crossed(), 102+3*100*test.heartbeats; got != want {
				t.Errorf("three heartbeats of each Node: %d objects crossed, want %d", got, want)
			}
			before := crossed()
			nodes[7] = nodes[7].DeepCopy()
			nodes[7].Labels["example.com/rack"] = "7"
			cycleOverAll(web)
			if got := crossed() - before; got != 1 {
				t.Errorf("another label of one Node: %d objects crossed, want 1", got)
			}
		})
	}
}

// TestCrossingsPerInstance holds that each instance fetches an object once.
func TestCrossingsPerInstance(t *testing.T) {
	p := load(t, host.Config{Name: "zone", Source: host.Bytes(declaring(t, zonePaths...)), Limits: host.Limits{Instances: 2}})
	sched.AskAboutEachNode(p)
	n, web := node("n", "a"), pod("web", "a")
	c := begin(t, p, web)
	done := make(chan struct{})
	for range 2 {
		go func() {
			defer func() { done <- struct{}{} }()
			for range 2000 {
				p.(fwk.FilterPlugin).Filter(t.Context(), c.state, web, framework.NewNodeInfo(n))
			}
		}()
	}
	<-done
	<-done
	if got := sched.Crossings(p); got > 8 {
		t.Errorf("%d objects crossed, want two fields of a Pod and of a Node for each of two instances at most", got)
	}
}

// TestNamelessNodes holds that Nodes that are equal in what the guest reads cross once
// for all of them, and that each has its own answer when one of them changes.
func TestNamelessNodes(t *testing.T) {
	paths := append([]string{objects.NamelessNodes}, zonePaths...)
	p := load(t, host.Config{Name: "zone", Source: host.Bytes(declaring(t, paths...)), Limits: host.Limits{Instances: 1}})
	nodes := make([]*corev1.Node, 90)
	for i := range nodes {
		nodes[i] = node(fmt.Sprint("n", i), string(rune('a'+i%3)))
	}
	cycleOverAll := func(pod *corev1.Pod) {
		t.Helper()
		c := begin(t, p, pod)
		for i, n := range nodes {
			if got, want := c.filter(n).IsSuccess(), i%3 == 0; got != want {
				t.Errorf("Filter of %s in zone %s: success %t, want %t", n.Name, n.Labels["topology.kubernetes.io/zone"], got, want)
			}
		}
	}
	cycleOverAll(pod("web", "a"))
	if got := sched.Crossings(p); got != 5 {
		t.Errorf("%d objects crossed, want two fields of a Pod, and a Node for each of 3 zones", got)
	}
	// A Node goes to another zone, and another one takes its place.
	nodes[0], nodes[1] = node("n0", "b"), node("n1", "a")
	nodes[0], nodes[1] = nodes[1], nodes[0]
	cycleOverAll(pod("other", "a"))
	if got := sched.Crossings(p); got != 6 {
		t.Errorf("%d objects crossed, want another Pod and no Node", got)
	}
}

// TestGuestsThatNeedNames holds that a guest is refused that asks about nodes which it
// cannot tell apart.
func TestGuestsThatNeedNames(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	raw := fmt.Sprintf(`{"file": %q, "grants": ["events", "waiting-pods", "objects"], "projection": ["node.spec.taints", "-node.metadata"]}`, file)
	_, err = sched.New("extensions", shared)(t.Context(), &runtime.Unknown{Raw: []byte(raw)}, nil)
	for _, want := range []string{"node_refs", "node_by_name", "node_info_version", "node_info", "node_images", "node_pods"} {
		if want = "the guest imports " + want + ", which must know which Node it is"; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestProjectionOfTheArguments holds that what the arguments say takes the place
// of what the module declares.
func TestProjectionOfTheArguments(t *testing.T) {
	file := buildZone(t)
	args := func(projection string) runtime.Object {
		return &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: []byte(`{"file": "` + file + `", "projection": ` + projection + `}`)}
	}
	// Without its labels the Node is in no zone.
	p, err := sched.New("zone", shared)(t.Context(), args(`["node.spec", "pod"]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.(sched.Plugin).Close(t.Context())
	c := begin(t, p.(sched.Plugin), pod("web", "a"))
	if got, want := text(c.filter(node("n", "a"))), `Unschedulable: node is in zone "", the Pod wants a`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = sched.New("zone", shared)(t.Context(), args(`["node.spec.taint"]`), nil)
	if err == nil || !strings.Contains(err.Error(), `field path "node.spec.taint": NodeSpec has no field "taint"; did you mean "taints"?`) {
		t.Errorf("got error %v", err)
	}
}

func TestMetadataThatCannotBeRead(t *testing.T) {
	_, err := sched.Load(t.Context(), shared, sched.PluginConfig{Config: host.Config{Name: "zone", Source: host.Bytes(declaring(t, "node.speck"))}})
	if err == nil || !strings.Contains(err.Error(), `the module declares what it reads: field path "node.speck": Node has no field "speck"; did you mean "spec"?`) {
		t.Errorf("got error %v", err)
	}
}
