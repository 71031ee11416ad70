package objects_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/objects"
)

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name, ResourceVersion: "7", Labels: map[string]string{"zone": zone, "b": "2", "a": "1"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
	}}
}

func refOf(t testing.TB, table *objects.Table, n *corev1.Node) abi.Ref {
	t.Helper()
	o, err := table.Node(n)
	if err != nil {
		t.Fatal(err)
	}
	return o.Ref
}

func TestObjectsTravelWithoutManagedFields(t *testing.T) {
	n := node("n", "a")
	raw, err := objects.Node(n)
	if err != nil {
		t.Fatal(err)
	}
	var got corev1.Node
	if err := got.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	want := n.DeepCopy()
	want.ManagedFields = nil
	if diff := cmp.Diff(want, &got); diff != "" {
		t.Errorf("Node (-want +got):\n%s", diff)
	}
	if len(n.ManagedFields) != 1 {
		t.Error("the Node itself lost its managedFields")
	}

	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: n.ManagedFields}, Spec: corev1.PodSpec{NodeName: "n"}}
	if raw, err = objects.Pod(p); err != nil {
		t.Fatal(err)
	}
	var gotPod corev1.Pod
	if err := gotPod.Unmarshal(raw); err != nil {
		t.Fatal(err)
	}
	wantPod := p.DeepCopy()
	wantPod.ManagedFields = nil
	if diff := cmp.Diff(wantPod, &gotPod); diff != "" {
		t.Errorf("Pod (-want +got):\n%s", diff)
	}
}

func TestVersions(t *testing.T) {
	var table objects.Table
	n := node("n", "a")
	first := refOf(t, &table, n)
	if first.Version() == 0 {
		t.Error("version 0 is no object")
	}
	if got := refOf(t, &table, n); got != first {
		t.Errorf("the same object: ref %x, want %x", got, first)
	}
	if got := refOf(t, &table, n.DeepCopy()); got != first {
		t.Errorf("an equal object: ref %x, want %x", got, first)
	}
	onlyManaged := n.DeepCopy()
	onlyManaged.ManagedFields = nil
	if got := refOf(t, &table, onlyManaged); got != first {
		t.Errorf("an object with other managedFields: ref %x, want %x", got, first)
	}
	moved := refOf(t, &table, node("n", "b"))
	if moved.Slot() != first.Slot() || moved.Version() == first.Version() {
		t.Errorf("a changed object: ref %x after %x", moved, first)
	}
	if other := refOf(t, &table, node("m", "a")); other.Slot() == first.Slot() {
		t.Errorf("another object: ref %x in the slot of %x", other, first)
	}
	if _, ok := table.Lookup(first); ok {
		t.Error("the version before is still there")
	}
	o, ok := table.Lookup(moved)
	if !ok {
		t.Fatal("the current version is not there")
	}
	want, err := objects.Node(node("n", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, o.Bytes()); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

func project(t testing.TB, table *objects.Table, paths ...string) *objects.Projection {
	t.Helper()
	projection, err := objects.ParseProjection(paths)
	if err != nil {
		t.Fatal(err)
	}
	table.Project(projection, false)
	return projection
}

// TestNamelessNodes holds that Nodes are one object if they are equal in the fields
// that travel, and that a Node goes to another when one of these changes.
func TestNamelessNodes(t *testing.T) {
	var table objects.Table
	projection := project(t, &table, "node.metadata.labels[zone]", objects.NamelessNodes)
	m, n := node("m", "a"), node("n", "a")
	m.UID, n.UID = "1", "2"
	a := refOf(t, &table, m)
	if got := refOf(t, &table, n); got != a {
		t.Errorf("an equal Node has ref %x, want %x", got, a)
	}
	want, err := projection.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "a"}}})
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := table.Lookup(a); !ok {
		t.Error("the shared object is not found")
	} else if diff := cmp.Diff(want, o.Bytes()); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
	b := refOf(t, &table, node("n", "b"))
	if b.Slot() == a.Slot() {
		t.Errorf("the Node that changed has ref %x, in the slot of %x, which another Node has", b, a)
	}
	for _, zone := range []string{"a", "b", "a"} {
		want := map[string]abi.Ref{"a": a, "b": b}[zone]
		if got := refOf(t, &table, node("n", zone)); got != want {
			t.Errorf("back in zone %s it has ref %x, want %x", zone, got, want)
		}
	}
	p, err := table.Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}})
	if err != nil {
		t.Fatal(err)
	}
	if q, err := table.Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "q"}}); err != nil || q.Ref.Slot() == p.Ref.Slot() {
		t.Errorf("two Pods share the slot of %x (error %v)", p.Ref, err)
	}
	// With the name they are two again.
	project(t, &table, "node.metadata.labels[zone]")
	if a, b := refOf(t, &table, m), refOf(t, &table, n); a.Slot() == b.Slot() {
		t.Errorf("refs %x and %x of two Nodes with names", a, b)
	}
}

