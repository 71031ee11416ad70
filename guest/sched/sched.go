package sched

import (
	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/internal/plugin"
)

// The scores that a node may have after normalisation.
const (
	MinNodeScore int64 = 0
	MaxNodeScore int64 = 100
)

// PreFilterPlugin is implemented by plugins that look at a Pod before its nodes
// are filtered: to compute once what Filter needs for each node, and to refuse
// the Pod or narrow the nodes down.
//
// PreFilter may run more than once in a scheduling cycle, on each instance of
// the guest that filters nodes; the result of the first run counts. It must
// depend on nothing but its arguments.
type PreFilterPlugin interface {
	PreFilter(state CycleState, pod core.Pod) (*PreFilterResult, *Status)
}

// PreFilterResult narrows the nodes down.
type PreFilterResult struct {
	// NodeNames are the nodes that are looked at further; none at all makes
	// the Pod unschedulable.
	NodeNames []string
}

// FilterPlugin is implemented by plugins that say whether a Pod can run on a
// node. Filter returns nil if so.
type FilterPlugin interface {
	Filter(state CycleState, pod core.Pod, node NodeInfo) *Status
}

// ScorePlugin is implemented by plugins that rank the nodes that passed Filter.
// The score must lie between MinNodeScore and MaxNodeScore, or be brought there
// by NormalizeScore.
type ScorePlugin interface {
	Score(state CycleState, pod core.Pod, node NodeInfo) (int64, *Status)
}

// ScoreExtensions is implemented by score plugins whose scores mean something
// only beside one another. NormalizeScore changes the scores in place.
type ScoreExtensions interface {
	NormalizeScore(state CycleState, pod core.Pod, scores NodeScoreList) *Status
}

// NodeScore is the score of a node.
type NodeScore struct {
	Name  string
	Score int64
}

// NodeScoreList is the scores of all nodes that passed Filter.
type NodeScoreList []NodeScore

// NodeInfo is what the scheduler knows about a node.
type NodeInfo struct{ node core.Node }

// NewNodeInfo returns the NodeInfo of a node, for native tests.
func NewNodeInfo(node core.Node) NodeInfo { return NodeInfo{node} }

// Node returns the Node object.
func (n NodeInfo) Node() core.Node { return n.node }

// The registered plugin, by what it implements.
var registered struct {
	preFilter PreFilterPlugin
	filter    FilterPlugin
	score     ScorePlugin
	normalize ScoreExtensions
}

// Register makes p the plugin of this guest, a pointer to a value that implements
// one or more of the interfaces of this package. Call it once, in init, or in
// main of a guest that is built without -buildmode=c-shared, which does not run
// main. If the host has a configuration for the plugin, it is decoded into
// the struct that p points to, by its json tags, before the first call; unknown
// fields and wrong types make the plugin fail to load. A plugin without a
// configuration is best registered as a value, Register(filter{}): then the guest
// does without the decoder, a sixth of its size.
//
// Register panics if p implements no interface of this package, or
// ScoreExtensions without ScorePlugin.
func Register[P any](p P) { plugin.Register(p, register(p)) }

// register notes what p implements.
func register(p any) (mask abi.Mask) {
	if f, ok := p.(PreFilterPlugin); ok {
		registered.preFilter = f
		mask |= abi.MaskOf(abi.PreFilter)
	}
	if f, ok := p.(FilterPlugin); ok {
		registered.filter = f
		mask |= abi.MaskOf(abi.Filter)
	}
	if f, ok := p.(ScorePlugin); ok {
		registered.score = f
		mask |= abi.MaskOf(abi.Score)
	}
	if f, ok := p.(ScoreExtensions); ok {
		if registered.score == nil {
			panic("kubewasm: sched.Register: the plugin implements NormalizeScore without Score")
		}
		registered.normalize = f
		mask |= abi.MaskOf(abi.NormalizeScore)
	}
	if mask == 0 {
		panic("kubewasm: sched.Register: the plugin implements no extension point of the scheduler; are its methods on the pointer, and with the right signatures?")
	}
	return mask
}
