package objects_test

import (
	"fmt"
	"math/rand/v2"
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

// declared returns a Store for a guest that declares fields.
func declared(t testing.TB, paths ...string) *objects.Store {
	t.Helper()
	store := objects.NewStore()
	store.Declare(fieldSet(t, paths...))
	return store
}

func fieldSet(t testing.TB, paths ...string) *objects.FieldSet {
	t.Helper()
	fields, err := objects.ParseFieldSet(paths)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}

// TestVersionsOfWhatIsReadWhole holds when an object has another version of which the guest
// reads all.
func TestVersionsOfWhatIsReadWhole(t *testing.T) {
	store := objects.NewStore()
	n := node("n", "a")
	first := store.Node(n)
	first.Bytes()
	if first.Ref.Version() == 0 {
		t.Error("version 0 is no object")
	}
	if got := store.Node(n); got != first {
		t.Errorf("the same object: ref %x, want %x", got.Ref, first.Ref)
	}
	if got := store.Node(n.DeepCopy()); got != first {
		t.Errorf("an equal object: ref %x, want %x", got.Ref, first.Ref)
	}
	onlyManaged := n.DeepCopy()
	onlyManaged.ManagedFields = nil
	if got := store.Node(onlyManaged); got != first {
		t.Errorf("an object with other managedFields: ref %x, want %x", got.Ref, first.Ref)
	}
	moved := store.Node(node("n", "b")).Ref
	if moved.Slot() != first.Ref.Slot() || moved.Version() == first.Ref.Version() {
		t.Errorf("a changed object: ref %x after %x", moved, first.Ref)
	}
	if other := store.Node(node("m", "a")).Ref; other.Slot() == moved.Slot() {
		t.Errorf("another object: ref %x in the slot of %x", other, moved)
	}
	if _, ok := store.Lookup(first.Ref); ok {
		t.Error("the version before is still there")
	}
	o, ok := store.Lookup(moved)
	if !ok {
		t.Fatal("the current version is not there")
	}
	want, err := objects.Encode(node("n", "b"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, o.Bytes()); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

// TestVersionsFollowTheReadSet changes a field of a Node at a time and holds whether the Node
// has another version.
func TestVersionsFollowTheReadSet(t *testing.T) {
	type reads = func(o *objects.Object)
	spec := func(fields uint64) reads { return func(o *objects.Object) { o.AppendPart(nil, 2, fields) } }
	const unschedulable, taints = 1 << 4, 1 << 5
	entry := func(field uint32, key string) reads { return func(o *objects.Object) { o.Entry(field, key) } }
	all := map[string]func(n *corev1.Node){
		"label a":          func(n *corev1.Node) { n.Labels["a"] = "another" },
		"label b":          func(n *corev1.Node) { delete(n.Labels, "b") },
		"annotation a":     func(n *corev1.Node) { n.Annotations = map[string]string{"a": ""} },
		"resource version": func(n *corev1.Node) { n.ResourceVersion = "8" },
		"taints":           func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "k"}} },
		"unschedulable":    func(n *corev1.Node) { n.Spec.Unschedulable = true },
		"status":           func(n *corev1.Node) { n.Status.Phase = "Running" },
		"UID":              func(n *corev1.Node) { n.UID = "another" },
	}
	tests := map[string]struct {
		declared []string
		reads    []reads
		moves    []string
	}{
		"nothing":                     {nil, nil, []string{"UID"}},
		"some fields of the spec":     {nil, []reads{spec(taints)}, []string{"taints", "UID"}},
		"one field after the other":   {nil, []reads{spec(taints), spec(unschedulable)}, []string{"taints", "unschedulable", "UID"}},
		"a label and an annotation":   {nil, []reads{entry(11, "a"), entry(12, "a")}, []string{"label a", "annotation a", "UID"}},
		"an entry of no map":          {nil, []reads{entry(13, "a")}, []string{"UID"}},
		"all of it":                   {nil, []reads{func(o *objects.Object) { o.Bytes() }}, []string{"label a", "label b", "annotation a", "resource version", "taints", "unschedulable", "status", "UID"}},
		"the resource version":        {nil, []reads{func(o *objects.Object) { o.AppendPart(nil, 1, 1<<6) }}, []string{"resource version", "UID"}},
		"all that is declared":        {[]string{"node.metadata.labels[b]", "node.status"}, []reads{func(o *objects.Object) { o.Bytes() }}, []string{"label b", "status", "UID"}},
		"more than is declared":       {[]string{"node.status"}, []reads{spec(taints), func(o *objects.Object) { o.Bytes() }}, []string{"status", "UID"}},
		"a part of what is declared":  {[]string{"node.spec", "node.status"}, []reads{spec(taints)}, []string{"taints", "UID"}},
		"a field where Pods declared": {[]string{"pod.spec"}, []reads{spec(taints)}, []string{"taints", "UID"}},
		"a label of too many": {nil, []reads{func(o *objects.Object) {
			for i := range 17 {
				o.Entry(11, fmt.Sprint("label-", i))
			}
		}}, []string{"label a", "label b", "UID"}},
		"a label with a long key": {nil, []reads{entry(11, strings.Repeat("x", 513))}, []string{"label a", "label b", "UID"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for what, change := range all {
				store := declared(t, test.declared...)
				n := node("n", "a")
				first := store.Node(n)
				for _, read := range test.reads {
					read(first)
				}
				changed := n.DeepCopy()
				change(changed)
				want := false
				for _, moves := range test.moves {
					want = want || moves == what
				}
				if got := store.Node(changed).Ref != first.Ref; got != want {
					t.Errorf("%s: another version: %t, want %t", what, got, want)
				}
			}
		})
	}
}

