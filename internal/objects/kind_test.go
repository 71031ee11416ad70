package objects_test

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unsafe"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// refOf returns the ref of an object of any type.
func refOf(t testing.TB, k *objects.Kind, p unsafe.Pointer) *objects.Object {
	t.Helper()
	o, err := k.Object(p)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestVersionsOfObjectsOfAnyType(t *testing.T) {
	store := objects.NewStore()
	deployments := kindOf[appsv1.Deployment](store)
	maps := kindOf[corev1.ConfigMap](store)
	crates := kindOf[unstructured.Unstructured](store)
	meta := metav1.ObjectMeta{Name: "x", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}

	deployment := &appsv1.Deployment{ObjectMeta: meta}
	refOf(t, deployments, unsafe.Pointer(deployment)).AppendPart(nil, 2, 1<<1) // replicas
	first := refOf(t, deployments, unsafe.Pointer(deployment))
	other := deployment.DeepCopy()
	other.Status.ReadyReplicas = 3
	if got := refOf(t, deployments, unsafe.Pointer(other)); got != first {
		t.Error("a field that nobody has read moves the version")
	}
	replicas := int32(2)
	other = other.DeepCopy()
	other.Spec.Replicas = &replicas
	if got := refOf(t, deployments, unsafe.Pointer(other)); got == first || got.Ref.Slot() != first.Ref.Slot() {
		t.Errorf("a field that was read: ref %x after %x", got.Ref, first.Ref)
	}

	config := &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": "v"}}
	one := refOf(t, maps, unsafe.Pointer(config))
	if got := refOf(t, maps, unsafe.Pointer(config.DeepCopy())); got != one {
		t.Error("an equal ConfigMap has another version")
	}
	changed := config.DeepCopy()
	changed.Data["k"] = "w"
	two := refOf(t, maps, unsafe.Pointer(changed))
	if two.Ref == one.Ref || string(two.Bytes()) == string(one.Bytes()) {
		t.Error("another ConfigMap has the same version")
	}

	crate := &unstructured.Unstructured{Object: map[string]any{"kind": "Crate", "metadata": map[string]any{"name": "x", "managedFields": []any{map[string]any{"manager": "m"}}}}}
	if got := string(refOf(t, crates, unsafe.Pointer(crate)).Bytes()); got != `{"kind":"Crate","metadata":{"name":"x"}}`+"\n" && got != `{"kind":"Crate","metadata":{"name":"x"}}` {
		t.Errorf("a custom resource is %s", got)
	}
	if len(crate.GetManagedFields()) != 1 {
		t.Error("the object was changed")
	}
	if got := map[uint32]bool{first.Ref.Slot(): true, one.Ref.Slot(): true, refOf(t, crates, unsafe.Pointer(crate)).Ref.Slot(): true}; len(got) != 3 {
		t.Errorf("objects of one name and several types share slots: %v", got)
	}
	if o, ok := store.Lookup(two.Ref); !ok || o != two {
		t.Error("the version is not found by its ref")
	}
	changed.ResourceVersion = "1"
	refOf(t, maps, unsafe.Pointer(changed))
	for name, of := range map[string]func(){
		"a pointer and a version that were seen before": func() { refOf(t, maps, unsafe.Pointer(changed)) },
		"an object by parts that has no version":        func() { refOf(t, deployments, unsafe.Pointer(deployment)) },
	} {
		if allocs := testing.AllocsPerRun(100, of); allocs != 0 {
			t.Errorf("%v allocations for %s, want 0", allocs, name)
		}
	}
	if objects.IsObject(reflect.TypeFor[corev1.PodTemplateSpec]()) || objects.IsObject(reflect.TypeFor[corev1.PodList]()) || !objects.IsObject(reflect.TypeFor[corev1.Pod]()) {
		t.Error("what is an object is not what has metadata and can be copied")
	}
}

// TestObjectsAreReadAgainIntoOneVariable does what a controller does that reads objects into a
// variable, and asks a plugin about each. What the plugin is shown must be what is there.
func TestObjectsAreReadAgainIntoOneVariable(t *testing.T) {
	store := objects.NewStore()
	pods, maps := kindOf[corev1.Pod](store), kindOf[corev1.ConfigMap](store)
	var pod corev1.Pod
	var config corev1.ConfigMap
	refs := map[abi.Ref]string{}
	// same holds that the ref has only ever meant this.
	same := func(what string, ref abi.Ref, is string) {
		t.Helper()
		if was, ok := refs[ref]; ok && was != is {
			t.Errorf("%s: the ref %x means %q, and meant %q", what, ref, is, was)
		}
		refs[ref] = is
	}
	for n, step := range []struct{ what, name, uid, version, zone string }{
		{"the first", "a", "1", "1", "x"},
		{"another version", "a", "1", "2", "y"},
		{"an earlier version, from a cache", "a", "1", "1", "x"},
		{"another object of the name", "a", "2", "2", "z"},
		{"an object of another name", "b", "3", "3", "x"},
		{"the first name again", "a", "2", "2", "z"},
		{"no version", "a", "2", "", "x"},
		{"no version, changed in place", "a", "2", "", "y"},
		{"nothing but a name", "a", "", "", "z"},
		{"a version again", "a", "2", "9", "x"},
	} {
		meta := metav1.ObjectMeta{Name: step.name, UID: types.UID(step.uid), ResourceVersion: step.version, Labels: map[string]string{"zone": step.zone}}
		pod, config = corev1.Pod{ObjectMeta: meta}, corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"zone": step.zone}}
		for range 2 {
			p := refOf(t, pods, unsafe.Pointer(&pod))
			zone, _ := p.At(unsafe.Pointer(&pod)).Entry(objects.LabelsField, "zone")
			if zone != step.zone {
				t.Errorf("step %d, %s: the Pod is in zone %q, want %q", n, step.what, zone, step.zone)
			}
			same(step.what, p.Ref, step.name+step.zone)
			c := refOf(t, maps, unsafe.Pointer(&config))
			same(step.what, c.Ref, string(c.At(unsafe.Pointer(&config)).Bytes()))
			want, err := objects.Encode(&config)
			if err != nil {
				t.Fatal(err)
			}
			if got := c.At(unsafe.Pointer(&config)).Bytes(); string(got) != string(want) {
				t.Errorf("step %d, %s: the ConfigMap is %q, want %q", n, step.what, got, want)
			}
		}
	}
}

