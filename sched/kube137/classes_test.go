package kube137_test

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
)

// mustLoadPicky loads the guest of testdata/picky.
func mustLoadPicky(t *testing.T, args string, opts ...func(*sched.PluginConfig)) (kube137.Plugin, *counter) {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../testdata/picky")
	if err != nil {
		t.Fatal(err)
	}
	calls := &counter{calls: map[string]int{}}
	raw := fmt.Sprintf(`{"module": {"file": %q}%s}`, file, args)
	p, err := kube137.New("picky", shared, append(opts, func(c *sched.PluginConfig) { c.Observer = calls })...)(t.Context(), &runtime.Unknown{ContentType: runtime.ContentTypeJSON, Raw: []byte(raw)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.(kube137.Plugin), calls
}

// reading returns a Node of which the guest reads some things.
func reading(name string, what ...string) *corev1.Node {
	n := node(name, "a")
	n.Labels["read"] = strings.Join(what, ".")
	return n
}

// loud is a Pod to which the guest says what it has read.
func loud(name string) *corev1.Pod {
	p := pod(name, "a")
	p.Labels = map[string]string{"loud": ""}
	return p
}

// TestAlikeNodesAreAskedAboutOnce holds how often a guest is called about Nodes whose names
// it gets but has not read, while it reads more and more of them.
func TestAlikeNodesAreAskedAboutOnce(t *testing.T) {
	p, calls := mustLoadPicky(t, "")
	nodes := make([]*corev1.Node, 30)
	for i := range nodes {
		nodes[i] = reading(fmt.Sprint("n", i), "label")
		nodes[i].Labels["label"] = fmt.Sprint("of ", i%3)
	}
	expect := func(what string, wantCalls int, want func(n *corev1.Node) string) {
		t.Helper()
		c := begin(t, p, loud("web"))
		for range 2 {
			for _, n := range nodes {
				if got, want := text(c.filter(n)), "Unschedulable: web "+want(n); got != want {
					t.Errorf("%s: %s is %s, want %s", what, n.Name, got, want)
				}
			}
		}
		if got := calls.take("filter"); got != wantCalls {
			t.Errorf("%s: %d calls, want %d", what, got, wantCalls)
		}
	}
	label := func(n *corev1.Node) string { return n.Labels["label"] }
	// What is read first counts from the second call on.
	expect("the first cycle", 4, label)
	expect("another cycle", 3, label)
	for i := range nodes {
		nodes[i] = heartbeat(nodes[i], 1)
		nodes[i].Labels["unread"] = fmt.Sprint(i)
	}
	expect("after heartbeats, and with another label", 3, label)
	nodes[7] = nodes[7].DeepCopy()
	nodes[7].Labels["label"] = "of 7"
	expect("with one that is another", 4, label)
	// One of them makes it read more, which then counts for all.
	nodes[8] = reading("n8", "label", "taints")
	nodes[8].Labels["label"] = "of 8"
	nodes[8].Spec.Taints = []corev1.Taint{{Key: "a", Value: "b"}, {Key: "c"}}
	tainted := func(n *corev1.Node) string {
		if len(n.Spec.Taints) == 0 {
			return label(n)
		}
		return "of 8 a b c "
	}
	// Asked again is about those before n8, too.
	expect("with one of which more is read", 3+2+3+2, tainted)
	expect("the same", 5, tainted)
	for i := range nodes {
		nodes[i] = nodes[i].DeepCopy()
		if i%2 == 0 {
			nodes[i].Spec.Unschedulable = true // Nobody has read it.
			nodes[i].Spec.PodCIDR = fmt.Sprint(i)
		}
	}
	expect("with other things in the spec", 5, tainted)
	// Whose name is read is its own.
	nodes[9] = reading("n9", "name")
	named := func(n *corev1.Node) string {
		if n.Name == "n9" {
			return "n9"
		}
		return tainted(n)
	}
	expect("with one whose name is read", 5+2, named)
	expect("the same", 5+2, named)
}

// TestFieldsAreFetchedWhenTheyAreRead reads a field of a Node of which another one of the
// same part was fetched, in the functions that are in assembly.
func TestFieldsAreFetchedWhenTheyAreRead(t *testing.T) {
	for _, read := range [][2]string{
		{"cordon", "taints"}, {"taints", "cordon"}, {"cidr", "taints"}, {"taints", "cidr"},
		{"kernel", "images"}, {"images", "kernel"}, {"name", "labels"}, {"labels", "name"},
	} {
		p, _ := mustLoadPicky(t, `, "limits": {"instances": 1}`)
		web := loud("web")
		c := begin(t, p, web)
		for i, what := range [][]string{read[:1], read[:], {read[1], read[0]}} {
			n := reading(fmt.Sprint("n", i), what...)
			n.Spec = corev1.NodeSpec{PodCIDR: "10.0.0.0/8", Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Value: "v"}}}
			n.Status.NodeInfo.KernelVersion = "6.1"
			n.Status.Images = []corev1.ContainerImage{{Names: []string{"i"}}}
			if want, _ := answers(web, n); text(c.filter(n)) != want {
				t.Errorf("%v: got %s, want %s", what, text(c.filter(n)), want)
			}
		}
	}
}

