package kube137_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// shared holds the compiled modules of all tests: compiling a guest in Go takes
// seconds, and a minute under the race detector.
var shared *host.Runtime

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = host.NewRuntime(compiled.Config()); err != nil {
			panic(err)
		}
		defer shared.Close(context.Background())
		return m.Run()
	}())
}

// unshared has the guest called for each node.
func unshared(cfg *sched.PluginConfig) { cfg.DisableResultSharing = true }

// load loads a plugin and closes it with the test.
func load(t testing.TB, guest host.Config, more ...func(*sched.PluginConfig)) kube137.Plugin {
	t.Helper()
	cfg := sched.PluginConfig{Config: guest}
	for _, change := range more {
		change(&cfg)
	}
	p, err := kube137.Load(t.Context(), shared, cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

// buildZone compiles examples/sched/zone.
func buildZone(t testing.TB) string {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func loadZone(t testing.TB, config string, instances int, more ...func(*sched.PluginConfig)) kube137.Plugin {
	t.Helper()
	return load(t, host.Config{
		Name: "zone", Module: host.ModuleConfig{File: buildZone(t)}, GuestConfig: []byte(config),
		Limits: host.Limits{Instances: instances},
	}, more...)
}

// script configures testdata/scripted.wat.
func script(mask abi.Mask, code abi.Code, action uint32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(mask))
	b = binary.LittleEndian.AppendUint32(b, uint32(code))
	return binary.LittleEndian.AppendUint32(b, action)
}

func loadScripted(t testing.TB, mask abi.Mask, code abi.Code, action uint32, more ...func(*sched.PluginConfig)) kube137.Plugin {
	t.Helper()
	return load(t, host.Config{
		Name: "scripted", Module: host.ModuleConfig{File: filepath.Join("..", "testdata", "scripted.wasm")}, GuestConfig: script(mask, code, action),
		Limits: host.Limits{Instances: 1},
	}, more...)
}

var all = abi.MaskOf(abi.PreFilter, abi.Filter, abi.Score, abi.NormalizeScore)

func node(name, zone string, taints ...corev1.Taint) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
}

func pod(name, zones string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "shop", Annotations: map[string]string{"kubewasm.dev/zones": zones},
	}}
}

// cycle is a Pod that is being scheduled.
type cycle struct {
	t     testing.TB
	p     kube137.Plugin
	pod   *corev1.Pod
	state fwk.CycleState
}

func begin(t testing.TB, p kube137.Plugin, pod *corev1.Pod) *cycle {
	t.Helper()
	c := &cycle{t, p, pod, kube137test.NewCycleState()}
	if _, status := c.preFilter(); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	return c
}

func (c *cycle) preFilter() (*fwk.PreFilterResult, *fwk.Status) {
	return c.p.(fwk.PreFilterPlugin).PreFilter(c.t.Context(), c.state, c.pod, nil)
}

func (c *cycle) filter(n *corev1.Node) *fwk.Status {
	return c.p.(fwk.FilterPlugin).Filter(c.t.Context(), c.state, c.pod, kube137test.NewNodeInfo(n))
}

func (c *cycle) normalize(scores fwk.NodeScoreList) *fwk.Status {
	return c.p.(fwk.ScorePlugin).ScoreExtensions().NormalizeScore(c.t.Context(), c.state, c.pod, scores)
}

// text writes a status as users see it.
func text(s *fwk.Status) string {
	if s.Message() == "" {
		return s.Code().String()
	}
	return s.Code().String() + ": " + s.Message()
}

