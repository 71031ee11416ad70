package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// inTurns runs a benchmark of a test of its own five times, in a process each, so that its sides take
// turns, and calls each with the name of a side and what was measured.
func inTurns(b *bench, dir, benchmark, benchtime string, each func(name, line string)) error {
	temp, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	test := filepath.Join(temp, "bench.test")
	build := exec.CommandContext(b.ctx, "go", "test", "-c", "-o", test, ".")
	build.Dir = source(dir)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", benchmark, err, out)
	}
	for range 5 {
		cmd := exec.CommandContext(b.ctx, test, "-test.run", "^$", "-test.bench", "^"+benchmark+"$", "-test.benchtime", benchtime)
		cmd.Dir = source(dir)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", benchmark, err, out)
		}
		for line := range strings.Lines(string(out)) {
			if line, ok := strings.CutPrefix(line, benchmark+"/"); ok {
				name, rest, _ := strings.Cut(line, " ")
				name, _, _ = strings.Cut(name, "\t")
				each(strings.TrimSuffix(name, fmt.Sprint("-", runtime.GOMAXPROCS(0))), strings.TrimSpace(rest))
			}
		}
	}
	return nil
}

// benchInTree measures plugins that read what runs on a node, through the framework, against the
// scheduler's own plugins: by BenchmarkUsage, which lies where the scheduler is linked.
func benchInTree(b *bench) error {
	// A turn takes a second, so that each side pays for its garbage.
	times := map[string][]float64{}
	err := inTurns(b, "../testkit/e2e/differential", "BenchmarkUsage", "1s", func(name, line string) {
		var n int
		var ns float64
		if _, err := fmt.Sscanf(line, "%d %f ns/op", &n, &ns); err == nil {
			times[name] = append(times[name], ns)
		}
	})
	if err != nil {
		return err
	}
	const most = 3
	for _, c := range []struct{ what, plugin, more string }{
		{"resource fit", "NodeResourcesFit", ""},
		{"spreading", "PodTopologySpread", ""},
		{"spreading with a selector that no Pod had before", "PodTopologySpread", "/selector=new"},
	} {
		ours, theirs := times["plugin="+c.plugin+"/side=guest"+c.more], times["plugin="+c.plugin+"/side=native"+c.more]
		if len(ours) == 0 || len(ours) != len(theirs) {
			return fmt.Errorf("BenchmarkUsage has measured %d and %d times", len(ours), len(theirs))
		}
		var ratios []float64
		for n := range ours {
			ratios = append(ratios, ours[n]/theirs[n])
		}
		ratio := median(ratios)
		b.add(c.what+", through the framework, 1000 Nodes, 30 Pods on each", short(time.Duration(median(ours))),
			"the scheduler's own plugin", short(time.Duration(median(theirs))), ratio, fmt.Sprintf("<= %dx", most), ratio <= most)
	}
	return nil
}

// benchBatching measures what the scheduler's batching gives with a guest for which the host signs
// Pods: by BenchmarkBatching, which lies where the scheduler is linked.
func benchBatching(b *bench) error {
	times := map[string][]float64{}
	err := inTurns(b, "../testkit/e2e/batching", "BenchmarkBatching", "1x", func(name, line string) {
		var n int
		var all, batched, each float64
		if _, err := fmt.Sscanf(line, "%d %f ns/op %f batched/pod %f cpu-ns/pod", &n, &all, &batched, &each); err == nil {
			times[name] = append(times[name], each)
		}
	})
	if err != nil {
		return err
	}
	for _, pods := range []struct {
		name, what string
		most       float64
	}{
		{"alike", "a Pod of a Deployment", 0.5},
		{"different", "Pods that are all different", 1.1},
	} {
		with, without := times["pods="+pods.name+"/batching=with"], times["pods="+pods.name+"/batching=without"]
		if len(with) == 0 || len(with) != len(without) {
			return fmt.Errorf("BenchmarkBatching has measured %d and %d times", len(with), len(without))
		}
		var ratios []float64
		for n := range with {
			ratios = append(ratios, with[n]/without[n])
		}
		ratio := median(ratios)
		b.add("processor time of a scheduler for "+pods.what+", 1000 Nodes, signed by the host", short(time.Duration(median(with))),
			"not signed, so not batched", short(time.Duration(median(without))), ratio, fmt.Sprintf("<= %.2gx", pods.most), ratio <= pods.most)
	}
	return nil
}

