package sched_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/testkit/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// counter counts the calls of each function.
type counter struct {
	host.Observer
	mu    sync.Mutex
	calls map[string]int
}

func (c *counter) Called(_ context.Context, call host.CallEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call.Function]++
}

func (c *counter) Built(context.Context, host.BuildEvent) {}

func (c *counter) Restarted(string, bool) {}

func (c *counter) take(function string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.calls[function]
	c.calls[function] = 0
	return n
}

// remembering loads a module with or without a memory of its answers for other Pods.
func remembering(t *testing.T, file string, paths []string, remember bool, grants ...string) (sched.Plugin, *counter, error) {
	t.Helper()
	calls := &counter{calls: map[string]int{}}
	raw, err := json.Marshal(sched.PluginConfig{File: file, Projection: paths, RememberByProjection: remember, Config: host.Config{Grants: grants}})
	if err != nil {
		return nil, nil, err
	}
	p, err := sched.New("zone", shared, sched.WithObserver(calls))(t.Context(), &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: raw}, nil)
	if err != nil {
		return nil, nil, err
	}
	return p.(sched.Plugin), calls, nil
}

// imagePaths is zonePaths and what Score reads.
var imagePaths = append([]string{"node.status.images"}, zonePaths...)

func mustRemember(t *testing.T, file string, remember bool) (sched.Plugin, *counter) {
	t.Helper()
	p, calls, err := remembering(t, file, imagePaths, remember)
	if err != nil {
		t.Fatal(err)
	}
	return p, calls
}

func score(t *testing.T, c *cycle, n *corev1.Node) string {
	t.Helper()
	score, status := c.p.(fwk.ScorePlugin).Score(t.Context(), c.state, c.pod, framework.NewNodeInfo(n))
	return fmt.Sprint(score, " ", text(status))
}

// TestRememberedAnswersAreTheGuests schedules random Pods over Nodes that change, by a
// plugin that remembers and one that does not.
func TestRememberedAnswersAreTheGuests(t *testing.T) {
	plain, asked := mustRemember(t, buildZone(t), false)
	sched.AskAboutEachNode(plain)
	p, calls := mustRemember(t, buildZone(t), true)
	const seed = 43
	r := rand.New(rand.NewPCG(seed, seed))
	randomNode := func(i int) *corev1.Node {
		n := node(fmt.Sprint("n", i), string("abc"[r.IntN(3)]))
		n.Spec.Unschedulable = r.IntN(8) == 0
		if r.IntN(3) == 0 {
			n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: string("xy"[r.IntN(2)]), Effect: corev1.TaintEffectNoSchedule}}
		}
		for range r.IntN(3) {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{string("ijk"[r.IntN(3)])}, SizeBytes: int64(r.IntN(4)) << 20})
		}
		return n
	}
	nodes := make([]*corev1.Node, 20)
	for i := range nodes {
		nodes[i] = randomNode(i)
	}
	const pods = 300
	for i := range pods {
		// Of a few Deployments.
		of := r.IntN(3)
		web := pod(fmt.Sprint("web-", i), string("aba"[of]))
		web.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Value: string("xyy"[of])}}
		web.Spec.Containers = []corev1.Container{{Image: string("ijk"[of])}}
		for range r.IntN(3) {
			n := r.IntN(len(nodes))
			nodes[n] = randomNode(n)
		}
		n := r.IntN(len(nodes))
		nodes[n] = heartbeat(nodes[n], int64(i))
		want, got := begin(t, plain, web), begin(t, p, web)
		for _, n := range nodes {
			if want, got := text(want.filter(n)), text(got.filter(n)); got != want {
				t.Fatalf("Pod %d, node %s: got %s, want %s", i, n.Name, got, want)
			}
			if want, got := score(t, want, n), score(t, got, n); got != want {
				t.Fatalf("Pod %d, node %s: got score %s, want %s", i, n.Name, got, want)
			}
		}
	}
	for _, f := range []string{"filter", "score"} {
		if all, few := asked.take(f), calls.take(f); all != pods*len(nodes) || few == 0 || few > all*3/4 {
			t.Errorf("%s: the guest that is remembered was called %d times, the other %d times for %d answers", f, few, all, pods*len(nodes))
		}
	}
}