func TestFilter(t *testing.T) {
	p := loadZone(t, `{"defaultZones": ["c"]}`, 1)
	gpu := corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	cordoned := node("n4", "a")
	cordoned.Spec.Unschedulable = true
	tolerant := pod("tolerant", "a")
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	plain := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "plain", Namespace: "shop"}}
	tests := map[string]struct {
		pod  *corev1.Pod
		node *corev1.Node
		want string
	}{
		"zone fits":                  {pod("p", "a,b"), node("n1", "b"), "Success"},
		"zone does not fit":          {pod("p", "a, b"), node("n1", "c"), `Unschedulable: node is in zone "c", the Pod wants a or b`},
		"zone from configuration":    {plain, node("n2", "c"), "Success"},
		"not in the configured zone": {plain, node("n2", "a"), `Unschedulable: node is in zone "a", the Pod wants c`},
		"taint":                      {pod("p", "a"), node("n3", "a", gpu), "UnschedulableAndUnresolvable: node has the taint dedicated=gpu:NoSchedule, which the Pod does not tolerate"},
		"taint tolerated":            {tolerant, node("n3", "a", gpu), "Success"},
		"cordoned":                   {pod("p", "a"), cordoned, "UnschedulableAndUnresolvable: node is cordoned"},
		"node without labels":        {pod("p", "a"), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}}, `Unschedulable: node is in zone "", the Pod wants a`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// Twice: the second time the guest asks for nothing any more.
			for range 2 {
				c := begin(t, p, test.pod)
				if got := text(c.filter(test.node)); got != test.want {
					t.Errorf("got  %s\nwant %s", got, test.want)
				}
			}
		})
	}
}

func TestPreFilterRefuses(t *testing.T) {
	p := loadZone(t, "", 1)
	c := &cycle{t, p, pod("p", "a,,b"), kube137test.NewCycleState()}
	_, status := c.preFilter()
	if got, want := text(status), `UnschedulableAndUnresolvable: annotation kubewasm.dev/zones has an empty zone in "a,,b"`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestScoreAndNormalize(t *testing.T) {
	p := loadZone(t, "", 1)
	web := pod("web", "a")
	web.Spec.Containers = []corev1.Container{{Name: "web", Image: "shop/web:1"}, {Name: "agent", Image: "shop/agent:2"}}
	c := begin(t, p, web)
	var scores fwk.NodeScoreList
	// The order is not that of the names: it must stay.
	for _, n := range []struct {
		name   string
		images map[string]int64
	}{
		{"z", map[string]int64{"shop/web:1": 150 << 20, "shop/other:1": 999 << 20}},
		{"a", nil},
		{"m", map[string]int64{"shop/web:1": 150 << 20, "shop/agent:2": 50 << 20}},
	} {
		node := node(n.name, "a")
		for name, size := range n.images {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{"digest of " + name, name}, SizeBytes: size})
		}
		score, status := p.(fwk.ScorePlugin).Score(t.Context(), c.state, web, kube137test.NewNodeInfo(node))
		if !status.IsSuccess() {
			t.Fatal(status.AsError())
		}
		scores = append(scores, fwk.NodeScore{Name: n.name, Score: score})
	}
	if diff := cmp.Diff(fwk.NodeScoreList{{Name: "z", Score: 150}, {Name: "a", Score: 0}, {Name: "m", Score: 200}}, scores); diff != "" {
		t.Errorf("scores (-want +got):\n%s", diff)
	}
	if status := c.normalize(scores); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	if diff := cmp.Diff(fwk.NodeScoreList{{Name: "z", Score: 75}, {Name: "a", Score: 0}, {Name: "m", Score: 100}}, scores); diff != "" {
		t.Errorf("normalized scores (-want +got):\n%s", diff)
	}
}

