package sched

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// podQuestion selects Pods: those in a namespace, or in any if it is empty, that the selector
// selects.
type podQuestion struct {
	text, namespace string
	selector        lookup.Selector
}

// parse reads a namespace, a NUL and a label selector, unless it has read them already.
func (q *podQuestion) parse(inst *host.Instance, text []byte, kept *lookup.Selectors) {
	if q.text == string(text) && q.text != "" {
		return
	}
	*q = podQuestion{}
	namespace, selector, ok := strings.Cut(string(text), "\x00")
	if !ok {
		inst.Abort(fmt.Errorf("%.80q is not a namespace and a selector", text))
	}
	parsed, err := kept.Parse(selector, inst.Spend)
	if err != nil {
		inst.Abort(err)
	}
	*q = podQuestion{text: string(text), namespace: namespace, selector: parsed}
}

// count returns the number of selected Pods; with those that have a deletionTimestamp only if
// terminating is set. It changes the slice.
func (q *podQuestion) count(pods []*corev1.Pod, terminating bool) (n uint32) {
	// Two loops, since the processor waits for the Pods of the first side by side.
	left := pods[:0]
	for _, pod := range pods {
		if (q.namespace == "" || pod.Namespace == q.namespace) && (terminating || pod.DeletionTimestamp == nil) {
			left = append(left, pod)
		}
	}
	for _, pod := range left {
		if q.selector.Matches(labels.Set(pod.Labels)) {
			n++
		}
	}
	return n
}

// The work between two checks of the clock, for a guest that asks about many nodes.
const (
	// countWork is its price in fuel, with usualPods on each node.
	countWork = 2_000_000
	usualPods = 32
	// nodesApiece is the number of nodes that a goroutine takes at a time.
	nodesApiece = 16
	// nodeWork is the price of a node in fuel.
	nodeWork = 100
)

// countPods gives the number of the selected Pods on each of some nodes, as 32-bit little-endian
// numbers. The nodes are processed in parallel, as in the scheduler's own plugins.
func (p *Plugin) countPods(inst *host.Instance, stack []uint64) {
	i := inst.State().(*instance)
	refs := inst.Read(uint32(stack[1]), uint32(stack[2]))
	if len(refs)%8 != 0 {
		inst.Abort(fmt.Errorf("%d bytes are not the refs of nodes", len(refs)))
	}
	inst.Spend(nodeWork * int64(len(refs)/8))
	nodes := make([]NodeInfo, 0, len(refs)/8)
	for ; len(refs) > 0; refs = refs[8:] {
		nodes = append(nodes, nodeOf(inst, abi.Ref(binary.LittleEndian.Uint64(refs))))
	}
	q := &i.counted
	q.parse(inst, lookup.ReadQuestion(inst, stack[3], stack[4]), &p.selectors)
	terminating := uint32(stack[0]) != 0
	i.buffer = slices.Grow(i.buffer[:0], 4*len(nodes))[:4*len(nodes)]
	together := int(max(1, countWork/(usualPods*q.selector.Work)))
	for first := 0; first < len(nodes); first += together {
		some := nodes[first:min(first+together, len(nodes))]
		counts := i.buffer[4*first:]
		var looked atomic.Int64
		p.parallel((len(some)+nodesApiece-1)/nodesApiece, func(piece int) {
			pods := make([]*corev1.Pod, 0, 2*usualPods)
			for n := nodesApiece * piece; n < min(nodesApiece*(piece+1), len(some)); n++ {
				pods = p.framework.AppendPods(pods[:0], some[n])
				looked.Add(int64(len(pods)))
				binary.LittleEndian.PutUint32(counts[4*n:], q.count(pods, terminating))
			}
		})
		inst.Spend(looked.Load() * q.selector.Work)
	}
	stack[0] = uint64(inst.Write(uint32(stack[5]), uint32(stack[6]), i.buffer))
}

// parallel calls work for each piece, counted from 0, on as many goroutines as the scheduler gives
// an operation, and returns when all calls have.
func (p *Plugin) parallel(pieces int, work func(piece int)) {
	if pieces > 1 && p.handle != nil {
		p.handle.Parallel(pieces, p.Name(), work)
		return
	}
	for piece := range pieces {
		work(piece)
	}
}
