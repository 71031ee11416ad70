package codec

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// TestPointersAreAMap compares with a map of Go, while others read: what they find
// must be what they look for.
func TestPointersAreAMap(t *testing.T) {
	nodes := make([]corev1.Node, 300)
	var p pointers[corev1.Node]
	var epoch atomic.Uint64
	get := func(n *corev1.Node) *Object { return p.get(n, &epoch) }
	// The Ref of an Object says which Node it is of.
	objectOf := func(i int) *Object { return &Object{Ref: abi.MakeRef(1, uint32(i))} }
	want := map[*corev1.Node]*Object{}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			for r := rand.New(rand.NewPCG(1, uint64(g))); !stop.Load(); {
				i := r.IntN(len(nodes))
				if o := get(&nodes[i]); o != nil && o.Ref.Slot() != uint32(i) {
					t.Error("found the Object of another Node")
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 5))
	for range 20_000 {
		epoch.Add(1)
		i := r.IntN(len(nodes))
		node := &nodes[i]
		if old := want[node]; old != nil && r.IntN(2) == 0 {
			p.remove(node)
			p.remove(node) // It is gone, which does no harm.
			delete(want, node)
		} else if old == nil {
			want[node] = objectOf(i)
			p.add(node, want[node], epoch.Load())
		}
		if r.IntN(5000) == 0 {
			p.clear()
			clear(want)
		}
		if got := get(node); got != want[node] {
			t.Fatalf("got %p, want %p", got, want[node])
		}
	}
	stop.Store(true)
	readers.Wait()
	if p.live != len(want) {
		t.Errorf("got %d Objects, want %d", p.live, len(want))
	}
	for i := range nodes {
		if got := get(&nodes[i]); got != want[&nodes[i]] {
			t.Errorf("got %p, want %p", got, want[&nodes[i]])
		}
	}
	if n := len(*p.entries.Load()); n&(n-1) != 0 || n < 2*(p.live+p.removed) || n > 1024 {
		t.Errorf("%d entries for %d Objects and %d that were removed", n, p.live, p.removed)
	}
}
