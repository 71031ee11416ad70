package codec

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// find looks an Object up as Table does.
func (p *pointers) find(node *corev1.Node) *Object {
	for o := p.bucket((&Object{node: node}).hash()); o != nil; o = o.next.Load() {
		if o.node == node {
			return o
		}
	}
	return nil
}

// TestPointersAreAMap compares with a map of Go, while others read: what they find
// must be what they look for.
func TestPointersAreAMap(t *testing.T) {
	nodes := make([]corev1.Node, 300)
	var p pointers
	want := map[*corev1.Node]*Object{}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			for r := rand.New(rand.NewPCG(1, uint64(g))); !stop.Load(); {
				node := &nodes[r.IntN(len(nodes))]
				if o := p.find(node); o != nil && o.node != node {
					t.Error("found the Object of another Node")
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 5))
	for range 20_000 {
		node := &nodes[r.IntN(len(nodes))]
		if old := want[node]; old != nil && r.IntN(2) == 0 {
			p.remove(old)
			p.remove(old) // It is gone, which does no harm.
			delete(want, node)
		} else if old == nil {
			want[node] = &Object{node: node}
			p.add(want[node])
		}
		if r.IntN(5000) == 0 {
			p.clear()
			clear(want)
		}
		if got := p.find(node); got != want[node] {
			t.Fatalf("got %p, want %p", got, want[node])
		}
	}
	stop.Store(true)
	readers.Wait()
	if p.count != len(want) {
		t.Errorf("got %d Objects, want %d", p.count, len(want))
	}
	for i := range nodes {
		if got := p.find(&nodes[i]); got != want[&nodes[i]] {
			t.Errorf("got %p, want %p", got, want[&nodes[i]])
		}
	}
	if buckets := len(*p.buckets.Load()); buckets&(buckets-1) != 0 || buckets < 2*p.count {
		t.Errorf("%d buckets for %d Objects", buckets, p.count)
	}
}
