package objects_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// BenchmarkStore is what a Store takes for a Node: one that it knows, a new pointer to one that
// is equal in the read set, and one that is not.
func BenchmarkStore(b *testing.B) {
	const count = 1000
	versions := func(change func(n *corev1.Node, i int)) (nodes [8][]*corev1.Node) {
		for v := range nodes {
			for i := range count {
				n := node(fmt.Sprint("n", i), "a")
				change(n, v)
				nodes[v] = append(nodes[v], n)
			}
		}
		return nodes
	}
	for name, nodes := range map[string][8][]*corev1.Node{
		"known": {0: versions(func(*corev1.Node, int) {})[0]},
		"equal": versions(func(n *corev1.Node, i int) { n.ResourceVersion = fmt.Sprint(i) }),
		"other": versions(func(n *corev1.Node, i int) { n.Labels["zone"] = fmt.Sprint(i) }),
	} {
		b.Run(name, func(b *testing.B) {
			store := objects.NewStore()
			store.Node(nodes[0][0]).Entry(11, "zone")
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				turn := nodes[n/count%8]
				if turn == nil {
					turn = nodes[0]
				}
				store.Node(turn[n%count])
			}
		})
	}
}

// BenchmarkPart compares encoding a part of a Node again, as each instance and plugin does that
// asks for it, with keeping a copy for the others.
func BenchmarkPart(b *testing.B) {
	n := node("n", "a")
	n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}, {Key: "maintenance", Effect: corev1.TaintEffectPreferNoSchedule}}
	o := objects.NewStore().Node(n)
	var room []byte
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			room = o.AppendPart(room[:0], 2, 1<<5)
		}
	})
	b.Run("encode and keep", func(b *testing.B) {
		var kept atomic.Pointer[[]byte]
		b.ReportAllocs()
		for b.Loop() {
			part := bytes.Clone(o.AppendPart(room[:0], 2, 1<<5))
			kept.Store(&part)
		}
	})
}
