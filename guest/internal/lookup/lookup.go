// Package lookup looks objects up by the host functions get_object and
// list_objects, see abi/SPEC.md, section 6.
package lookup

import (
	"iter"

	"github.com/kubewasm/kubewasm/guest/internal/wire"
	"github.com/kubewasm/kubewasm/guest/view"
)

// Get returns an object in the host's encoding, nil if there is none. The bytes may be kept.
func Get(resource, namespace, name string) []byte {
	b := hostGet(resource + "\x00" + namespace + "\x00" + name)
	if len(b) == 0 {
		return nil
	}
	return fresh(b)
}

// List returns the objects of a resource that a label selector chooses, in a namespace,
// sorted by namespace and name. An empty selector chooses all objects, an empty namespace
// means all namespaces. They come from the host page by page. Their bytes may be kept.
func List(resource, namespace, selector string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		question, after, more := resource+"\x00"+namespace+"\x00"+selector+"\x00", "", true
		for more {
			page := fresh(hostList(question + after))
			more = false
			for r := wire.NewReader(page); r.Next(); {
				switch r.Field {
				case 1:
					if !yield(r.Bytes()) {
						return
					}
				case 2:
					after, more = r.String(), true
				}
			}
		}
	}
}

// View returns an object as of reads it, and whether there is one.
func View[V any](of func([]byte) V, resource, namespace, name string) (object V, ok bool) {
	b := Get(resource, namespace, name)
	if b == nil {
		return object, false
	}
	return of(b), true
}

// Views returns the objects of List as of reads them. Each is valid until the next.
func Views[V any](of func([]byte) V, resource, namespace, selector string) iter.Seq[V] {
	return func(yield func(V) bool) {
		var slot view.Slot
		defer slot.Close()
		for b := range List(resource, namespace, selector) {
			slot.Put(b, nil)
			if !yield(of(b)) {
				return
			}
		}
	}
}