// TestWhatIsForgotten holds when the guest is asked again.
func TestWhatIsForgotten(t *testing.T) {
	p, calls := mustRemember(t, buildZone(t), true)
	n := node("n", "a")
	n.Spec.Unschedulable = true
	expect := func(what string, web *corev1.Pod, n *corev1.Node, want string, wantCalls int) {
		t.Helper()
		c := begin(t, p, web)
		for range 3 { // The second answer is always remembered, or else more was read for it.
			if got := text(c.filter(n)); got != want {
				t.Errorf("%s: got %s, want %s", what, got, want)
			}
		}
		if got := calls.take("filter"); got != wantCalls {
			t.Errorf("%s: the guest was called %d times, want %d", what, got, wantCalls)
		}
	}
	const cordoned = "UnschedulableAndUnresolvable: node is cordoned"
	expect("the first time", pod("a", "a"), n, cordoned, 2)
	expect("a Pod like it", pod("b", "a"), n, cordoned, 0)
	expect("a heartbeat", pod("c", "a"), heartbeat(n, 1), cordoned, 0)
	expect("another Pod", pod("d", "b"), n, `Unschedulable: node is in zone "a", the Pod wants b`, 1)
	open := n.DeepCopy()
	open.Spec.Unschedulable = false
	expect("another version of the node", pod("e", "b"), open, `Unschedulable: node is in zone "a", the Pod wants b`, 1)
	expect("the Pod before", pod("f", "a"), open, "Success", 2)
	if err := p.Swap(t.Context(), changed(t, buildZone(t), "node is cordoned", "node is shut now"), ""); err != nil {
		t.Fatal(err)
	}
	expect("another version of the guest", pod("g", "a"), n, "UnschedulableAndUnresolvable: node is shut now", 1)
}

// TestWhoAsksForMoreIsNotRemembered scores by the images of a node as the scheduler
// counts them, which are no part of the Node.
func TestWhoAsksForMoreIsNotRemembered(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../examples/sched/image-locality")
	if err != nil {
		t.Fatal(err)
	}
	p, calls, err := remembering(t, file, []string{"pod.spec.containers.image", "pod.spec.initContainers.image"}, true)
	if err != nil {
		t.Fatal(err)
	}
	n := node("n", "a")
	for i := range 3 {
		c := begin(t, p, pod(fmt.Sprint("p", i), "a"))
		if got := score(t, c, n); got != "0 Success" {
			t.Errorf("got %s", got)
		}
	}
	if got := calls.take("score"); got != 3 {
		t.Errorf("the guest was called %d times, want 3", got)
	}
}

func TestGuestsThatAreNotRemembered(t *testing.T) {
	extensions, err := guestbuild.Build(t.Context(), "testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		file  string
		paths []string
		want  []string
	}{
		"one whose projection has whole Pods":      {buildZone(t), []string{"node.metadata.labels"}, []string{"the projection names no field of Pods"}},
		"one that watches Pods and looks nodes up": {extensions, []string{"pod.spec"}, []string{"the guest has addpod", "the guest has removepod", "the guest imports node_by_name"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := remembering(t, test.file, test.paths, true, "events", "waiting-pods", "objects")
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), "rememberByProjection: "+want) {
					t.Errorf("the error does not say %q:\n%v", want, err)
				}
			}
		})
	}
}

