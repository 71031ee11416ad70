package admission

import (
	"iter"

	"github.com/kubewasm/kubewasm/guest/internal/lookup"
	"github.com/kubewasm/kubewasm/guest/view"
)

// Get returns an object of the cluster as of reads it, and whether there is one:
//
//	claim, ok := admission.Get(core.PersistentVolumeClaimFromJSON, "v1/persistentvolumeclaims", "shop", "data")
//
// of is the function FromJSON of a view, also of one that kubewasm gen has made for a
// custom resource, or any other that reads JSON. The resource is named as in the plugin's
// configuration, which must name it; namespace is empty for objects that have none.
//
// The host answers from what it is told of changes, which may be some moments old. The
// object that a request creates is not among them, and one that it changes is there as it
// was. Within a call all answers are of one moment, for each resource and namespace that the
// configuration names. What the configuration does not name, or the host does not know yet,
// is a failure of the plugin: Get does not return.
//
// Natively there are no objects but those of package guesttest.
func Get[V any](of func(json []byte) V, resource, namespace, name string) (object V, ok bool) {
	b := lookup.Get(resource, namespace, name)
	if b == nil {
		return object, false
	}
	return of(b), true
}

// List returns the objects of a resource in a namespace, or in all if it is empty, sorted
// by namespace and name:
//
//	for ingress := range admission.List(networking.IngressFromJSON, "networking.k8s.io/v1/ingresses", "", "") {
//		if ingress.Metadata().Namespace() != req.Namespace() { … }
//	}
//
// Of them it returns those that selector chooses by their labels, written as for kubectl's
// -l: "app=web,tier in (a, b)"; all if it is empty. Otherwise it is as [Get].
//
// They come from the host a page at a time, and a view is for its turn of the loop, in
// whose memory the next one's lie: to read an earlier one panics. Strings of views may be
// kept. So a long list needs little memory, and fuel for what is read of it. A function
// that returns the bytes, func(b []byte) []byte { return b }, lists what can be kept, and
// viewed as often as one likes.
func List[V any](of func(json []byte) V, resource, namespace, selector string) iter.Seq[V] {
	return func(yield func(V) bool) {
		var slot view.Slot
		defer slot.Close()
		for b := range lookup.List(resource, namespace, selector) {
			slot.Put(b)
			if !yield(of(b)) {
				return
			}
		}
	}
}
