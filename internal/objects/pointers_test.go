package objects

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
	things := make([]named[int, corev1.Node], len(nodes)/2)
	var p pointers[int, corev1.Node]
	var epoch atomic.Uint32
	get := func(r *rand.Rand, n *corev1.Node) *Object {
		if r.IntN(2) == 0 {
			o, _ := p.inTurn(n, epoch.Load())
			return o
		}
		return p.get(n, epoch.Load())
	}
	// The Ref of an Object says which Node it is of. A thing is at one of two Nodes at
	// a time.
	objectOf := func(i int) *Object { return &Object{Ref: abi.MakeRef(1, uint32(i))} }
	other := func(i int) int { return (i + len(nodes)/2) % len(nodes) }
	want := map[*corev1.Node]*Object{}
	var stop atomic.Bool
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			for r := rand.New(rand.NewPCG(1, uint64(g))); !stop.Load(); {
				for i, end := r.IntN(len(nodes)), r.IntN(len(nodes)); i < end; i++ {
					if o := get(r, &nodes[i]); o != nil && o.Ref.Slot() != uint32(i) {
						t.Error("found the Object of another Node")
					}
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(3, 5))
	for range 20_000 {
		epoch.Add(1)
		i := r.IntN(len(nodes))
		node, thing := &nodes[i], &things[i%len(things)]
		if want[node] != nil && r.IntN(2) == 0 {
			p.remove(thing)
			p.remove(thing) // It is gone, which does no harm.
			delete(want, node)
		} else {
			delete(want, &nodes[other(i)])
			want[node] = objectOf(i)
			p.set(thing, node, want[node], epoch.Load())
			if got := p.namedIn(thing.entry); got != thing || thing.of != node {
				t.Fatalf("entry %d is of %p, want %p", thing.entry, got, thing)
			}
		}
		if r.IntN(5000) == 0 {
			p.clear()
			clear(want)
		}
		if got := get(r, node); got != want[node] {
			t.Fatalf("got %p, want %p", got, want[node])
		}
		if used, ok := p.lastUsed(thing); ok != (want[node] != nil || want[&nodes[other(i)]] != nil) || want[node] != nil && epoch.Load()-used >= epochsMissed {
			t.Fatalf("last used in epoch %d of %d, known %t", used, epoch.Load(), ok)
		}
	}
	stop.Store(true)
	readers.Wait()
	if p.live != len(want) {
		t.Errorf("got %d Objects, want %d", p.live, len(want))
	}
	for i := range nodes {
		if got := get(r, &nodes[i]); got != want[&nodes[i]] {
			t.Errorf("got %p, want %p", got, want[&nodes[i]])
		}
	}
	if n := len(p.table.Load().index); n&(n-1) != 0 || n < 2*p.taken || n > 2048 {
		t.Errorf("an index of %d places for %d Objects, %d taken", n, p.live, p.taken)
	}
}

// TestInTurnLearnsTheOrder holds that the entries lead from one to the next once they
// were asked for in turn, also after they have moved.
func TestInTurnLearnsTheOrder(t *testing.T) {
	nodes := make([]corev1.Node, 100)
	things := make([]named[int, corev1.Node], len(nodes))
	var p pointers[int, corev1.Node]
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(nodes))
	guessed := func() (right int) {
		at := uint32(0)
		for _, i := range order {
			table := p.table.Load()
			n := table.entries[at].next.Load()
			if table.entries[n].of.Load() == &nodes[i] {
				right++
			}
			at = table.number(&nodes[i])
		}
		return right
	}
	for i := range nodes {
		p.set(&things[i], &nodes[i], &Object{}, 1)
	}
	last := &turn{}
	for _, i := range order {
		if o, _ := p.inTurnAfter(last, &nodes[i], 1); o == nil {
			t.Fatal("a Node is not known")
		}
	}
	if got := guessed(); got != len(nodes) {
		t.Errorf("%d of %d are guessed", got, len(nodes))
	}
	// New versions of all of them, and of none that was not there, are where those
	// before were.
	versions := make([]corev1.Node, len(nodes))
	p.inTurnAfter(last, &nodes[order[0]], 1)
	for turn, i := range order[1:] {
		o, next := p.inTurnAfter(last, &versions[i], 1)
		if o != nil || p.namedIn(next) != &things[i] {
			t.Fatalf("%d: a version that is not known is at entry %d, want %d", turn, next, things[i].entry)
		}
		p.set(&things[i], &versions[i], &Object{}, 1)
	}
	for _, i := range order[1:] {
		p.set(&things[i], &nodes[i], &Object{}, 1)
	}
	p.remove(&things[order[50]])
	p.renew(p.table.Load())
	if got := guessed(); got != len(nodes)-2 {
		t.Errorf("%d of %d are guessed without one of them", got, len(nodes))
	}
}