// TestTypes holds that a plugin filters and scores if its guest does, in every combination,
// and that it is skipped in a cycle if its guest does neither.
func TestTypes(t *testing.T) {
	for bits := 1; bits < 16; bits++ {
		var want abi.Mask
		for i, f := range []abi.Function{abi.PreFilter, abi.Filter, abi.Score, abi.NormalizeScore} {
			if bits&(1<<i) != 0 {
				want |= abi.MaskOf(f)
			}
		}
		if want == abi.MaskOf(abi.NormalizeScore) {
			continue // Checked below.
		}
		t.Run(want.String(), func(t *testing.T) {
			p := loadScripted(t, want, abi.Success, 0)
			var got abi.Mask
			wantStatus := "Skip"
			if want.Has(abi.PreFilter) || want.Has(abi.Filter) {
				wantStatus = "Success"
			}
			if _, status := p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), pod("p", ""), nil); text(status) != wantStatus {
				t.Errorf("PreFilter answers %q, want %q", text(status), wantStatus)
			}
			if _, ok := p.(fwk.FilterPlugin); ok {
				got |= abi.MaskOf(abi.Filter)
			}
			s, ok := p.(fwk.ScorePlugin)
			if ok {
				got |= abi.MaskOf(abi.Score)
			}
			if want.Has(abi.Score) && (s.ScoreExtensions() != nil) != want.Has(abi.NormalizeScore) {
				t.Errorf("ScoreExtensions is %v", s.ScoreExtensions())
			}
			if want := want &^ abi.MaskOf(abi.PreFilter, abi.NormalizeScore); got != want {
				t.Errorf("implements %s, want %s", got, want)
			}
			if _, ok := p.(fwk.ScoreExtensions); ok && !want.Has(abi.Score) {
				t.Error("implements ScoreExtensions without Score")
			}
			if p.Name() != "scripted" {
				t.Errorf("name is %q", p.Name())
			}
		})
	}
}

func TestStatusCodes(t *testing.T) {
	tests := map[abi.Code]string{
		abi.Success:                      "Success", // The reason that came with it is dropped.
		abi.Error:                        "Error: because",
		abi.Unschedulable:                "Unschedulable: because",
		abi.UnschedulableAndUnresolvable: "UnschedulableAndUnresolvable: because",
		abi.Wait:                         "Wait: because",
		abi.Skip:                         "Skip: because",
		abi.Pending:                      "Pending: because",
		7:                                `Error: plugin "scripted": guest returned the unknown status code 7: because`,
		-1:                               `Error: plugin "scripted": guest returned the unknown status code -1: because`,
		-1 << 31:                         `Error: plugin "scripted": guest returned the unknown status code -2147483648: because`,
	}
	for code, want := range tests {
		t.Run(code.String(), func(t *testing.T) {
			p := loadScripted(t, abi.MaskOf(abi.Filter, abi.Score), code, 0)
			c := &cycle{t, p, pod("p", ""), kube137test.NewCycleState()}
			if got := text(c.filter(node("n", "a"))); got != want {
				t.Errorf("filter: got %s, want %s", got, want)
			}
			_, status := p.(fwk.ScorePlugin).Score(t.Context(), c.state, c.pod, kube137test.NewNodeInfo(node("n", "a")))
			if got := text(status); got != want {
				t.Errorf("score: got %s, want %s", got, want)
			}
		})
	}
}

func TestScoreIsSigned(t *testing.T) {
	// Its score depends on the ref, which the ABI forbids.
	p := loadScripted(t, abi.MaskOf(abi.Score), abi.Success, 0, unshared)
	state := kube137test.NewCycleState()
	var got []int64
	for i := range 3 {
		score, status := p.(fwk.ScorePlugin).Score(t.Context(), state, pod("p", ""), kube137test.NewNodeInfo(node(fmt.Sprint("n", i), "")))
		if !status.IsSuccess() {
			t.Fatal(status.AsError())
		}
		got = append(got, score)
	}
	if got[1] != got[0]-1 || got[2] >= 0 {
		t.Errorf("got %v, want minus the slots of the nodes", got)
	}
}

