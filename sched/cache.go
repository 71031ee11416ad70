package sched

import (
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// resultCache has the results of Filter and Score by the state of the cycle, the function and
// the class of the Node. Nodes are of one class if they are equal in the read set: the fields
// that any instance of the guest has read of any Node.
type resultCache struct {
	// disabled is set if results are not shared.
	disabled atomic.Bool
	// lastState is the last cycleState that was given out.
	lastState atomic.Uint64
	// rest is the number of the next cycles that share no results.
	rest  atomic.Int32
	store *objects.Store
	// logger logs the read set.
	logger *slog.Logger
	counts counts

	mu sync.Mutex
	// classes are found by the result of [objects.ClassOf] for their Nodes with these fields.
	fields  *objects.Encoder[corev1.Node]
	classes map[uint64]*nodeClass
}

// cycleState is a state of a cycle: a new one begins with each call that may change the guest's
// memory of the cycle. 0 is a state in which results are not shared.
type cycleState uint64

// nodeClass is the Nodes that are equal in a read set, with the results for them.
type nodeClass struct {
	fields *objects.Encoder[corev1.Node]
	// filter and score have room for two states: that of a cycle and that of a clone.
	filter, score [2]atomic.Pointer[result]
}

// result is the answer of a guest in a state of a cycle.
type result struct {
	state  cycleState
	score  int64
	status *Status
}

// cacheKey is the key of a result; zero if results are not shared.
type cacheKey struct {
	state    cycleState
	function abi.Function
	class    *nodeClass
	// at is the place of the result.
	at *atomic.Pointer[result]
}

// maxClasses is the maximum number of classes of a read set at the same time. Beyond it Nodes are
// too different for results to be shared.
const maxClasses = 1 << 14

// Where all Nodes are different, as for a guest that reads a label with their names, results are
// kept for nothing. After a cycle that kept manyResults and took less than one for eight of them
// from the cache, restCycles cycles share none.
const manyResults, restCycles = 512, 15

// begin returns the first state of a cycle, 0 if results are not shared in it.
func (c *resultCache) begin(plugin string, to host.Observer) cycleState {
	if hits, kept := c.counts.take(plugin, to); kept >= manyResults && hits < kept/8 {
		c.rest.Store(restCycles)
	}
	if c.rest.Load() > 0 && c.rest.Add(-1) >= 0 {
		return 0
	}
	return c.newState()
}

// newState returns a state in which no cycle was before.
func (c *resultCache) newState() cycleState {
	if c.disabled.Load() {
		return 0
	}
	return cycleState(c.lastState.Add(1))
}

// get returns the key of the result of a function for a Node, and the result, nil if there is
// none.
func (c *resultCache) get(state cycleState, f abi.Function, node *objects.Object) (cacheKey, *result) {
	if state == 0 {
		return cacheKey{}, nil
	}
	class, ok := node.Class.Load().(*nodeClass)
	if fields := c.store.NodeClasses(); !ok || class.fields != fields {
		class = c.classOf(node, fields)
	}
	at, hits := &class.filter[state%2], &c.counts.filter
	if f == abi.Score {
		at, hits = &class.score[state%2], &c.counts.score
	}
	k := cacheKey{state, f, class, at}
	if r := at.Load(); r != nil && r.state == state {
		hits.Add(1)
		return k, r
	}
	return k, nil
}

// classOf finds the class of a Node by the fields.
func (c *resultCache) classOf(node *objects.Object, fields *objects.Encoder[corev1.Node]) *nodeClass {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fields != fields || len(c.classes) >= maxClasses {
		if c.fields != fields {
			c.logger.Debug("Nodes that are equal in these fields share results", "fields", c.store.NodeReads().Paths())
		}
		c.fields, c.classes = fields, map[uint64]*nodeClass{}
	}
	key := objects.ClassOf(node, fields)
	class := c.classes[key]
	if class == nil {
		class = &nodeClass{fields: fields}
		c.classes[key] = class
	}
	node.Class.Store(class)
	return class
}

// put stores the guest's result for a Node, unless that is a failure, or a result for this
// Node alone: the guest used more than its arguments, logged, or read the identity of the Node.
//
// A clone of a cycle keeps its results, which its next step ends, but they do not count: a
// preemption keeps thousands that are never used, and they tell nothing about the differences of
// Nodes.
func (c *resultCache) put(k cacheKey, clone bool, node *objects.Object, inst *host.Instance, code abi.Code, score int64, status *Status) {
	switch code {
	case abi.Success:
	case abi.Unschedulable, abi.UnschedulableAndUnresolvable:
		if k.function == abi.Score {
			return
		}
	default:
		return
	}
	if inst.State().(*instance).call.own || inst.Logged() || node.Identified() || k.class.fields != c.store.NodeClasses() {
		return
	}
	k.at.Store(&result{k.state, score, status})
	if !clone {
		c.counts.kept.Add(1)
	}
}

// counts are the numbers of results taken from the cache, and kept in it, since a cycle last began.
type counts struct{ filter, score, kept atomic.Uint64 }

// take returns the counts and resets them. It reports the hits to an observer, if there is one.
func (c *counts) take(plugin string, to host.Observer) (hits, kept uint64) {
	filter, score, kept := c.filter.Swap(0), c.score.Swap(0), c.kept.Swap(0)
	if filter != 0 && to != nil {
		to.CacheHits(plugin, abi.Filter.String(), filter)
	}
	if score != 0 && to != nil {
		to.CacheHits(plugin, abi.Score.String(), score)
	}
	return filter + score, kept
}