// benchUsage measures the same called directly, without what the framework takes of both sides, against
// the same logic in Go.
func benchUsage(b *bench, rt *host.Runtime) error {
	const nodes, each = 1000, 30
	s := newSpreading(b.ctx, nodes, each)
	for _, n := range s.infos {
		fillNode(n.(*kube137test.NodeInfo))
	}
	what := fmt.Sprintf("%d Nodes, %d Pods on each", nodes, each)
	var failed error
	// cycle runs PreFilter and asks about each node.
	cycle := func(p cyclePlugin) func(int) {
		return func(n int) {
			for range n {
				state, err := s.preFilter(p)
				if err != nil {
					failed = err
					continue
				}
				s.filter(p, state, 1)
			}
		}
	}
	var rows []comparison
	for _, c := range []struct {
		what, guest string
		native      cyclePlugin
	}{
		{"resource fit", "../testkit/e2e/differential/testdata/noderesourcesfit", nativeFit{}},
		{"spreading", "../../examples/sched/topology-spread", nativeSpread{}},
	} {
		file, err := guestbuild.Build(b.ctx, source(c.guest))
		if err != nil {
			return err
		}
		p, err := loadPlugin(b, rt, c.what, file, `, "limits": {"instances": 2}`)
		if err != nil {
			return err
		}
		guest := p.(cyclePlugin)
		if err := s.agree(guest, c.native); err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		rows = append(rows, comparison{c.what + ": PreFilter and Filter of each, " + what, target{}, cycle(guest), "native plugin", cycle(c.native)})
	}
	b.compareAll(rows...)
	if failed != nil {
		return failed
	}
	return benchNormalize(b, rt)
}

// agree returns an error unless both plugins say the same of each node.
func (s *spreading) agree(guest, native cyclePlugin) error {
	ours, err := s.preFilter(guest)
	if err != nil {
		return err
	}
	theirs, err := s.preFilter(native)
	if err != nil {
		return err
	}
	for _, n := range s.infos {
		got, want := guest.Filter(s.ctx, ours, s.pod, n), native.Filter(s.ctx, theirs, s.pod, n)
		if got.Code() != want.Code() {
			return fmt.Errorf("node %s: the guest says %v, the native plugin %v", n.Node().Name, got, want)
		}
	}
	return nil
}

// fillNode sets the resources of a node and what its Pods use of them: a third is full.
func fillNode(n *kube137test.NodeInfo) {
	n.Allocatable = kube137test.Resource{MilliCPU: 32_000, Memory: 128 << 30, EphemeralStorage: 100 << 30, AllowedPodNumber: 110}
	if n.GetGeneration()%3 == 0 {
		n.Allocatable.MilliCPU = 20_000
	}
	n.Requested.Memory = int64(len(n.GetPods())) << 29
	n.NonZeroRequested = kube137test.Resource{MilliCPU: n.Requested.MilliCPU, Memory: n.Requested.Memory}
}

// nativeFit does in Go what the scheduler's own plugin NodeResourcesFit does for a Pod of
// containers alone, which asks for nothing else than CPU, memory and storage.
type nativeFit struct {
	fwk.PreFilterPlugin
	fwk.FilterPlugin
}

const fitKey = "fit"

type fitState struct{ cpu, memory, storage int64 }

func (f *fitState) Clone() fwk.StateData { return f }

func (nativeFit) Name() string { return "native fit" }

