package sched

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// background are the copies of a plugin that are called after it.
type background struct {
	shadow, profile shadow.Place

	mu sync.Mutex
	// last is the last recorded cycle, which is not handed over yet.
	last *recordedCycle
}

// candidate is a plugin that schedules nothing.
type candidate struct {
	*Plugin
	handle *frozenHandle
}

// Guest implements [shadow.Candidate].
func (c *candidate) Guest() *host.Plugin { return c.guest }

// BeginShadow begins to call a candidate with a sample of the plugin's scheduling cycles, see
// package shadow of host, in place of an earlier candidate. A cycle is repeated as a whole from
// PreFilter to Score, with copies of the nodes at that time: at most 100 of Filter, and as many of
// Score. The scheduler's handling of waiting Pods, events and other nodes is not repeated. Other
// functions of the plugin, such as Permit, are listed in [shadow.Status.NotRepeated].
func (p *Plugin) BeginShadow(ctx context.Context, cfg shadow.Config) error {
	opts, err := p.backgroundOptions()
	if err != nil {
		return err
	}
	for _, f := range (p.Functions() &^ repeated).Functions() {
		opts.NotRepeated = append(opts.NotRepeated, f.String())
	}
	slices.Sort(opts.NotRepeated)
	s, err := shadow.Begin(cfg, opts)
	if err != nil {
		return err
	}
	return p.background.shadow.Put(ctx, s)
}

// BeginProfile begins to profile a copy of the plugin on the next scheduling cycles.
func (p *Plugin) BeginProfile(ctx context.Context, cycles int) error {
	opts, err := p.backgroundOptions()
	if err != nil {
		return err
	}
	s, err := shadow.Profile(cycles, p.guest.Source(), opts)
	if err != nil {
		return err
	}
	return p.background.profile.Put(ctx, s)
}

// Shadow returns the shadow of the plugin, nil if there was none.
func (p *Plugin) Shadow() *shadow.Shadow { return p.background.shadow.Shadow() }

// Profile returns the profile that runs, or ran last, nil if there was none.
func (p *Plugin) Profile() *shadow.Shadow { return p.background.profile.Shadow() }

func (p *Plugin) backgroundOptions() (shadow.Options, error) {
	if p.framework.Freeze == nil {
		return shadow.Options{}, fmt.Errorf("plugin %q: shadow: this scheduler cannot keep earlier states of nodes", p.Name())
	}
	return shadow.Options{
		Plugin: p.Name(), Serving: p.guest, Runtime: p.runtime, Logger: p.args.Logger, Observer: p.observer,
		Load: func(ctx context.Context, rt *host.Runtime, change func(*host.Config)) (shadow.Candidate, error) {
			cfg := p.args
			change(&cfg.Config)
			cfg.Shadow, cfg.FailurePolicy, cfg.Mode = nil, host.Fail, host.Enforce
			c := &candidate{handle: &frozenHandle{}}
			f := p.framework
			if f.Handle != nil {
				c.handle.Handle = f.Handle
				f.Handle = c.handle
			}
			var err error
			c.Plugin, err = Load(ctx, rt, cfg, f)
			if err != nil {
				return nil, err
			}
			return c, nil
		},
	}, nil
}

func (b *background) close(ctx context.Context) error {
	return errors.Join(b.shadow.Close(ctx), b.profile.Close(ctx))
}

// repeated are the functions that a shadow repeats. A guest is configured and registers its events
// when it is loaded, and a clone of a cycle decides nothing.
var repeated = abi.MaskOf(abi.PreFilter, abi.Filter, abi.PreScore, abi.Score, abi.Configure, abi.EventsToRegister, abi.CloneCycle)

// maxRecorded is the maximum number of nodes of a cycle that are repeated for Filter, and for
// Score.
const maxRecorded = 100

// recordedCycle is a cycle's calls of a plugin, and its answers.
type recordedCycle struct {
	pod       *corev1.Pod
	shadows   []*shadow.Shadow
	framework *Framework

	mu   sync.Mutex
	over bool
	// bytes is approximately the memory of the record, and most its maximum. A cycle that has more
	// is full, and keeps nothing.
	bytes, most     int64
	full            bool
	pods            []*corev1.Pod
	calls           []recordedCall
	filters, scores int
	frozen          map[NodeInfo]NodeInfo
}

// recordedCall is a call of a cycle.
type recordedCall struct {
	function abi.Function
	node     NodeInfo // Of Filter and Score, as it was.
	nodes    Nodes    // Of PreFilter and PreScore, nil if the guest did not look at them.
	names    []string
	score    int64
	status   *Status
}