// TestEqualRefsMeanEqualAnswers plays a guest that keeps by ref what it read, of random Nodes
// and of more and more of them: what it reads again must be the same, and that of the Node
// that it was last asked about.
func TestEqualRefsMeanEqualAnswers(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 13))
	random := func(i int) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i), Labels: map[string]string{}}}
		for _, key := range []string{"a", "b", "c"} {
			if r.IntN(2) == 0 {
				n.Labels[key] = fmt.Sprint(r.IntN(2))
			}
		}
		n.Spec.Unschedulable, n.Spec.PodCIDR = r.IntN(2) == 0, fmt.Sprint(r.IntN(2))
		return n
	}
	questions := map[string]func(o *objects.Object) string{
		"a":    func(o *objects.Object) string { v, ok := o.Entry(11, "a"); return fmt.Sprint(v, ok) },
		"b":    func(o *objects.Object) string { v, ok := o.Entry(11, "b"); return fmt.Sprint(v, ok) },
		"all":  func(o *objects.Object) string { return string(o.AppendPart(nil, 1, 1<<11)) },
		"CIDR": func(o *objects.Object) string { return string(o.AppendPart(nil, 2, 1<<1)) },
		"spec": func(o *objects.Object) string { return string(o.AppendPart(nil, 2, abi.AllFields)) },
	}
	names := []string{"CIDR", "a", "b", "spec", "all"}
	for range 30 {
		store := objects.NewStore()
		kept := map[abi.Ref]map[string]string{}
		nodes := make([]*corev1.Node, 5)
		for step := range 600 {
			i := r.IntN(len(nodes))
			if nodes[i] == nil || r.IntN(3) == 0 {
				nodes[i] = random(i)
			}
			o := store.Node(nodes[i])
			if kept[o.Ref] == nil {
				kept[o.Ref] = map[string]string{}
			}
			name := names[r.IntN(min(len(names), 1+step/100))]
			got := questions[name](o)
			if want := questions[name](objects.NewStore().Node(nodes[i])); got != want {
				t.Fatalf("step %d: %s is %q, want %q", step, name, got, want)
			}
			for name, before := range kept[o.Ref] {
				if now := questions[name](objects.NewStore().Node(nodes[i])); now != before {
					t.Fatalf("step %d: the Node has the ref %x, and %s was %q, is %q", step, o.Ref, name, before, now)
				}
			}
			kept[o.Ref][name] = got
		}
	}
}

