package methodset_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/sched/internal/methodset"
)

type all struct{ n int }

func (a *all) A() int          { return a.n + 1 }
func (a *all) B(x int) int     { return a.n + x }
func (a *all) C() (int, error) { return a.n, nil }
func (a *all) Name() string    { return "all" }
func (a *all) Z(f func())      { f() }

type (
	hasA    interface{ A() int }
	hasB    interface{ B(int) int }
	hasC    interface{ C() (int, error) }
	hasName interface{ Name() string }
	hasZ    interface{ Z(func()) }
)

// TestEveryCombination restricts to each of the 32 sets of methods, and uses what
// is left by assertion, by a type switch and by reflection.
func TestEveryCombination(t *testing.T) {
	names := []string{"A", "B", "C", "Name", "Z"}
	interfaces := []reflect.Type{
		reflect.TypeFor[hasA](), reflect.TypeFor[hasB](), reflect.TypeFor[hasC](), reflect.TypeFor[hasName](), reflect.TypeFor[hasZ](),
	}
	for set := range 1 << len(names) {
		kept := func(name string) bool { return set>>slices.Index(names, name)&1 == 1 }
		t.Run(fmt.Sprintf("%05b", set), func(t *testing.T) {
			v, err := methodset.Restrict(&all{n: set}, kept)
			if err != nil {
				t.Fatal(err)
			}
			for i, name := range names {
				if got := reflect.TypeOf(v).Implements(interfaces[i]); got != kept(name) {
					t.Errorf("reflection says that %s is there: %v, want %v", name, got, kept(name))
				}
			}
			if a, ok := v.(hasA); ok != kept("A") || ok && a.A() != set+1 {
				t.Errorf("A is there: %v, want %v", ok, kept("A"))
			}
			if b, ok := v.(hasB); ok != kept("B") || ok && b.B(5) != set+5 {
				t.Errorf("B is there: %v, want %v", ok, kept("B"))
			}
			called := false
			switch z := v.(type) {
			case hasZ:
				z.Z(func() { called = true })
			}
			if called != kept("Z") {
				t.Errorf("Z is there: %v, want %v", called, kept("Z"))
			}
			if c, ok := v.(hasC); ok {
				if n, err := c.C(); n != set || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
			}
			if n, ok := v.(hasName); ok && n.Name() != "all" {
				t.Errorf("got %q", n.Name())
			}
		})
	}
}

// TestTypesAreShared holds that the same methods of the same type make one type:
// types are never freed.
func TestTypesAreShared(t *testing.T) {
	onlyA := func(name string) bool { return name == "A" }
	one, err := methodset.Restrict(&all{}, onlyA)
	if err != nil {
		t.Fatal(err)
	}
	two, err := methodset.Restrict(&all{}, onlyA)
	if err != nil {
		t.Fatal(err)
	}
	if reflect.TypeOf(one) != reflect.TypeOf(two) {
		t.Error("two types of the same methods")
	}
}

// TestHammer makes, uses and collects values on several goroutines.
func TestHammer(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 0))
			for i := range 500 {
				set := r.IntN(32)
				v, err := methodset.Restrict(&all{n: i}, func(name string) bool { return set>>(len(name)+int(name[0])%4)&1 == 1 })
				if err != nil {
					t.Error(err)
					return
				}
				if i%100 == 0 {
					runtime.GC()
				}
				if a, ok := v.(hasA); ok && a.A() != i+1 {
					t.Errorf("got %d, want %d", a.A(), i+1)
				}
			}
		})
	}
	wg.Wait()
}

func TestCallsCostNothingMore(t *testing.T) {
	v, err := methodset.Restrict(&all{}, func(name string) bool { return name == "B" })
	if err != nil {
		t.Fatal(err)
	}
	b := v.(hasB)
	if n := testing.AllocsPerRun(100, func() { b.B(1) }); n != 0 {
		t.Errorf("%v allocations for a call, want 0", n)
	}
}