// TestBadGuests holds that a guest that breaks a rule gets an error, and that
// the next call is served.
func TestBadGuests(t *testing.T) {
	n := node("n", "a")
	filter := func(c *cycle) *fwk.Status { return c.filter(n) }
	preFilter := func(c *cycle) *fwk.Status { _, s := c.preFilter(); return s }
	normalize := func(c *cycle) *fwk.Status {
		scores := fwk.NodeScoreList{{Name: "b", Score: 1}, {Name: "a", Score: 2}}
		s := c.normalize(scores)
		if diff := cmp.Diff(fwk.NodeScoreList{{Name: "b", Score: 1}, {Name: "a", Score: 2}}, scores); diff != "" {
			c.t.Errorf("a failed NormalizeScore changed the scores (-want +got):\n%s", diff)
		}
		return s
	}
	tests := map[string]struct {
		mask   abi.Mask
		action uint32
		call   func(*cycle) *fwk.Status
		want   string
	}{
		"prefilter traps":                    {all, 1, preFilter, "prefilter trapped: wasm error: unreachable"},
		"prefilter names without a NUL":      {all, 3, preFilter, "call k8s.io/scheduler.result_node_names: the last name does not end with a NUL"},
		"filter traps":                       {abi.MaskOf(abi.Filter), 10, filter, "filter trapped: wasm error: unreachable"},
		"scores during filter":               {abi.MaskOf(abi.Filter), 11, filter, "call k8s.io/scheduler.result_scores: it belongs to normalizescore, normalizeplacementscore, but the guest runs filter"},
		"node names during filter":           {abi.MaskOf(abi.Filter), 12, filter, "call k8s.io/scheduler.result_node_names: it belongs to prefilter, but the guest runs filter"},
		"reading scores during filter":       {abi.MaskOf(abi.Filter), 13, filter, "call k8s.io/scheduler.node_scores: it belongs to normalizescore"},
		"reading names during filter":        {abi.MaskOf(abi.Filter), 14, filter, "call k8s.io/scheduler.node_names: it belongs to prefilter, postfilter, prescore, normalizescore, "},
		"no object":                          {abi.MaskOf(abi.Filter), 15, filter, "call k8s.io/api.object: slot 0 has no version 0"},
		"version that is not there yet":      {abi.MaskOf(abi.Filter), 16, filter, "call k8s.io/api.object: slot "},
		"slot that nobody has":               {abi.MaskOf(abi.Filter), 17, filter, "call k8s.io/api.object: slot 4294967295 has no version 1"},
		"normalizescore traps":               {abi.MaskOf(abi.Score, abi.NormalizeScore), 20, normalize, "normalizescore trapped: wasm error: unreachable"},
		"normalizescore with too few scores": {abi.MaskOf(abi.Score, abi.NormalizeScore), 21, normalize, "call k8s.io/scheduler.result_scores: 8 bytes are not 2 scores of nodes"},
		"replayed prefilter traps before score": {all, 1, func(c *cycle) *fwk.Status {
			_, s := c.p.(fwk.ScorePlugin).Score(c.t.Context(), c.state, c.pod, kube137test.NewNodeInfo(n))
			return s
		}, "replay prefilter: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cycle{t, loadScripted(t, test.mask, abi.Success, test.action), pod("p", ""), kube137test.NewCycleState()}
			for range 3 { // Instances is 1: each call needs the instance of the last.
				status := test.call(c)
				if status.Code() != fwk.Error || !strings.Contains(status.Message(), test.want) {
					t.Errorf("got  %s\nwant Error: …%s…", text(status), test.want)
				}
				if strings.HasSuffix(name, "traps") && !strings.Contains(status.Message(), ", at .") {
					t.Errorf("%s names no function of the guest", text(status))
				}
			}
		})
	}
}

func TestNormalizeFailureKeepsScores(t *testing.T) {
	c := &cycle{t, loadScripted(t, abi.MaskOf(abi.Score, abi.NormalizeScore), abi.Error, 22), pod("p", ""), kube137test.NewCycleState()}
	scores := fwk.NodeScoreList{{Name: "b", Score: 1}}
	if status := c.normalize(scores); status.Code() != fwk.Error || scores[0].Score != 1 {
		t.Errorf("got %s and score %d, want an error and 1", text(status), scores[0].Score)
	}
}

