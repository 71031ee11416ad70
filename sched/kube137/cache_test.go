package kube137_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// counter counts the calls of each function.
type counter struct {
	host.Observer
	mu    sync.Mutex
	calls map[string]int
	hits  map[string]uint64
}

func (c *counter) CacheHits(_, function string, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hits == nil {
		c.hits = map[string]uint64{}
	}
	c.hits[function] += n
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

func score(t *testing.T, c *cycle, n *corev1.Node) string {
	t.Helper()
	score, status := c.p.(fwk.ScorePlugin).Score(t.Context(), c.state, c.pod, kube137test.NewNodeInfo(n))
	return fmt.Sprint(score, " ", text(status))
}

// loadCounted loads a module, and counts its calls.
func loadCounted(t *testing.T, args sched.PluginConfig) (kube137.Plugin, *counter) {
	t.Helper()
	calls := &counter{calls: map[string]int{}}
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	p, err := kube137.New("zone", shared, func(c *sched.PluginConfig) { c.Observer = calls })(t.Context(), &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: raw}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.(kube137.Plugin), calls
}

// TestWhoAsksForMoreIsAskedAgain scores by the images of a node as the scheduler counts them,
// which are no part of the Node.
func TestWhoAsksForMoreIsAskedAgain(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../../examples/sched/image-locality")
	if err != nil {
		t.Fatal(err)
	}
	p, calls := loadCounted(t, sched.PluginConfig{Config: host.Config{Module: host.ModuleConfig{File: file}}})
	c := begin(t, p, pod("p", "a"))
	for i := range 3 {
		if got := score(t, c, node(fmt.Sprint("n", i), "a")); got != "0 Success" {
			t.Errorf("got %s", got)
		}
	}
	if got := calls.take("score"); got != 3 {
		t.Errorf("the guest was called %d times, want 3", got)
	}
}

// TestHitsAreObserved holds that each result comes from a call or from the cache, and is
// counted at one of them.
func TestHitsAreObserved(t *testing.T) {
	p, calls := loadCounted(t, sched.PluginConfig{Config: host.Config{Module: host.ModuleConfig{File: buildZone(t)}}})
	const nodes, pods = 50, 4
	for i := range pods {
		c := begin(t, p, pod(fmt.Sprint("p", i), "a"))
		for i := range nodes {
			n := node(fmt.Sprint("n", i), "a")
			c.filter(n)
			score(t, c, n)
		}
	}
	begin(t, p, pod("last", "a")) // Hits are reported when the next cycle begins.
	for _, f := range []string{"filter", "score"} {
		called, hits := calls.take(f), calls.hits[f]
		if uint64(called)+hits != nodes*pods || hits < nodes*pods/2 {
			t.Errorf("%s: %d calls and %d hits, want %d together, and more hits", f, called, hits, nodes*pods)
		}
	}
}

// TestSharingRestsWhereNodesAreDifferent holds that results are not kept for a while after a cycle
// in which hardly any Nodes were equal, and that a later cycle tries again.
func TestSharingRestsWhereNodesAreDifferent(t *testing.T) {
	p, calls := loadCounted(t, sched.PluginConfig{Config: host.Config{Module: host.ModuleConfig{File: buildZone(t)}}})
	const nodes = 600
	cycle := func(zones int) (called int) {
		c := begin(t, p, pod("p", "a"))
		for i := range nodes {
			c.filter(node(fmt.Sprint("n", i), fmt.Sprint("zone", i%zones)))
		}
		return calls.take("filter")
	}
	const rest = 15 // Cycles.
	for _, phase := range []struct {
		name                 string
		cycles, zones, calls int
	}{
		{"a few kinds of Nodes", 3, 4, 4},
		{"an equal one for each", 3, nodes / 2, nodes / 2},
		{"all different", 1, nodes, nodes},
		{"rest", rest, 4, nodes},
		{"a few kinds again", 3, 4, 4},
		{"all different again", 1, nodes, nodes},
		{"rest again", rest, nodes, nodes},
		{"another try", 1, nodes, nodes},
		{"and another rest", rest, 1, nodes},
		{"and the end of it", 1, 1, 1},
	} {
		for i := range phase.cycles {
			// The result of the first call of all is not kept: it makes the read set.
			if got := cycle(phase.zones); got < phase.calls || got > phase.calls+1 {
				t.Errorf("%s: %d calls in cycle %d, want %d", phase.name, got, i, phase.calls)
			}
		}
	}
}

// TestSharingDoesNotRestAfterDryRuns holds that the results which a preemption keeps in its clones
// say nothing about Nodes: each is for another state.
func TestSharingDoesNotRestAfterDryRuns(t *testing.T) {
	calls := &counter{calls: map[string]int{}}
	config := binary.LittleEndian.AppendUint64(nil, uint64(abi.MaskOf(abi.PreFilter, abi.RemovePod, abi.Filter)))
	p, err := kube137.Load(t.Context(), shared, sched.PluginConfig{Config: host.Config{
		Name: "scripted", Module: host.ModuleConfig{File: "../testdata/scripted.wasm"}, GuestConfig: append(config, make([]byte, 8)...), Observer: calls,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const nodes, clones = 600, 1000
	for i := range 3 {
		c := begin(t, p, pod("p", "a"))
		if i != 1 {
			for n := range nodes {
				c.filter(node(fmt.Sprint("n", n), "a"))
			}
			if got := calls.take("filter"); got != 1 {
				t.Errorf("%d calls for %d equal Nodes in cycle %d, want 1", got, nodes, i)
			}
			continue
		}
		n := kube137test.NewNodeInfo(node("n0", "a"))
		for range clones {
			clone := c.state.Clone()
			if status := p.(fwk.PreFilterPlugin).PreFilterExtensions().RemovePod(t.Context(), clone, c.pod, kube137test.PodInfo{Pod: pod("q", "a")}, n); !status.IsSuccess() {
				t.Fatal(status.AsError())
			}
			p.(fwk.FilterPlugin).Filter(t.Context(), clone, c.pod, n)
		}
		if got := calls.take("filter"); got != clones {
			t.Errorf("%d calls in %d clones", got, clones)
		}
	}
}

// mustLoadCrowd loads the guest of testdata/crowd.wat, which reads no Node, with one
// instance.
func mustLoadCrowd(t *testing.T, score int, args string) (kube137.Plugin, *counter) {
	t.Helper()
	calls := &counter{calls: map[string]int{}}
	raw := fmt.Sprintf(`{"module": {"file": "../testdata/crowd.wasm"}, "guestConfig": %d, "limits": {"instances": 1}, "reads": ["node.spec.taints"]%s}`, score, args)
	p, err := kube137.New("crowd", shared, func(c *sched.PluginConfig) { c.Observer = calls })(t.Context(), &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: []byte(raw)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.(kube137.Plugin), calls
}

// TestEqualNodesAreAskedAboutOnce holds how often a guest is called that reads nothing of
// Nodes, in each state of a cycle.
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
		if s := of(t.Context(), c.state, c.pod, kube137test.PodInfo{Pod: pod("other", "a")}, kube137test.NewNodeInfo(nodes[0])); !s.IsSuccess() {
			t.Fatal(s.AsError())
		}
	}
	extensions := p.(fwk.PreFilterPlugin).PreFilterExtensions()
	web := pod("web", "a")
	c := begin(t, p, web)
	expect("a cycle", c, "Success", 1)
	expect("the same once more", c, "Success", 0)
	dry := &cycle{t, p, web, c.state.Clone()}
	expect("a copy of it", dry, "Success", 0)
	other(dry, extensions.AddPod)
	expect("with another Pod", dry, "Unschedulable: crowded", 1)
	expect("the cycle itself", c, "Success", 0)
	other(dry, extensions.RemovePod)
	expect("without it again", dry, "Success", 1)
	expect("another Pod", begin(t, p, pod("db", "a")), "Success", 1)
	expect("the same Pod in a cycle of its own", begin(t, p, web), "Success", 1)
}

// TestAnswersThatAreNotKept holds that a guest is asked again whose answers may differ.
func TestAnswersThatAreNotKept(t *testing.T) {
	tests := map[string]struct {
		score int
		args  string
		// want is how often Filter and Score are called for 3 equal nodes.
		want [2]int
	}{
		"one that has random numbers":  {7, `, "grants": ["random"]`, [2]int{3, 3}},
		"one that has time":            {7, `, "grants": ["clock"]`, [2]int{3, 3}},
		"one that shares no results":   {7, `, "disableResultSharing": true`, [2]int{3, 3}},
		"one whose scores are below 0": {-7, "", [2]int{1, 1}},
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

// TestEachPodHasOtherRefusals holds that equal nodes are asked about once, and that each Pod
// gets its own reasons.
func TestEachPodHasOtherRefusals(t *testing.T) {
	p, calls := loadCounted(t, sched.PluginConfig{Config: host.Config{Module: host.ModuleConfig{File: buildZone(t)}}, Reads: zonePaths})
	nodes := []*corev1.Node{node("n0", "a"), node("n1", "a"), node("n2", "b"), node("n3", "b")}
	const pods = 300
	for i := range pods {
		zone := fmt.Sprint("zone-", i)
		c := begin(t, p, pod("web", zone))
		for _, n := range nodes {
			want := fmt.Sprintf("Unschedulable: node is in zone %q, the Pod wants %s", n.Labels[corev1.LabelTopologyZone], zone)
			if got := text(c.filter(n)); got != want {
				t.Fatalf("Pod %d: got %s, want %s", i, got, want)
			}
		}
	}
	// What is read first counts from the second call on.
	if got := calls.take("filter"); got != 2*pods+1 {
		t.Errorf("%d calls, want 2 for each of %d Pods, and 1", got, pods)
	}
}

// TestManyNodesThatAreNew moves all Nodes of a cluster, or a few, from one zone to another before
// each cycle, and asks about each of them in any order.
func TestManyNodesThatAreNew(t *testing.T) {
	for name, change := range map[string]func(*sched.PluginConfig){"shared": func(*sched.PluginConfig) {}, "not shared": unshared} {
		t.Run(name, func(t *testing.T) {
			p := loadZone(t, "", 2, change)
			const count = 700
			r := rand.New(rand.NewPCG(5, 8))
			infos := make([]fwk.NodeInfo, count)
			zones := make([]string, count)
			for round := range 6 {
				for i := range infos {
					if infos[i] != nil && round%3 == 2 && r.IntN(100) != 0 {
						continue // It is as it was.
					}
					zones[i] = string("abc"[r.IntN(3)])
					infos[i] = kube137test.NewNodeInfo(node(fmt.Sprint("n", i), zones[i]))
				}
				c := &cycle{t, p, pod(fmt.Sprint("p", round), "a, b"), kube137test.NewCycleState()}
				// There may be one in the snapshot whose Node is gone.
				if _, status := p.(fwk.PreFilterPlugin).PreFilter(t.Context(), c.state, c.pod, append(infos[:count:count], kube137test.NewNodeInfo(nil))); !status.IsSuccess() {
					t.Fatal(status.AsError())
				}
				order := r.Perm(count)
				var wg sync.WaitGroup
				for half := range 2 {
					wg.Go(func() {
						for _, i := range order[half*count/2 : (half+1)*count/2] {
							status := p.(fwk.FilterPlugin).Filter(t.Context(), c.state, c.pod, infos[i])
							if got, want := status.IsSuccess(), zones[i] != "c"; got != want || !want && !strings.Contains(status.Message(), `zone "c"`) {
								t.Errorf("round %d: node %d in zone %s: %s", round, i, zones[i], text(status))
								return
							}
						}
					})
				}
				wg.Wait()
			}
		})
	}
}