func (nativeFit) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	sum := corev1.ResourceList{}
	for _, c := range pod.Spec.Containers {
		for name, q := range c.Resources.Requests {
			total := sum[name]
			total.Add(q)
			sum[name] = total
		}
	}
	of := func(name corev1.ResourceName) *resource.Quantity { q := sum[name]; return &q }
	state.Write(fitKey, &fitState{of(corev1.ResourceCPU).MilliValue(), of(corev1.ResourceMemory).Value(), of(corev1.ResourceEphemeralStorage).Value()})
	return nil, nil
}

func (nativeFit) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	v, err := state.Read(fitKey)
	if err != nil {
		return fwk.AsStatus(err)
	}
	want := v.(*fitState)
	reasons := make([]string, 0, 4)
	never := false
	if len(n.GetPods())+1 > n.GetAllocatable().GetAllowedPodNumber() {
		reasons = append(reasons, "Too many pods")
	}
	check := func(reason string, want, all, used int64) {
		if want > 0 && want > all-used {
			reasons = append(reasons, reason)
			never = never || want > all
		}
	}
	check("Insufficient cpu", want.cpu, n.GetAllocatable().GetMilliCPU(), n.GetRequested().GetMilliCPU())
	check("Insufficient memory", want.memory, n.GetAllocatable().GetMemory(), n.GetRequested().GetMemory())
	check("Insufficient ephemeral-storage", want.storage, n.GetAllocatable().GetEphemeralStorage(), n.GetRequested().GetEphemeralStorage())
	switch {
	case never:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, reasons...)
	case len(reasons) != 0:
		return fwk.NewStatus(fwk.Unschedulable, reasons...)
	}
	return nil
}

// benchNormalize measures NormalizeScore of a list of scores.
func benchNormalize(b *bench, rt *host.Runtime) error {
	file, err := guestbuild.Build(b.ctx, source("../testkit/e2e/differential/testdata/tainttoleration"))
	if err != nil {
		return err
	}
	p, err := loadPlugin(b, rt, "normalize", file, "")
	if err != nil {
		return err
	}
	guest := p.(fwk.ScorePlugin)
	const count = 500
	list := func() fwk.NodeScoreList {
		scores := make(fwk.NodeScoreList, count)
		for i := range scores {
			scores[i] = fwk.NodeScore{Name: fmt.Sprint("node", i), Score: int64(i % 7)}
		}
		return scores
	}
	pod, ours, theirs := pod(), list(), list()
	var failed error
	b.compare(fmt.Sprintf("NormalizeScore of %d scores", count), target{},
		func(n int) {
			state := kube137test.NewCycleState() // A cycle has a budget of fuel: one for all rounds would spend it.
			for range n {
				if status := guest.ScoreExtensions().NormalizeScore(b.ctx, state, pod, ours); !status.IsSuccess() {
					failed = status.AsError()
				}
			}
		},
		"native plugin", func(n int) {
			for range n {
				normalizeReversed(theirs)
			}
		})
	// Both have been turned round several times: a score is 0 to 100 by now.
	first := list()
	if status := guest.ScoreExtensions().NormalizeScore(b.ctx, kube137test.NewCycleState(), pod, first); !status.IsSuccess() {
		return status.AsError()
	}
	want := list()
	normalizeReversed(want)
	for i := range want {
		if first[i] != want[i] {
			return fmt.Errorf("score %d: the guest says %d, the native plugin %d", i, first[i].Score, want[i].Score)
		}
	}
	return failed
}

// normalizeReversed does in Go what the guest does: none is best.
func normalizeReversed(scores fwk.NodeScoreList) {
	var most int64
	for i := range scores {
		most = max(most, scores[i].Score)
	}
	for i := range scores {
		if most == 0 {
			scores[i].Score = fwk.MaxNodeScore
		} else {
			scores[i].Score = fwk.MaxNodeScore - scores[i].Score*fwk.MaxNodeScore/most
		}
	}
}