// mustLoadCrowd loads the guest of testdata/crowd.wat, which gets no names of nodes, with
// one instance.
func mustLoadCrowd(t *testing.T, score int, args string) (sched.Plugin, *counter) {
	t.Helper()
	calls := &counter{calls: map[string]int{}}
	raw := fmt.Sprintf(`{"file": "testdata/crowd.wasm", "guestConfig": %d, "limits": {"instances": 1}, "projection": ["node.spec.taints", "-node.metadata"]%s}`, score, args)
	p, err := sched.New("crowd", shared, sched.WithObserver(calls))(t.Context(), &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: []byte(raw)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.(sched.Plugin), calls
}

// TestEqualNodesAreAskedAboutOnce holds how often a guest is called that cannot tell
// equal nodes apart, in each state of a cycle.
func TestEqualNodesAreAskedAboutOnce(t *testing.T) {
	p, calls := mustLoadCrowd(t, 7, "")
	tainted := corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}
	var nodes []*corev1.Node
	for i := range 20 {
		nodes = append(nodes, node(fmt.Sprint("n", i), fmt.Sprint("zone-", i)), node(fmt.Sprint("tainted", i), "a", tainted))
	}
	expect := func(what string, c *cycle, want string, wantCalls int) {
		t.Helper()
		for _, n := range nodes {
			if got := text(c.filter(n)); got != want {
				t.Errorf("%s: Filter of %s is %s, want %s", what, n.Name, got, want)
			}
			if got := score(t, c, n); got != "7 Success" {
				t.Errorf("%s: Score of %s is %s, want 7", what, n.Name, got)
			}
		}
		for _, f := range []string{"filter", "score"} {
			if got := calls.take(f); got != wantCalls {
				t.Errorf("%s: %d calls of %s, want %d", what, got, f, wantCalls)
			}
		}
	}
	type change = func(context.Context, fwk.CycleState, *corev1.Pod, fwk.PodInfo, fwk.NodeInfo) *fwk.Status
	other := func(c *cycle, of change) {
		t.Helper()
		if s := of(t.Context(), c.state, c.pod, framework.PodInfo{Pod: pod("other", "a")}, framework.NewNodeInfo(nodes[0])); !s.IsSuccess() {
			t.Fatal(s.AsError())
		}
	}
	extensions := p.(fwk.PreFilterPlugin).PreFilterExtensions()
	web := pod("web", "a")
	c := begin(t, p, web)
	expect("a cycle", c, "Success", 2)
	expect("the same once more", c, "Success", 0)
	dry := &cycle{t, p, web, c.state.Clone()}
	expect("a copy of it", dry, "Success", 0)
	other(dry, extensions.AddPod)
	expect("with another Pod", dry, "Unschedulable: crowded", 2)
	expect("the cycle itself", c, "Success", 0)
	other(dry, extensions.RemovePod)
	expect("without it again", dry, "Success", 2)
	expect("another Pod", begin(t, p, pod("db", "a")), "Success", 2)
	expect("the same Pod in a cycle of its own", begin(t, p, web), "Success", 2)
}

// TestAnswersThatAreNotKept holds that a guest is asked again whose answers may differ,
// or have no room.
func TestAnswersThatAreNotKept(t *testing.T) {
	tests := map[string]struct {
		score int
		args  string
		// want is how often Filter and Score are called for 3 equal nodes.
		want [2]int
	}{
		"one that has random numbers":  {7, `, "grants": ["random"]`, [2]int{3, 3}},
		"one that has time":            {7, `, "grants": ["clock"]`, [2]int{3, 3}},
		"one whose scores are below 0": {-7, "", [2]int{1, 3}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, calls := mustLoadCrowd(t, test.score, test.args)
			c := begin(t, p, pod("web", "a"))
			for i := range 3 {
				n := node(fmt.Sprint("n", i), "a")
				c.filter(n)
				score(t, c, n)
			}
			if got := [2]int{calls.take("filter"), calls.take("score")}; got != test.want {
				t.Errorf("got %v calls of Filter and Score, want %v", got, test.want)
			}
		})
	}
}

// TestEachPodHasOtherRefusals holds that equal nodes are asked about once however many
// reasons a guest has had before, and that each Pod gets its own.
func TestEachPodHasOtherRefusals(t *testing.T) {
	p, calls, err := remembering(t, buildZone(t), append([]string{objects.NamelessNodes}, zonePaths...), false)
	if err != nil {
		t.Fatal(err)
	}
	nodes := []*corev1.Node{node("n0", "a"), node("n1", "a"), node("n2", "b"), node("n3", "b")}
	const pods = 3000
	for i := range pods {
		if i == pods/2 {
			sched.LastRefusal(p)
		}
		zone := fmt.Sprint("zone-", i)
		c := begin(t, p, pod("web", zone))
		for _, n := range nodes {
			want := fmt.Sprintf("Unschedulable: node is in zone %q, the Pod wants %s", n.Labels[corev1.LabelTopologyZone], zone)
			if got := text(c.filter(n)); got != want {
				t.Fatalf("Pod %d: got %s, want %s", i, got, want)
			}
		}
	}
	if got := calls.take("filter"); got != 2*pods {
		t.Errorf("%d calls, want 2 for each of %d Pods", got, pods)
	}
}