// TestPartsAreThoseOfTheWhole compares what is encoded of an object in parts with the parts of
// the whole.
func TestPartsAreThoseOfTheWhole(t *testing.T) {
	n := node("n", "a")
	n.Namespace, n.Annotations = "ns", map[string]string{"a": "3"}
	n.Spec = corev1.NodeSpec{PodCIDR: "10.0.0.0/8", Unschedulable: true, Taints: []corev1.Taint{{Key: "k"}, {Key: "l", Value: "v"}}}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"i"}}}
	p := &corev1.Pod{ObjectMeta: n.ObjectMeta, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Image: "i"}}}}
	for _, paths := range [][]string{
		nil,
		{"node.metadata.labels", "node.spec.taints"},
		{"node.metadata.annotations", "node.metadata.labels[a]", "pod.metadata.labels"},
		{"pod.metadata", "node.metadata.labels", "node.status.allocatable"},
	} {
		// Stores that have seen another object, of which a guest has read something or nothing.
		store := func(reads bool) *objects.Store {
			s := declared(t, paths...)
			first := s.Node(node("first", "a"))
			s.Pod(&corev1.Pod{ObjectMeta: node("first", "a").ObjectMeta})
			if reads {
				first.AppendPart(nil, 2, 1<<5)
				first.AppendPart(nil, 1, 1<<11)
				first.Entry(12, "a")
			}
			return s
		}
		for kind, got := range map[string]*objects.Object{
			"Node": store(false).Node(n), "Pod": store(false).Pod(p), "Node after reads": store(true).Node(n),
		} {
			want := declared(t, paths...).Pod(p)
			if kind != "Pod" {
				want = declared(t, paths...).Node(n)
			}
			want = objects.FromBytes(want.Bytes())
			for part := range uint32(5) {
				for _, fields := range []uint64{1 << 3, 1 << 1, 1 << 5, 0, 1 << 11, abi.AllFields, 1<<1 | 1<<5, 1<<60 - 1<<5} {
					if diff := cmp.Diff(want.AppendPart([]byte("x"), part, fields), got.AppendPart([]byte("x"), part, fields)); diff != "" {
						t.Errorf("%s with %v: fields %x of part %d (-want +got):\n%s", kind, paths, fields, part, diff)
					}
				}
			}
			for _, field := range []uint32{11, 12, 1, 10, 13} {
				for _, key := range []string{"a", "b", "c", ""} {
					value, ok := got.Entry(field, key)
					if wantValue, wantOK := want.Entry(field, key); value != wantValue || ok != wantOK {
						t.Errorf("%s with %v: entry %q of field %d is %q, %t, want %q, %t", kind, paths, key, field, value, ok, wantValue, wantOK)
					}
				}
			}
		}
	}
}

// TestDeclareMovesEachVersion declares more, as another version of the guest does.
func TestDeclareMovesEachVersion(t *testing.T) {
	store := declared(t, "node.metadata.labels", "node.spec.taints")
	n := node("n", "a")
	first := store.Node(n)
	store.Declare(store.Declared().Union(fieldSet(t, "node.status.phase", "node.metadata.labels")))
	second := store.Node(n)
	if second.Ref == first.Ref || second.Ref.Slot() != first.Ref.Slot() {
		t.Errorf("with more fields the Node has the ref %x, before %x", second.Ref, first.Ref)
	}
	store.Declare(nil)
	third := store.Node(n)
	if third.Ref.Version() == second.Ref.Version() {
		t.Errorf("with all fields the Node has the ref %x, before %x", third.Ref, second.Ref)
	}
	if value, ok := third.Entry(11, "zone"); value != "a" || !ok {
		t.Errorf("the zone is %q, %t", value, ok)
	}
}

