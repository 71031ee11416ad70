package objects_test

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
	"unsafe"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/internal/codec"
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
	first := refOf(t, deployments, unsafe.Pointer(deployment))
	first.AppendPart(nil, 2, 1<<1) // replicas
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
	if allocs := testing.AllocsPerRun(100, func() { refOf(t, maps, unsafe.Pointer(changed)) }); allocs != 0 {
		t.Errorf("%v allocations for a pointer that was seen before, want 0", allocs)
	}
	if objects.IsObject(reflect.TypeFor[corev1.PodTemplateSpec]()) || objects.IsObject(reflect.TypeFor[corev1.PodList]()) || !objects.IsObject(reflect.TypeFor[corev1.Pod]()) {
		t.Error("what is an object is not what has metadata and can be copied")
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
	fields, _ := codec.EncoderOf(reflect.TypeFor[T]())
	return store.Kind(reflect.TypeFor[T](), fields)
}