// TestCallsReadTheirOwnObjects has two calls pass equal objects, of which the one is changed as soon as
// its call has ended.
func TestCallsReadTheirOwnObjects(t *testing.T) {
	pods := kindOf[corev1.Pod](objects.NewStore())
	one := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	other := one.DeepCopy()
	first := refOf(t, pods, unsafe.Pointer(one))
	if refOf(t, pods, unsafe.Pointer(other)) != first {
		t.Fatal("equal objects have two versions")
	}
	other.Spec.NodeName = "n2"
	reading := first.At(unsafe.Pointer(one))
	const nodeName = 1 << 10
	for what, got := range map[string]string{"a part": string(reading.AppendPart(nil, 2, nodeName)), "the whole": string(reading.Bytes())} {
		if !strings.Contains(got, "n1") || strings.Contains(got, "n2") {
			t.Errorf("%s: got %q, want the node n1", what, got)
		}
	}
	if refOf(t, pods, unsafe.Pointer(other)) == first {
		t.Error("what the guest has read of the one is the version of the other")
	}
}

// TestObjectsThatWereReadIntoOneVariableAreForgotten passes many objects by one pointer.
func TestObjectsThatWereReadIntoOneVariableAreForgotten(t *testing.T) {
	store := objects.NewStore()
	pods, maps := kindOf[corev1.Pod](store), kindOf[corev1.ConfigMap](store)
	var pod corev1.Pod
	var config corev1.ConfigMap
	highest := uint32(0)
	for i := range 20_000 {
		store.Advance()
		pod.Name, pod.UID, pod.ResourceVersion = fmt.Sprint("p", i), types.UID(fmt.Sprint(i)), fmt.Sprint(i)
		config.ObjectMeta = pod.ObjectMeta
		highest = max(highest, refOf(t, pods, unsafe.Pointer(&pod)).Ref.Slot(), refOf(t, maps, unsafe.Pointer(&config)).Ref.Slot())
	}
	if highest > 2000 {
		t.Errorf("slot %d is in use for 2 objects at a time", highest)
	}
}

// TestChangesAreDetected holds that a Store that detects changes panics at one which it would not see.
func TestChangesAreDetected(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		panics bool
	}{
		"a label":                    {func(p *corev1.Pod) { p.Labels["zone"] = "b" }, true},
		"a field that nobody reads":  {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, true},
		"nothing":                    {func(*corev1.Pod) {}, false},
		"a label and the version":    {func(p *corev1.Pod) { p.Labels["zone"], p.ResourceVersion = "b", "2" }, false},
		"a label, without a version": {func(p *corev1.Pod) { p.Labels["zone"], p.ResourceVersion = "b", "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			pods := kindOf[corev1.Pod](objects.NewDetectingStore())
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "shop", ResourceVersion: "1", Labels: map[string]string{"zone": "a"}}}
			refOf(t, pods, unsafe.Pointer(pod))
			test.change(pod)
			defer func() {
				if r := recover(); (r != nil) != test.panics || test.panics && !strings.Contains(fmt.Sprint(r), "the Pod shop/p was changed") {
					t.Errorf("got %v, want a panic: %t", r, test.panics)
				}
			}()
			refOf(t, pods, unsafe.Pointer(pod))
		})
	}
}

// TestObjectsOfAnyTypeAreForgotten passes many more objects than there are at any time, from
// several goroutines. Run it with -race.
func TestObjectsOfAnyTypeAreForgotten(t *testing.T) {
	store := objects.NewStore()
	maps, pods := kindOf[corev1.ConfigMap](store), kindOf[corev1.Pod](store)
	var mu sync.Mutex
	most := uint32(0)
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := range 4000 {
				store.Advance()
				meta := metav1.ObjectMeta{Name: fmt.Sprint(g, "-", i)}
				var refs []abi.Ref
				for _, o := range []*objects.Object{
					refOf(t, maps, unsafe.Pointer(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"n": meta.Name}})),
					refOf(t, pods, unsafe.Pointer(&corev1.Pod{ObjectMeta: meta})),
				} {
					refs = append(refs, o.Ref)
					if len(o.Bytes()) == 0 {
						t.Error("no bytes")
					}
				}
				mu.Lock()
				most = max(most, refs[0].Slot(), refs[1].Slot())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if most > 4000 {
		t.Errorf("%d slots for some hundred objects at a time", most+1)
	}
}

// kindOf returns the objects of a type with all of their fields.
func kindOf[T any](store *objects.Store) *objects.Kind {
	fields, _ := objects.EncoderOf(reflect.TypeFor[T]())
	return store.Kind(reflect.TypeFor[T](), fields)
}
