package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// nodeResult has the guest's results for a node.
type nodeResult struct {
	info     *framework.NodeInfo
	rejected *fwk.Status
	score    int64
	// filter and again are the times of the first and a second Filter.
	filter, again, scored time.Duration
}

// showScheduler runs a scheduling cycle for each Pod over all Nodes.
func showScheduler(ctx context.Context, out io.Writer, rt *host.Runtime, g *guests, m *manifests) error {
	start := time.Now()
	p, err := sched.Load(ctx, rt, sched.PluginConfig{Config: host.Config{Name: "zone", Source: host.File(g.scheduler)}})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "\nSCHEDULER, guest zone, loaded in %s: %s\n", round(time.Since(start)), p.Functions().Of(abi.KindScheduler))
	if len(m.nodes) == 0 {
		fmt.Fprintln(out, "\n  No Nodes to schedule to.")
	}
	for _, pod := range m.pods {
		if len(m.nodes) == 0 {
			break
		}
		if err := schedule(ctx, out, p, pod, m.nodes); err != nil {
			return err
		}
	}
	return nil
}

// schedule does for one Pod what the scheduler does: PreFilter once, Filter for
// each Node, Score for each Node that passed, NormalizeScore once.
func schedule(ctx context.Context, out io.Writer, p sched.Plugin, pod *corev1.Pod, nodes []*corev1.Node) error {
	state := framework.NewCycleState()
	infos := make([]fwk.NodeInfo, len(nodes))
	results := make([]*nodeResult, len(nodes))
	for i, node := range nodes {
		results[i] = &nodeResult{info: framework.NewNodeInfo(node)}
		infos[i] = results[i].info
	}
	start := time.Now()
	only, status := p.(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, infos)
	fmt.Fprintf(out, "\n  Pod %s/%s (PreFilter %s)\n", pod.Namespace, pod.Name, round(time.Since(start)))
	if !status.IsSuccess() {
		fmt.Fprintf(out, "    %s: %s\n", status.Code(), status.Message())
		return nil
	}

	var passed []*nodeResult
	var scores fwk.NodeScoreList
	for _, r := range results {
		if !only.AllNodes() && !only.NodeNames.Has(r.info.Node().Name) {
			r.rejected = fwk.NewStatus(fwk.Unschedulable, "PreFilter left it out")
			continue
		}
		start = time.Now()
		r.rejected = p.(fwk.FilterPlugin).Filter(ctx, state, pod, r.info)
		r.filter = time.Since(start)
		start = time.Now()
		p.(fwk.FilterPlugin).Filter(ctx, state, pod, r.info)
		r.again = time.Since(start)
		if !r.rejected.IsSuccess() {
			continue
		}
		start = time.Now()
		score, status := p.(fwk.ScorePlugin).Score(ctx, state, pod, r.info)
		r.scored = time.Since(start)
		if !status.IsSuccess() {
			return fmt.Errorf("score node %s: %w", r.info.Node().Name, status.AsError())
		}
		passed = append(passed, r)
		scores = append(scores, fwk.NodeScore{Name: r.info.Node().Name, Score: score})
	}
	start = time.Now()
	if status := p.(fwk.ScorePlugin).ScoreExtensions().NormalizeScore(ctx, state, pod, scores); !status.IsSuccess() {
		return fmt.Errorf("normalize scores: %w", status.AsError())
	}
	normalized := time.Since(start)
	for i, r := range passed {
		r.score = scores[i].Score
	}

	// The best first, then those that were filtered out, by name.
	slices.SortStableFunc(results, func(a, b *nodeResult) int {
		return cmp.Or(
			cmp.Compare(a.rejected.Code(), b.rejected.Code()),
			cmp.Compare(b.score, a.score),
			cmp.Compare(a.info.Node().Name, b.info.Node().Name),
		)
	})
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "    NODE\tSCORE\tFILTER\tAGAIN\tSCORING\tFILTERED OUT BECAUSE")
	for _, r := range results {
		score, scored, filter, again := "-", "-", "-", "-"
		if r.rejected.IsSuccess() {
			score, scored = fmt.Sprint(r.score), round(r.scored).String()
		}
		if r.filter != 0 {
			filter, again = round(r.filter).String(), round(r.again).String()
		}
		fmt.Fprintf(t, "    %s\t%s\t%s\t%s\t%s\t%s\n", r.info.Node().Name, score, filter, again, scored, r.rejected.Message())
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case len(passed) == 0:
		fmt.Fprintln(out, "    No node fits: the Pod stays pending.")
	default:
		fmt.Fprintf(out, "    %s is the best node (NormalizeScore %s).\n", results[0].info.Node().Name, round(normalized))
	}
	return nil
}