// TestDeclareWhileInUse declares other fields while others read. Run it with -race.
func TestDeclareWhileInUse(t *testing.T) {
	store := objects.NewStore()
	narrow := fieldSet(t, "node.metadata.labels")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 300 {
				n := node("n", "a")
				n.ResourceVersion = fmt.Sprint(i)
				if value, _ := store.Node(n).Entry(11, "zone"); value != "a" {
					t.Errorf("the zone is %q", value)
				}
				store.Node(n).AppendPart(nil, 1, 1<<6)
			}
		})
	}
	for i := range 100 {
		if i%2 == 0 {
			store.Declare(narrow)
		} else {
			store.Declare(nil)
		}
	}
	wg.Wait()
	store.Declare(narrow)
	nodes := narrow.Node()
	if diff := cmp.Diff(nodes.Append(nil, node("n", "a")), store.Node(node("n", "a")).Bytes()); diff != "" {
		t.Errorf("bytes (-want +got):\n%s", diff)
	}
}

// TestKindsDoNotMix holds that a Pod and a Node of one name are two objects.
func TestKindsDoNotMix(t *testing.T) {
	store := objects.NewStore()
	n := store.Node(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}).Ref
	p := store.Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}).Ref
	if p.Slot() == n.Slot() {
		t.Errorf("refs %x and %x share a slot", p, n)
	}
}

// TestTransientObjectsAreShownOnce holds that the object of an event has a ref of its own, by
// which it is not found.
func TestTransientObjectsAreShownOnce(t *testing.T) {
	store := objects.NewStore()
	refs := map[abi.Ref]bool{store.Node(node("n", "a")).Ref: true}
	for _, side := range []objects.EventSide{objects.OldEventObject, objects.NewEventObject, objects.NewEventObject} {
		o, err := store.Transient(side, &corev1.ConfigMap{Data: map[string]string{"k": "v"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := store.Lookup(o.Ref); ok || refs[o.Ref] {
			t.Errorf("ref %x is found: %t, and was given out: %t", o.Ref, ok, refs[o.Ref])
		}
		refs[o.Ref] = true
	}
	if _, err := store.Transient(objects.NewEventObject, &metav1.PartialObjectMetadata{}); err == nil {
		t.Skip("it has a protobuf encoding by now")
	}
}

// TestTransientObjectsAreEncodedOnce asks for the object of an event again and again. It must be
// the same as long as nothing can have changed, and have the bytes that the object has now.
func TestTransientObjectsAreEncodedOnce(t *testing.T) {
	store := objects.NewStore()
	n := node("n", "a")
	steps := []struct {
		does string
		do   func()
		same bool
	}{
		{"has another object", func() { n.ResourceVersion = "1" }, false},
		{"asks again", func() {}, true},
		{"reads another version into the same variable", func() { *n = *node("n", "b"); n.ResourceVersion = "2" }, false},
		{"reads an object of another life into it", func() { n.UID = "other" }, false},
		{"has an object without a version", func() { n.ResourceVersion = "" }, false},
		{"changes that in place", func() { n.Labels["zone"] = "c" }, false},
	}
	var last *objects.Object
	for _, step := range steps {
		step.do()
		o, err := store.Transient(objects.NewEventObject, n)
		if err != nil {
			t.Fatal(err)
		}
		if (o == last) != step.same {
			t.Errorf("%s: the same Object: %t", step.does, o == last)
		}
		want, err := objects.Encode(n)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, o.Bytes()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.does, diff)
		}
		if kind := o.Kind(); kind != "Node" {
			t.Errorf("%s: kind %q", step.does, kind)
		}
		last = o
	}
	// A guest that reads parts gets those of the bytes.
	for part := range uint32(4) {
		want := string(objects.FromBytes(last.Bytes()).AppendPart(nil, part, abi.AllFields))
		if got := string(last.AppendPart(nil, part, abi.AllFields)); got != want {
			t.Errorf("part %d: got %q, want %q", part, got, want)
		}
	}
	for _, key := range []string{"zone", "none"} {
		want, has := objects.FromBytes(last.Bytes()).Entry(objects.LabelsField, key)
		if got, ok := last.Entry(objects.LabelsField, key); got != want || ok != has {
			t.Errorf("label %s: got %q, %t, want %q, %t", key, got, ok, want, has)
		}
	}
}

func TestAnEmptyStoreHasNoRefs(t *testing.T) {
	store := objects.NewStore()
	for _, ref := range []abi.Ref{0, abi.MakeRef(1, 0), abi.MakeRef(1, 1<<31), ^abi.Ref(0)} {
		if _, ok := store.Lookup(ref); ok {
			t.Errorf("ref %x is in an empty Store", ref)
		}
	}
	store.Node(node("n", "a"))
	for _, ref := range []abi.Ref{0, abi.MakeRef(2, 0), abi.MakeRef(1, 1), abi.MakeRef(1, 1<<31), ^abi.Ref(0)} {
		if _, ok := store.Lookup(ref); ok {
			t.Errorf("ref %x is in a Store of one object", ref)
		}
	}
}

// TestSlotsAreUsedAgain schedules many more Pods than there are at any time: the
// Store must follow those in use.
func TestSlotsAreUsedAgain(t *testing.T) {
	store := objects.NewStore()
	n := node("kept", "a")
	kept := store.Node(n).Ref
	versions := map[uint32]uint32{}
	most := uint32(0)
	for i := range 20_000 {
		store.Advance()
		ref := store.Pod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}).Ref
		if last, ok := versions[ref.Slot()]; ok && last == ref.Version() {
			t.Fatalf("ref %x came twice", ref)
		}
		versions[ref.Slot()] = ref.Version()
		most = max(most, ref.Slot())
		if got := store.Node(n).Ref; got != kept {
			t.Fatalf("an object in use moved from %x to %x", kept, got)
		}
	}
	if most > 1000 {
		t.Errorf("%d slots for 128 Pods at a time", most+1)
	}
}