// TestContentsAreForgotten changes the only field that travels of a few Nodes again
// and again: what they no longer have must go.
func TestContentsAreForgotten(t *testing.T) {
	var table objects.Table
	project(t, &table, "node.metadata.labels[zone]", objects.NamelessNodes)
	refs := map[abi.Ref]string{}
	most := uint32(0)
	for i := range 20_000 {
		table.Advance()
		zone := fmt.Sprint(i / 4)
		ref := refOf(t, &table, node(fmt.Sprint("n", i%8), zone))
		if at, ok := refs[ref]; ok && at != zone {
			t.Fatalf("ref %x is of zone %s, and of zone %s before", ref, zone, at)
		}
		refs[ref] = zone
		most = max(most, ref.Slot())
	}
	if most > 1000 {
		t.Errorf("%d slots for 8 Nodes", most+1)
	}
}

// TestKindsDoNotMix holds that a Pod and a Node of one name are two objects.
func TestKindsDoNotMix(t *testing.T) {
	var table objects.Table
	n := refOf(t, &table, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	p, err := table.Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Ref.Slot() == n.Slot() {
		t.Errorf("refs %x and %x share a slot", p.Ref, n)
	}
}

func TestLookupOfNothing(t *testing.T) {
	var table objects.Table
	for _, ref := range []abi.Ref{0, abi.MakeRef(1, 0), abi.MakeRef(1, 1<<31), ^abi.Ref(0)} {
		if _, ok := table.Lookup(ref); ok {
			t.Errorf("ref %x is in an empty table", ref)
		}
	}
	refOf(t, &table, node("n", "a"))
	for _, ref := range []abi.Ref{0, abi.MakeRef(2, 0), abi.MakeRef(1, 1), abi.MakeRef(1, 1<<31), ^abi.Ref(0)} {
		if _, ok := table.Lookup(ref); ok {
			t.Errorf("ref %x is in a table of one object", ref)
		}
	}
}

// TestSlotsAreUsedAgain schedules many more Pods than there are at any time: the
// table must follow those in use.
func TestSlotsAreUsedAgain(t *testing.T) {
	var table objects.Table
	n := node("kept", "a")
	kept := refOf(t, &table, n)
	versions := map[uint32]uint32{}
	most := uint32(0)
	for i := range 20_000 {
		table.Advance()
		o, err := table.Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}})
		if err != nil {
			t.Fatal(err)
		}
		if last, ok := versions[o.Ref.Slot()]; ok && last == o.Ref.Version() {
			t.Fatalf("ref %x came twice", o.Ref)
		}
		versions[o.Ref.Slot()] = o.Ref.Version()
		most = max(most, o.Ref.Slot())
		if got := refOf(t, &table, n); got != kept {
			t.Fatalf("an object in use moved from %x to %x", kept, got)
		}
	}
	if most > 1000 {
		t.Errorf("%d slots for 128 Pods at a time", most+1)
	}
}

func TestTableDoesNotAllocate(t *testing.T) {
	var table objects.Table
	n, p := node("n", "a"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := table.Node(n); err != nil {
			t.Fatal(err)
		}
		if _, err := table.Pod(p); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for objects that were seen before, want 0", allocs)
	}
}

// TestTableHammer asks for changing objects from many goroutines; whatever ref
// comes back must lead to the bytes that went in. Run it with -race.
func TestTableHammer(t *testing.T) {
	for _, paths := range [][]string{nil, {"node.metadata.labels", "node.metadata.name", "-node.metadata"}, {"node.metadata.labels", "-node.metadata"}} {
		t.Run(strings.Join(paths, " "), func(t *testing.T) { hammer(t, paths) })
	}
}

func hammer(t *testing.T, paths []string) {
	var table objects.Table
	projection := project(t, &table, paths...)
	named := !projection.Nameless() || slices.Contains(paths, "node.metadata.name")
	var nodes []*corev1.Node
	for i := range 400 { // More than the table keeps without looking for room.
		for _, zone := range []string{"a", "b"} {
			nodes = append(nodes, node(fmt.Sprint("n", i), zone))
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(g)))
			for i := range 5000 {
				if i%10 == 0 {
					table.Advance()
				}
				n := nodes[r.IntN(len(nodes))]
				o, err := table.Node(n)
				if err != nil {
					t.Error(err)
					return
				}
				var got corev1.Node
				if err := got.Unmarshal(o.Bytes()); err != nil || named && got.Name != n.Name || got.Labels["zone"] != n.Labels["zone"] {
					t.Errorf("got %s in %s, want %s in %s (error %v)", got.Name, got.Labels["zone"], n.Name, n.Labels["zone"], err)
				}
				if o, ok := table.Lookup(o.Ref); ok && o.Ref.Version() == 0 {
					t.Error("version 0")
				}
			}
		})
	}
	wg.Wait()
}
