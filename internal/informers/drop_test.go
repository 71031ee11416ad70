package informers

import (
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// TestSizeOfObjectsThatAreDropped holds that objects count for the limit no longer than they are in
// memory: a watch that breaks in its initial list, and several versions of an object in one, cause no
// event.
func TestSizeOfObjectsThatAreDropped(t *testing.T) {
	r := &Resource[*objects.Kept]{cache: New(t.Context(), Config[*objects.Kept]{Keep: objects.Keep, Limit: 1 << 20})}
	for range 10 {
		o, err := r.keep(&unstructured.Unstructured{Object: map[string]any{"kind": "Widget", "metadata": map[string]any{"name": "a"}}})
		if err != nil || o.(*item[*objects.Kept]).missing {
			t.Fatalf("%v, error %v", o, err)
		}
	}
	for range 10_000 {
		if r.size.Load() == 0 {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Errorf("%d bytes are counted, want 0", r.size.Load())
}