func TestNormalizeKeepsTheOrder(t *testing.T) {
	c := &cycle{t, loadScripted(t, abi.MaskOf(abi.Score, abi.NormalizeScore), abi.Success, 22), pod("p", ""), kube137test.NewCycleState()}
	var scores, want fwk.NodeScoreList
	for i := range 5000 {
		scores = append(scores, fwk.NodeScore{Name: fmt.Sprint("n", i%977), Score: int64(i) - 10})
		want = append(want, fwk.NodeScore{Name: fmt.Sprint("n", i%977), Score: 2 * (int64(i) - 10)})
	}
	if status := c.normalize(scores); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	if diff := cmp.Diff(want, scores); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPreFilterResult(t *testing.T) {
	tests := map[string]struct {
		action uint32
		code   abi.Code
		want   *fwk.PreFilterResult
	}{
		"not called":            {action: 0},
		"two nodes":             {action: 2, want: &fwk.PreFilterResult{NodeNames: sets.New("n1", "n2")}},
		"no node at all":        {action: 4, want: &fwk.PreFilterResult{NodeNames: sets.New[string]()}},
		"dropped when it Skips": {action: 2, code: abi.Skip},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := &cycle{t, loadScripted(t, all, test.code, test.action), pod("p", ""), kube137test.NewCycleState()}
			got, status := c.preFilter()
			if abi.Code(status.Code()) != test.code {
				t.Fatal(text(status))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestChangedNode holds that a guest sees the Node that was passed: another one
// of the same name at once, and the same again when it comes back.
func TestChangedNode(t *testing.T) {
	asUsualAndEach(t, 1, changedNode)
}

// asUsualAndEach runs a test of the zone plugin as plugins are used, and then with a guest that is asked about
// each Node.
func asUsualAndEach(t *testing.T, instances int, test func(*testing.T, kube137.Plugin)) {
	t.Run("as usual", func(t *testing.T) { test(t, loadZone(t, "", instances)) })
	t.Run("asked about each Node", func(t *testing.T) { test(t, loadZone(t, "", instances, unshared)) })
}

func changedNode(t *testing.T, p kube137.Plugin) {
	c := begin(t, p, pod("p", "a"))
	inA, inB := node("n", "a"), node("n", "b")
	for i, test := range []struct {
		node *corev1.Node
		want fwk.Code
	}{{inA, fwk.Success}, {inB, fwk.Unschedulable}, {inA, fwk.Success}, {inB.DeepCopy(), fwk.Unschedulable}, {inB.DeepCopy(), fwk.Unschedulable}} {
		if got := c.filter(test.node).Code(); got != test.want {
			t.Errorf("step %d: got %s, want %s", i, got, test.want)
		}
	}
}

// TestOverlappingCycles begins more cycles than an instance remembers, and then
// goes on with each of them: those that were forgotten are replayed.
func TestOverlappingCycles(t *testing.T) {
	p := loadZone(t, "", 2)
	var cycles []*cycle
	for i := range 200 {
		cycles = append(cycles, begin(t, p, pod(fmt.Sprint("p", i), string(rune('a'+i%5)))))
	}
	for z := range 5 {
		n := node(fmt.Sprint("n", z), string(rune('a'+z)))
		for i, c := range cycles {
			if got, want := c.filter(n).IsSuccess(), i%5 == z; got != want {
				t.Fatalf("pod %d on a node of zone %d: fits is %v, want %v", i, z, got, want)
			}
		}
	}
}

// TestHammer filters for several Pods on several goroutines, more of them than
// instances, with nodes that change; run it with -race.
func TestHammer(t *testing.T) { asUsualAndEach(t, 3, hammerZones) }

func hammerZones(t *testing.T, p kube137.Plugin) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 30 {
				zone := (g + i) % 4
				c := begin(t, p, pod(fmt.Sprint("p", g), string(rune('a'+zone))))
				var inner sync.WaitGroup
				for w := range 3 {
					inner.Go(func() {
						for z := range 4 {
							// The same name on all goroutines, in another zone
							// each: what was passed counts.
							n := node(fmt.Sprint("n", w), string(rune('a'+z)))
							if got, want := c.filter(n).IsSuccess(), z == zone; got != want {
								t.Errorf("zone %d: fits is %v, want %v", z, got, want)
							}
						}
					})
				}
				inner.Wait()
			}
		})
	}
	wg.Wait()
}