// begin ends the record of the previous cycle, which it hands over, and begins one of a cycle if
// that is sampled. The scheduler begins a cycle when the previous one has chosen its node.
func (b *background) begin(p *Plugin, pod *corev1.Pod) *recordedCycle {
	var sampled []*shadow.Shadow
	var most int64
	for _, s := range []*shadow.Shadow{b.shadow.Shadow(), b.profile.Shadow()} {
		if pod != nil && s.Sampled() && s.Room(0) {
			sampled = append(sampled, s)
			most = max(most, s.Config().QueueBytes)
		}
	}
	var r *recordedCycle
	if sampled != nil {
		r = &recordedCycle{pod: pod, shadows: sampled, framework: &p.framework, frozen: map[NodeInfo]NodeInfo{}, most: most}
	}
	b.mu.Lock()
	last := b.last
	b.last = r
	b.mu.Unlock()
	if last != nil {
		last.mu.Lock()
		last.over = true
		last.frozen = nil
		last.mu.Unlock()
		for _, s := range last.shadows {
			if last.full {
				s.Drop()
				continue
			}
			s.Offer(last.repeat, last.bytes, nil)
		}
	}
	return r
}

// keep returns a node in its present state. r.mu is held.
func (r *recordedCycle) keep(n NodeInfo) NodeInfo {
	f := r.frozen[n]
	if f != nil || r.full {
		return f
	}
	if r.bytes += r.nodeBytes(n); r.bytes > r.most {
		r.full, r.over = true, true
		r.calls, r.frozen, r.pods = nil, nil, nil
		return nil
	}
	f = r.framework.Freeze(n)
	r.frozen[n] = f
	return f
}

const (
	// copyBytes is approximately the size of a copy of a node's information, with the Node except
	// for its texts.
	copyBytes = 2 << 10
	// podBytes and imageBytes are approximately the sizes that the copy keeps for each Pod and each
	// name of an image.
	podBytes, imageBytes = 512, 128
	// callBytes is the maximum size of a call beside nodes and texts.
	callBytes = 256
)

// nodeBytes returns approximately the memory that a copy of a node keeps. The scheduler may replace
// the objects meanwhile.
func (r *recordedCycle) nodeBytes(n NodeInfo) int64 {
	size := copyBytes
	if node := n.Node(); node != nil {
		for _, texts := range []map[string]string{node.Labels, node.Annotations} {
			for key, value := range texts {
				size += len(key) + len(value)
			}
		}
		for i := range node.Status.Images {
			for _, name := range node.Status.Images[i].Names {
				size += imageBytes + len(name)
			}
		}
	}
	r.pods = r.framework.AppendPods(r.pods[:0], n)
	return int64(size + podBytes*len(r.pods))
}

// list records PreFilter or PreScore. looked means that the guest has read nodes.
func (r *recordedCycle) list(f abi.Function, nodes Nodes, looked bool, names []string, status *Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		return
	}
	c := recordedCall{function: f, names: slices.Clone(names), status: status}
	if looked {
		kept := make(frozenNodes, 0, length(nodes))
		for n := range all(nodes) {
			kept = append(kept, r.keep(n))
			if r.full {
				return
			}
		}
		c.nodes = kept
	}
	r.bytes += callBytes
	for _, name := range names {
		r.bytes += int64(len(name))
	}
	r.calls = append(r.calls, c)
}

// node records Filter or Score.
func (r *recordedCycle) node(f abi.Function, n NodeInfo, score int64, status *Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := &r.filters
	if f == abi.Score {
		count = &r.scores
	}
	if r.over || *count >= maxRecorded || n.Node() == nil {
		return
	}
	*count++
	kept := r.keep(n)
	if r.full {
		return
	}
	r.bytes += callBytes
	r.calls = append(r.calls, recordedCall{function: f, node: kept, score: score, status: status})
}

