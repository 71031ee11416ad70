package objects

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
)

func TestVersionsThatWrapRoundAreOfAnObject(t *testing.T) {
	s := slot{number: 7, version: math.MaxUint32}
	if got, want := s.next(), abi.MakeRef(1, 7); got != want {
		t.Errorf("the ref after the last is %#x, want %#x", got, want)
	}
}

// TestPointersAreAMap compares with a map of Go, while others read: what they find
// must be what they look for.
func TestPointersAreAMap(t *testing.T) {
	nodes := make([]corev1.Node, 300)
	var p pointers[corev1.Node]
	var epoch atomic.Uint32
	// The Ref of an Object says which Node it is of.
	objectOf := func(i int) *Object { return &Object{Ref: abi.MakeRef(1, uint32(i))} }
	want := map[*corev1.Node]*Object{}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			for r := rand.New(rand.NewPCG(1, uint64(g))); !stop.Load(); {
				i := r.IntN(len(nodes))
				if o := p.get(&nodes[i], epoch.Load()); o != nil && o.Ref.Slot() != uint32(i) {
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
		if want[node] != nil {
			p.remove(node, objectOf(i)) // That of another Object stays.
			if got := p.get(node, epoch.Load()); got != want[node] {
				t.Fatalf("got %p, want %p", got, want[node])
			}
			p.remove(node, want[node])
			p.remove(node, want[node]) // It is gone, which does no harm.
			delete(want, node)
		} else {
			want[node] = objectOf(i)
			p.set(node, objectOf(i), epoch.Load())
			p.set(node, want[node], epoch.Load()) // It takes the place of the other.
		}
		if r.IntN(5000) == 0 {
			p.clear()
			clear(want)
		}
		if got := p.get(node, epoch.Load()); got != want[node] {
			t.Fatalf("got %p, want %p", got, want[node])
		}
		if used, ok := p.lastUsed(node, want[node]); ok != (want[node] != nil) || ok && epoch.Load()-used >= epochsMissed {
			t.Fatalf("last used in epoch %d of %d, known %t", used, epoch.Load(), ok)
		}
	}
	stop.Store(true)
	readers.Wait()
	if p.live != len(want) {
		t.Errorf("got %d Objects, want %d", p.live, len(want))
	}
	for i := range nodes {
		if got := p.get(&nodes[i], epoch.Load()); got != want[&nodes[i]] {
			t.Errorf("got %p, want %p", got, want[&nodes[i]])
		}
	}
	if n := len(p.table.Load().places); n&(n-1) != 0 || n < 2*p.taken || n > 2048 {
		t.Errorf("%d places for %d Objects, %d taken", n, p.live, p.taken)
	}
}
