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

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched"
)

// nodeResult has the guest's results for a node.
type nodeResult struct {
	info     *node
	rejected *sched.Status
	score    int64
	// filter and again are the times of the first and a second Filter.
	filter, again, scored time.Duration
}

// showScheduler runs a scheduling cycle for each Pod over all Nodes.
func showScheduler(ctx context.Context, out io.Writer, rt *host.Runtime, g *guests, m *manifests) error {
	start := time.Now()
	p, err := sched.Load(ctx, rt, sched.PluginConfig{Config: host.Config{Name: "zone", Module: host.ModuleConfig{File: g.scheduler}}}, framework)
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
		if err := schedule(out, p, pod, m.nodes); err != nil {
			return err
		}
	}
	return nil
}

// schedule does for one Pod what the scheduler does: PreFilter once, Filter for
// each Node, Score for each Node that passed, NormalizeScore once.
func schedule(out io.Writer, p *sched.Plugin, pod *corev1.Pod, nodes []*corev1.Node) error {
	infos := make(snapshot, len(nodes))
	results := make([]*nodeResult, len(nodes))
	for i, n := range nodes {
		results[i] = &nodeResult{info: &node{object: n, generation: int64(i) + 1}}
		infos[i] = results[i].info
	}
	start := time.Now()
	cycle := p.Begin(pod)
	only, status := p.PreFilter(cycle, infos)
	fmt.Fprintf(out, "\n  Pod %s/%s (PreFilter %s)\n", pod.Namespace, pod.Name, round(time.Since(start)))
	if status != nil {
		fmt.Fprintf(out, "    %s: %s\n", status.Code(), status.Message())
		return nil
	}

	var passed []*nodeResult
	var scores scoreList
	for _, r := range results {
		if only != nil && !slices.Contains(only, r.info.Node().Name) {
			r.rejected = sched.NewStatus(abi.Unschedulable, "PreFilter left it out")
			continue
		}
		start = time.Now()
		r.rejected = p.Filter(cycle, r.info)
		r.filter = time.Since(start)
		start = time.Now()
		p.Filter(cycle, r.info)
		r.again = time.Since(start)
		if r.rejected != nil {
			continue
		}
		start = time.Now()
		score, status := p.Score(cycle, r.info)
		r.scored = time.Since(start)
		if status != nil {
			return fmt.Errorf("score node %s: %w", r.info.Node().Name, status.AsError())
		}
		passed = append(passed, r)
		scores = append(scores, nodeScore{r.info.Node().Name, score})
	}
	start = time.Now()
	if status := p.NormalizeScore(cycle, scores); status != nil {
		return fmt.Errorf("normalize scores: %w", status.AsError())
	}
	normalized := time.Since(start)
	for i, r := range passed {
		r.score = scores[i].score
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
		if r.rejected == nil {
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
