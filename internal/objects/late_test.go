package objects

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
)

// TestPartsAreThoseOfTheWhole compares what is encoded when somebody asks for it with
// what is encoded at once.
func TestPartsAreThoseOfTheWhole(t *testing.T) {
	for _, paths := range [][]string{
		nil,
		{"node.metadata.labels", "node.spec.taints"},
		{"node.metadata.annotations", "node.metadata.labels[a]", "pod.metadata.labels"},
		{"pod.metadata", "node.metadata.labels", "node.status.allocatable"},
	} {
		p := projection(t, paths...)
		for seed := range int64(30) {
			var node corev1.Node
			var pod corev1.Pod
			filler(seed).Fill(&node)
			filler(seed + 100).Fill(&pod)
			node.Labels, pod.Annotations = map[string]string{"a": "1", "b": ""}, map[string]string{"a": "2"}
			var atOnce, late Table
			atOnce.Project(p, false)
			late.Project(p, true)
			for _, get := range []func(*Table) (*Object, error){
				func(t *Table) (*Object, error) { return t.Node(&node) },
				func(t *Table) (*Object, error) { return t.Pod(&pod) },
			} {
				want, err := get(&atOnce)
				if err != nil {
					t.Fatal(err)
				}
				got, err := get(&late)
				if err != nil {
					t.Fatal(err)
				}
				comparePartsOf(t, fmt.Sprintf("%v, seed %d", p, seed), want, got)
			}
		}
	}
}

func comparePartsOf(t *testing.T, name string, want, got *Object) {
	t.Helper()
	if want.Late() {
		t.Fatalf("%s: an object that was to be encoded at once was not", name)
	}
	part := func(o *Object, n uint32) []byte {
		b, err := o.AppendPart([]byte("x"), n, abi.AllFields)
		if err != nil {
			t.Fatal(err)
		}
		return b[1:]
	}
	for n := range uint32(5) {
		if !bytes.Equal(part(want, n), part(got, n)) {
			t.Errorf("%s: part %d is %q, want %q", name, n, part(got, n), part(want, n))
		}
		if whole := lastField(got.Bytes(), protowire.Number(n)); !bytes.Equal(whole, part(got, n)) {
			t.Errorf("%s: part %d is %q, in the whole %q", name, n, part(got, n), whole)
		}
	}
	for n := range uint32(5) {
		for _, fields := range []uint64{0, 1 << LabelsField, 1<<1 | 1<<5, 1<<60 - 1<<5} {
			masked, err := got.AppendPart([]byte("x"), n, fields)
			if err != nil {
				t.Fatal(err)
			}
			if of, err := want.AppendPart([]byte("x"), n, fields); err != nil || !bytes.Equal(of, masked) {
				t.Errorf("%s: fields %x of part %d are %q, want %q, %v", name, fields, n, masked, of, err)
			}
			eachNumber(masked[1:], func(number protowire.Number) {
				if fields>>number&1 == 0 {
					t.Errorf("%s: part %d has field %d, which is not among %x", name, n, number, fields)
				}
			})
		}
	}
	for _, field := range []uint32{LabelsField, AnnotationsField, 1, 10, 13} {
		for _, key := range []string{"a", "b", "c", ""} {
			value, ok := got.Entry(field, key)
			if wantValue, wantOK := want.Entry(field, key); value != wantValue || ok != wantOK {
				t.Errorf("%s: entry %q of field %d is %q, %t, want %q, %t", name, key, field, value, ok, wantValue, wantOK)
			}
		}
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%s: the whole is %q, want %q", name, got.Bytes(), want.Bytes())
	}
}

func eachNumber(b []byte, f func(protowire.Number)) {
	for len(b) > 0 {
		number, _, n := protowire.ConsumeField(b)
		if n < 0 {
			return
		}
		f(number)
		b = b[n:]
	}
}