func TestStoreDoesNotAllocate(t *testing.T) {
	store := objects.NewStore()
	n, p := node("n", "a"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ResourceVersion: "1"}}
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := store.Transient(objects.NewEventObject, p); err != nil {
			t.Fatal(err)
		}
		store.Node(n)
		store.Node(n)
		store.Pod(p)
	})
	if allocs != 0 {
		t.Errorf("%v allocations for objects that were seen before, want 0", allocs)
	}
}

// TestStoreHammer asks for changing objects from many goroutines; whatever ref
// comes back must lead to the bytes that went in. Run it with -race.
func TestStoreHammer(t *testing.T) {
	for _, paths := range [][]string{nil, {"node.metadata.labels"}} {
		t.Run(strings.Join(paths, " "), func(t *testing.T) { hammer(t, paths) })
	}
}

func hammer(t *testing.T, paths []string) {
	store := declared(t, paths...)
	store.Node(node("n0", "a")).Bytes() // So that two Nodes that differ are two versions.
	var nodes []*corev1.Node
	for i := range 400 { // More than the Store keeps without looking for room.
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
					store.Advance()
				}
				n := nodes[r.IntN(len(nodes))]
				o := store.Node(n)
				var got corev1.Node
				if err := got.Unmarshal(o.Bytes()); err != nil || got.Name != n.Name || got.Labels["zone"] != n.Labels["zone"] {
					t.Errorf("got %s in %s, want %s in %s (error %v)", got.Name, got.Labels["zone"], n.Name, n.Labels["zone"], err)
				}
				if o, ok := store.Lookup(o.Ref); ok && o.Ref.Version() == 0 {
					t.Error("version 0")
				}
			}
		})
	}
	wg.Wait()
}