// repeat repeats the calls on a candidate, and compares up to the first difference.
func (r *recordedCycle) repeat(ctx context.Context, of shadow.Candidate) (o shadow.Outcome) {
	p := of.(*candidate)
	p.handle.begin(r)
	name, stain := r.pod.Namespace+"/"+r.pod.Name, p.stainOf(r.pod)
	c := p.Begin(r.pod)
	for i := range r.calls {
		if err := ctx.Err(); err != nil {
			return shadow.Outcome{Err: err, Stain: stain}
		}
		was := &r.calls[i]
		is := recordedCall{function: was.function}
		subject := name
		switch was.function {
		case abi.PreFilter:
			is.names, is.status = p.PreFilter(c, p.handle.orAsk(was.nodes))
			c.nodes = nil // Only a guest may look at them.
		case abi.Filter:
			is.status = p.Filter(c, was.node)
			subject += " on " + was.node.Node().Name
		case abi.PreScore:
			is.status = p.PreScore(c, p.handle.orAsk(was.nodes))
		case abi.Score:
			is.score, is.status = p.Score(c, was.node)
			subject += " on " + was.node.Node().Name
		}
		kind := func(c *recordedCall) string { return c.function.String() + " " + c.status.Code().String() }
		o = shadow.Outcome{Serving: kind(was), Candidate: kind(&is), Subject: subject, Stain: stain}
		switch {
		case p.handle.asked.Load():
			return shadow.Outcome{Serving: o.Serving, Asked: was.function.String() + " reads data that the serving version did not", Subject: subject, Stain: stain}
		case is.status.Code() == abi.Error && was.status.Code() != abi.Error:
			return shadow.Outcome{Serving: o.Serving, Err: is.status.AsError(), Subject: subject, Stain: stain}
		case is.status.Code() == abi.Error: // Two versions fail with different words.
			return shadow.Outcome{Uncompared: true}
		case was.status.Code() != is.status.Code() || was.status.Message() != is.status.Message():
			o.Detail = fmt.Sprintf("%q -> %q", was.status.Message(), is.status.Message())
			return o
		case was.score != is.score:
			o.Detail = fmt.Sprintf("score %d -> %d", was.score, is.score)
			return o
		case !slices.Equal(was.names, is.names):
			o.Detail = fmt.Sprintf("nodes %q -> %q", was.names, is.names)
			return o
		}
	}
	return shadow.Outcome{Uncompared: len(r.calls) == 0}
}

// frozenNodes is a list of nodes in a former state.
type frozenNodes []NodeInfo

func (n frozenNodes) Len() int          { return len(n) }
func (n frozenNodes) At(i int) NodeInfo { return n[i] }

// frozenHandle is the scheduler for a candidate: the recorded part of its state in the repeated
// cycle. It changes nothing.
type frozenHandle struct {
	Handle
	nodes frozenNodes
	asked atomic.Bool
}

var errNotRecorded = errors.New("the nodes were not recorded")

func (h *frozenHandle) begin(r *recordedCycle) {
	h.asked.Store(false)
	h.nodes = nil
	for i := range r.calls {
		if list, ok := r.calls[i].nodes.(frozenNodes); ok && r.calls[i].function == abi.PreFilter {
			h.nodes = list
		}
	}
}

// orAsk returns a list of nodes, or one that records its use.
func (h *frozenHandle) orAsk(nodes Nodes) Nodes {
	if nodes == nil {
		return unrecordedNodes{h}
	}
	return nodes
}

// unrecordedNodes is a list that was not recorded.
type unrecordedNodes struct{ handle *frozenHandle }

func (n unrecordedNodes) Len() int {
	n.handle.asked.Store(true)
	return 0
}
func (n unrecordedNodes) At(int) NodeInfo { return nil }

// Nodes implements [Handle].
func (h *frozenHandle) Nodes() (Nodes, error) {
	if h.nodes == nil {
		h.asked.Store(true)
		return nil, errNotRecorded
	}
	return h.nodes, nil
}

// Node implements [Handle].
func (h *frozenHandle) Node(name string) NodeInfo {
	for _, n := range h.nodes {
		if node := n.Node(); node != nil && node.Name == name {
			return n
		}
	}
	if h.nodes == nil {
		h.asked.Store(true)
	}
	return nil
}

// WaitingPods implements [Handle].
func (h *frozenHandle) WaitingPods() iter.Seq[WaitingPod] {
	h.asked.Store(true)
	return func(func(WaitingPod) bool) {}
}

// WaitingPod implements [Handle].
func (h *frozenHandle) WaitingPod(types.UID) WaitingPod {
	h.asked.Store(true)
	return nil
}

// Eventf implements [Handle]: it reports nothing.
func (h *frozenHandle) Eventf(runtime.Object, runtime.Object, string, string, string, string) {}

// Pending implements [Handle]: no Pod waits for an event.
func (h *frozenHandle) Pending(*corev1.Pod) *corev1.Pod { return nil }

// Apply implements [Handle]: it does nothing.
func (h *frozenHandle) Apply(context.Context, string, Applied) error { return nil }

// Activate implements [Handle]: it does nothing.
func (h *frozenHandle) Activate([]*corev1.Pod) {}

// Refused implements [Handle]: it reports nothing.
func (h *frozenHandle) Refused(*corev1.Pod, string) {}

// Parallel implements [Handle]. The other processors are left to the serving version.
func (h *frozenHandle) Parallel(pieces int, _ string, work func(piece int)) {
	for piece := range pieces {
		work(piece)
	}
}

// Without implements [Handle].
func (h *frozenHandle) Without([]*corev1.Pod, func()) error {
	h.asked.Store(true)
	return errNotRecorded
}
