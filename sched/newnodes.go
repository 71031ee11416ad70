package sched

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// manyNodes is the number of Nodes that do not stay in a processor's caches from one cycle to the
// next.
const manyNodes = 512

// newNodes are the Nodes of a cycle in which many are new. They are added to the store ahead of the
// cycle.
type newNodes struct {
	list []*corev1.Node
	// next is the index of the first that no goroutine has taken.
	next atomic.Int64
}

// add adds one, and reports whether there was any left.
func (n *newNodes) add(store *objects.Store) bool {
	i := n.next.Add(1) - 1
	if i >= int64(len(n.list)) {
		return false
	}
	store.Node(n.list[i])
	return true
}

// newNode returns the version of a Node whose pointer was not seen before. Once these are one in 64
// of many Nodes of a cycle, as after a start, a swap or a change of all Nodes, a goroutine adds the
// rest, from that Node on. Calls that come upon a new Node before it help.
func (p *Plugin) newNode(c *Cycle, node *corev1.Node) *objects.Object {
	nodes := c.nodes
	if n := c.newNodes.Load(); n != nil {
		n.add(p.objects)
	} else if length(nodes) >= manyNodes && int(c.newCount.Add(1)) == nodes.Len()/64 {
		n := &newNodes{list: from(node, nodes)}
		c.newNodes.Store(n)
		go func() {
			for n.add(p.objects) {
			}
			c.newNodes.Store(nil) // A cycle may last for long, and keep no Nodes.
		}()
	}
	return p.objects.Node(node)
}

// from returns the Nodes of a list, beginning at one of them and with those before it at the end.
// It keeps no NodeInfo: these change after the cycle.
func from(node *corev1.Node, nodes Nodes) []*corev1.Node {
	list, first := make([]*corev1.Node, 0, nodes.Len()), 0
	for info := range all(nodes) {
		n := info.Node()
		if n == node {
			first = len(list)
		}
		if n != nil {
			list = append(list, n)
		}
	}
	return append(list[first:], list[:first]...)
}