// said is what the guest reads of a Node.
func said(pod *corev1.Pod, n *corev1.Node) string {
	words := []string{pod.Name}
	for what := range strings.SplitSeq(n.Labels["read"], ".") {
		switch what {
		case "label":
			words = append(words, n.Labels["label"])
		case "note":
			value, ok := n.Annotations["note"]
			words = append(words, value, fmt.Sprint(ok))
		case "labels":
			words = append(words, fmt.Sprint(len(n.Labels)))
		case "name":
			words = append(words, n.Name)
		case "cordon":
			words = append(words, fmt.Sprint(n.Spec.Unschedulable))
		case "taints":
			for _, t := range n.Spec.Taints {
				words = append(words, t.Key, t.Value)
			}
		case "cidr":
			words = append(words, n.Spec.PodCIDR)
		case "images":
			for _, i := range n.Status.Images {
				words = append(words, i.Names...)
			}
		case "kernel":
			words = append(words, n.Status.NodeInfo.KernelVersion)
		}
	}
	return strings.Join(words, " ")
}

// answers are what the guest answers to Filter and Score.
func answers(pod *corev1.Pod, n *corev1.Node) (filter, score string) {
	words := said(pod, n)
	hash := 0
	for _, b := range []byte(words) {
		hash = (hash*31 + int(b)) % 101
	}
	filter, score = "Success", fmt.Sprint(hash, " Success")
	if _, loud := pod.Labels["loud"]; loud || strings.HasSuffix(words, "no") {
		filter = "Unschedulable: " + words
	}
	return filter, score
}

// TestAlikeNodesGetTheGuestsAnswers asks a guest about random Nodes of which it reads this
// or that, with and without the host's knowledge of what it has read.
func TestAlikeNodesGetTheGuestsAnswers(t *testing.T) {
	for name, test := range map[string]struct{ reads, args string }{
		"whole Nodes":     {"", ""},
		"projected Nodes": {`, "reads": ["node.metadata.labels", "node.metadata.annotations[note]", "node.spec", "node.status.images", "node.status.nodeInfo.kernelVersion"]`, ""},
		"on one instance": {`, "limits": {"instances": 1}`, ""},
		"all declared":    {`, "reads": ["pod.metadata.name", "pod.metadata.labels", "node"]`, ""},
	} {
		t.Run(name, func(t *testing.T) { compareAlike(t, test.reads, test.args) })
	}
}