// TestCancelledContext holds that a Filter whose context the framework cancelled
// is no error: it would fail the whole scheduling cycle.
func TestCancelledContext(t *testing.T) {
	c := begin(t, loadZone(t, "", 1), pod("p", "a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if status := c.p.(fwk.FilterPlugin).Filter(ctx, c.state, c.pod, kube137test.NewNodeInfo(node("n", "a"))); !status.IsSuccess() {
		t.Error(text(status))
	}
}

func TestNodeInfoWithoutNode(t *testing.T) {
	c := begin(t, loadZone(t, "", 1), pod("p", "a"))
	if got, want := text(c.filter(nil)), "Error: node not found"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFilterDoesNotAllocate(t *testing.T) {
	for of, test := range map[string]struct {
		paths []string
		each  bool
	}{"asked": {zonePaths, true}, "known": {zonePaths, false}, "known, and nothing declared": {nil, false}} {
		p := load(t, host.Config{Name: "zone", Module: host.ModuleConfig{Bytes: declaring(t, test.paths...)}, Limits: host.Limits{Instances: 1}},
			func(cfg *sched.PluginConfig) { cfg.DisableResultSharing = test.each })
		c := begin(t, p, pod("p", "a"))
		info := kube137test.NewNodeInfo(node("n", "a"))
		filter, score := p.(fwk.FilterPlugin), p.(fwk.ScorePlugin)
		ctx := t.Context()
		for name, call := range map[string]func(){
			"Filter": func() { filter.Filter(ctx, c.state, c.pod, info) },
			"Score":  func() { score.Score(ctx, c.state, c.pod, info) },
		} {
			if n := testing.AllocsPerRun(1000, call); n != 0 {
				t.Errorf("%v allocations for a %s that is %s, want 0", n, name, of)
			}
		}
	}
}

func TestNew(t *testing.T) {
	file := buildZone(t)
	tests := map[string]struct {
		args runtime.Object
		want string
	}{
		"file and configuration": {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "` + file + `"}, "guestConfig": {"defaultZones": ["a"]}}`)}},
		"no arguments":           {want: `plugin "zone": arguments: got <nil>, want the args of a pluginConfig`},
		"no file":                {args: &runtime.Unknown{Raw: []byte(`{}`)}, want: `plugin "zone": configuration: module is missing`},
		"unknown field":          {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "x"}, "fil": "y"}`)}, want: `unknown field "fil"`},
		"no such file":           {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "/absent.wasm"}}`)}, want: "/absent.wasm: no such file"},
		"limits":                 {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "` + file + `"}, "guestConfig": {"defaultZones": ["a"]}, "limits": {"timeout": "100ms", "fuel": 100000000, "instances": 3, "memoryBytes": 33554432}, "grants": ["clock"]}`)}},
		"too little fuel":        {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "` + file + `"}, "limits": {"fuel": 1000}}`)}, want: "out of fuel: 1000 instructions"},
		"no duration":            {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "` + file + `"}, "limits": {"timeout": "soon"}}`)}, want: `limits.timeout is "soon", want a duration such as 100ms`},
		"unknown grant":          {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "` + file + `"}, "grants": ["everything"]}`)}, want: `grant "everything" is unknown`},
		"guest refuses":          {args: &runtime.Unknown{Raw: []byte(`{"module": {"file": "` + file + `"}, "guestConfig": {"zones": []}}`)}, want: `plugin "zone": configure returned Error: `},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := kube137.New("zone", shared)(t.Context(), test.args, nil)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got error %v, want %s", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c := begin(t, p.(kube137.Plugin), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
			if got := c.filter(node("n", "b")).Code(); got != fwk.Unschedulable {
				t.Errorf("got %s, want the configuration to be used", got)
			}
		})
	}
}