// TestEqualIsEqualBytes compares objects of which some field differs, or none.
func TestEqualIsEqualBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	all := leaves("node", kinds["node"], 6)
	var equal, unequal int
	for seed := range int64(400) {
		var a, other corev1.Node
		filler(seed % 40).NilChance(0.2).Fill(&a)
		filler(seed%40 + 50).NilChance(0.2).Fill(&other)
		b := a.DeepCopy()
		// Some parts are another Node's.
		for _, change := range []func(){
			func() { b.Labels = other.Labels }, func() { b.Annotations = other.Annotations }, func() { b.Spec.Taints = other.Spec.Taints },
			func() { b.Status.Conditions = other.Status.Conditions }, func() { b.Status.Allocatable = other.Status.Allocatable },
			func() { b.Spec.Unschedulable = !b.Spec.Unschedulable }, func() { b.Status.Images = slices.Clip(b.Status.Images)[:len(b.Status.Images)/2] },
			func() { b.CreationTimestamp = other.CreationTimestamp }, func() { b.DeletionGracePeriodSeconds = other.DeletionGracePeriodSeconds },
			func() { b.Labels = map[string]string{} }, func() { b.Spec.Taints = append([]corev1.Taint{}, b.Spec.Taints...) },
		} {
			if seed > 20 && r.IntN(6) == 0 {
				change()
			}
		}
		paths := make([]string, r.IntN(6))
		for i := range paths {
			paths[i] = all[r.IntN(len(all))]
		}
		p := projection(t, paths...).orEverything()
		x, err := p.Node(&a)
		if err != nil {
			t.Fatal(err)
		}
		y, err := p.Node(b)
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Equal(x, y)
		if got := p.node.equal(unsafe.Pointer(&a), unsafe.Pointer(b)); got != want {
			t.Fatalf("seed %d, %v: equal is %t, and the bytes differ:\n%s", seed, p, got, cmp.Diff(x, y))
		}
		if want {
			equal++
		} else {
			unequal++
		}
	}
	if equal < 20 || unequal < 20 {
		t.Errorf("%d were equal and %d not", equal, unequal)
	}
}

// TestVersionsOfWhatIsEncodedLate holds when an object that nobody encoded has another
// version, and that the object of before is not kept.
func TestVersionsOfWhatIsEncodedLate(t *testing.T) {
	var table Table
	ref := func(n *corev1.Node) *Object {
		t.Helper()
		o, err := table.Node(n)
		if err != nil {
			t.Fatal(err)
		}
		if found, ok := table.Lookup(o.Ref); !ok || found != o {
			t.Fatalf("%x is not found", o.Ref)
		}
		return o
	}
	table.Project(projection(t, "node.metadata.labels", "node.spec.taints"), true)
	node := largeNode()
	first := ref(node)
	if !first.Late() {
		t.Fatal("labels are encoded at once")
	}
	beating := heartbeat(node)
	if o := ref(beating); o != first || o.source.node.Load() != beating {
		t.Errorf("after a heartbeat the Node has the ref %x, want %x, of the last one", o.Ref, first.Ref)
	}
	labelled := beating.DeepCopy()
	labelled.Labels["example.com/a"] = "another"
	second := ref(labelled)
	if second.Ref.Slot() != first.Ref.Slot() || second.Ref.Version() == first.Ref.Version() {
		t.Errorf("with another label the Node has the ref %x, before %x", second.Ref, first.Ref)
	}
	if value, _ := second.Entry(LabelsField, "example.com/a"); value != "another" {
		t.Errorf("the label is %q", value)
	}

	// Without a projection each pointer is another version, and what equal Nodes share is
	// encoded at once.
	table.Project(nil, true)
	if a, b := ref(labelled), ref(labelled.DeepCopy()); a.Ref == b.Ref || a.Ref == second.Ref {
		t.Errorf("refs %x, %x and %x are the same", second.Ref, a.Ref, b.Ref)
	}
	for _, paths := range [][]string{{NamelessNodes, "node.metadata.labels"}, {NamelessNodes, "node.metadata.labels[a]"}} {
		table.Project(projection(t, paths...), true)
		if ref(labelled).Late() {
			t.Errorf("%v are encoded when somebody asks", paths)
		}
	}
}

// TestForgottenWhileItIsCompared holds what becomes of a Node whose version before was
// found to be the same, and is forgotten before that is noted.
func TestForgottenWhileItIsCompared(t *testing.T) {
	var table Table
	table.Project(projection(t, "node.metadata.labels"), true)
	labels := map[string]string{"zone": "a"}
	before, after := &corev1.Node{}, &corev1.Node{}
	before.Name, before.Labels, after.Name, after.Labels = "n", labels, "n", labels
	o, err := table.Node(before)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * epochsKept {
		table.Advance()
	}
	sweep(&table, &table.nodes)
	if got := update(&table, &table.nodes, arrival[string, corev1.Node]{name: "n", of: after, from: origin{node: after}}, nil, o, table.Projection(), false); got != nil {
		t.Errorf("a version that is gone was used")
	}
	got, err := table.Node(after)
	if err != nil {
		t.Fatal(err)
	}
	if value, ok := got.Entry(LabelsField, "zone"); value != "a" || !ok || got == o {
		t.Errorf("the new version has the zone %q, %t", value, ok)
	}
}