func compareAlike(t *testing.T, reads, args string) {
	asking, asked := mustLoadPicky(t, reads+`, "disableResultSharing": true`)
	p, calls := mustLoadPicky(t, reads+args)
	const seed = 47
	r := rand.New(rand.NewPCG(seed, seed))
	// What is read of Nodes, more and more of it, and of what few are alike in the end.
	what := []string{"label", "cordon", "name", "kernel", "taints", "note", "images", "labels", "cidr"}
	known := 1
	// A few ways to read, so that some Nodes are alike.
	ways := make([][]string, 3)
	learn := func() {
		for i := range ways {
			way := slices.Clone(what[:known])
			r.Shuffle(len(way), func(i, j int) { way[i], way[j] = way[j], way[i] })
			ways[i] = way[:r.IntN(min(len(way), 4)+1)]
		}
	}
	learn()
	randomNode := func(i int) *corev1.Node {
		n := reading(fmt.Sprint("n", i), ways[r.IntN(len(ways))]...)
		if r.IntN(2) == 0 {
			n.Labels["label"] = string("ab"[r.IntN(2)])
		}
		if r.IntN(2) == 0 {
			n.Annotations = map[string]string{"note": []string{"", "no"}[r.IntN(2)]}
		}
		n.Spec.Unschedulable = r.IntN(2) == 0
		n.Spec.PodCIDR = fmt.Sprint(i)
		for range r.IntN(3) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: string("xy"[r.IntN(2)]), Value: []string{"", "no"}[r.IntN(2)]})
		}
		if r.IntN(2) == 0 {
			n.Status.Images = []corev1.ContainerImage{{Names: []string{"i", "j"}[:r.IntN(3)]}}
		}
		n.Status.NodeInfo.KernelVersion = string("67"[r.IntN(2)])
		return n
	}
	nodes := make([]*corev1.Node, 40)
	for i := range nodes {
		nodes[i] = randomNode(i)
	}
	const pods = 300
	for i := range pods {
		if i%30 == 29 && known < len(what) {
			known++
			learn()
		}
		for range r.IntN(4) {
			n := r.IntN(len(nodes))
			nodes[n] = randomNode(n)
		}
		n := r.IntN(len(nodes))
		nodes[n] = heartbeat(nodes[n], int64(i))
		web := pod(fmt.Sprint("web-", i%7), "a")
		if r.IntN(2) == 0 {
			web = loud(web.Name)
		}
		for name, p := range map[string]kube137.Plugin{"asked about each Node": asking, "as usual": p} {
			c := begin(t, p, web)
			for _, n := range nodes {
				wantFilter, wantScore := answers(web, n)
				if got := text(c.filter(n)); got != wantFilter {
					t.Fatalf("Pod %d, Node %s, %s: got %s, want %s", i, n.Name, name, got, wantFilter)
				}
				if got := score(t, c, n); got != wantScore {
					t.Fatalf("Pod %d, Node %s, %s: got score %s, want %s", i, n.Name, name, got, wantScore)
				}
			}
		}
	}
	for _, f := range []string{"filter", "score"} {
		if all, few := asked.take(f), calls.take(f); all != pods*len(nodes) || few == 0 || few > all*9/10 {
			t.Errorf("%s: the guest was called %d times, asked about each Node %d times, for %d answers", f, few, all, pods*len(nodes))
		}
	}
}

// TestAnswersOfOneNode holds that a guest is called about each Node of which it reads the name,
// or about which it logs or prints something.
func TestAnswersOfOneNode(t *testing.T) {
	debug := &slog.HandlerOptions{Level: slog.LevelDebug}
	for name, test := range map[string]struct {
		what    string
		options *slog.HandlerOptions
		want    int
	}{
		"one that is like the others":         {"cordon", debug, 1},
		"one whose name is read":              {"name", debug, 20},
		"one about which the guest logs":      {"log", debug, 20},
		"one about which no log takes a line": {"log", nil, 1},
		"one about which the guest prints":    {"print", nil, 20},
	} {
		t.Run(name, func(t *testing.T) {
			p, calls := mustLoadPicky(t, "", func(c *sched.PluginConfig) { c.Logger = slog.New(slog.NewTextHandler(io.Discard, test.options)) }) //nolint:sloglint // The handler has a level.
			nodes := make([]*corev1.Node, 20)
			for i := range nodes {
				nodes[i] = reading(fmt.Sprint("n", i), test.what)
			}
			for range 2 { // What is read first counts from the second cycle on.
				calls.take("filter")
				c := begin(t, p, pod("web", "a"))
				for _, n := range nodes {
					if s := c.filter(n); !s.IsSuccess() {
						t.Errorf("%s: %s", n.Name, text(s))
					}
				}
			}
			if got := calls.take("filter"); got != test.want {
				t.Errorf("%d calls for 20 Nodes, want %d", got, test.want)
			}
		})
	}
}

// TestAlikeInParallel filters on several goroutines while Nodes change, and while the guest
// begins to read more. Run it with -race.
func TestAlikeInParallel(t *testing.T) {
	p, _ := mustLoadPicky(t, `, "limits": {"instances": 4}`)
	what := []string{"label", "taints", "note"}
	nodes := make([]*corev1.Node, 60)
	for round := range 40 {
		for i := range nodes {
			if i%5 != round%5 && nodes[i] != nil {
				continue
			}
			nodes[i] = reading(fmt.Sprint("n", i), what[:min(1+round/9, len(what))]...)
			if round == 30 && i == 30 {
				nodes[i].Labels["read"] = "panic"
			}
			if round > 36 && i == 36 {
				nodes[i].Labels["read"] = "name"
			}
			nodes[i].Labels["label"] = fmt.Sprint(i * round % 3)
			nodes[i].Annotations = map[string]string{"note": fmt.Sprint(i % 2)}
			nodes[i].Spec.Taints = []corev1.Taint{{Key: fmt.Sprint((i + round) % 2)}}
		}
		web := loud(fmt.Sprint("p", round))
		c := begin(t, p, web)
		panics := slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return n.Labels["read"] == "panic" })
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := g; i < len(nodes); i += 3 { // Some are asked about twice.
					n := nodes[i]
					if n.Labels["read"] == "panic" {
						if s := c.filter(n); !s.IsError() {
							t.Errorf("a guest that panics says %s", text(s))
						}
						continue
					}
					want, _ := answers(web, n)
					got := text(c.filter(n))
					if panics && strings.HasPrefix(got, "Error: filter has failed in this scheduling cycle: ") {
						continue // Another goroutine has asked about the Node on which it panics.
					}
					if got != want {
						t.Errorf("%s: got %s, want %s", n.Name, got, want)
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestWhoNeverAsksForParts holds that a guest of which nobody knows what it reads is asked
// about each Node, whatever the version before was.
func TestWhoNeverAsksForParts(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../../abi/conformance/testdata/guests/scheduler")
	if err != nil {
		t.Fatal(err)
	}
	calls := &counter{calls: map[string]int{}}
	p := load(t, host.Config{Name: "conformance", Module: host.ModuleConfig{File: file}, GuestConfig: []byte(`{"label":"zone"}`), Observer: calls})
	nodes := []*corev1.Node{node("n0", "a"), node("n1", "a"), node("n2", "a")}
	web := pod("web", "a")
	web.Labels = map[string]string{"zone": "a"}
	for _, n := range nodes {
		n.Labels["zone"] = "a"
	}
	cycles := func() int {
		for range 2 {
			c := begin(t, p, web)
			for _, n := range nodes {
				if s := c.filter(n); !s.IsSuccess() {
					t.Errorf("%s: %s", n.Name, text(s))
				}
			}
		}
		return calls.take("filter")
	}
	if got := cycles(); got != 3 {
		t.Errorf("%d calls in 2 cycles, want 2 in the first and 1 in the second", got)
	}
	// The one in text asks for whole objects.
	if err := p.Swap(t.Context(), host.File("../../abi/conformance/testdata/scheduler.wasm"), ""); err != nil {
		t.Fatal(err)
	}
	if got := cycles(); got != 6 {
		t.Errorf("%d calls of a version that asks for whole Nodes, want 6", got)
	}
}
