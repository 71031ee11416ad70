package admission

import (
	"iter"

	"github.com/kubewasm/kubewasm/guest/internal/lookup"
)

// Get returns an object of the cluster as of reads it, and whether there is one:
//
//	claim, ok := admission.Get(core.PersistentVolumeClaimFromJSON, "v1/persistentvolumeclaims", "shop", "data")
//
// of is the function FromJSON of a view, including one that kubewasm gen has made for a custom
// resource, or any other function that reads JSON. The resource is named as in the plugin's
// configuration, which must name it; namespace is empty for objects without one.
//
// The host answers from its cache, which may be some moments old. It does not have an
// object that the request creates; one that the request changes is in its old state. Within
// a call all answers of one resource and namespace of the configuration are of the same
// moment. If the configuration does not name the resource, or the host's cache is not
// filled yet, the plugin fails: Get does not return.
//
// Natively the only objects are those of a kit.
func Get[V any](of func(json []byte) V, resource, namespace, name string) (object V, ok bool) {
	return lookup.View(of, resource, namespace, name)
}

// List returns the objects of a resource in a namespace, or in all if it is empty, sorted
// by namespace and name:
//
//	for ingress := range admission.List(networking.IngressFromJSON, "networking.k8s.io/v1/ingresses", "", "") {
//		if ingress.Metadata().Namespace() != req.Namespace() { … }
//	}
//
// selector chooses among them by labels, as kubectl's -l does: "app=web,tier in (a, b)";
// empty chooses all. Otherwise List behaves as [Get].
//
// They come from the host a page at a time. A view is valid in its iteration of the loop
// only, since the next one uses its memory: to read an earlier one panics. Strings of
// views may be kept. So a long list needs little memory, and fuel only for the fields
// that are read. With func(b []byte) []byte { return b } as of, List returns the bytes of
// the objects, which may be kept and viewed at any time.
func List[V any](of func(json []byte) V, resource, namespace, selector string) iter.Seq[V] {
	return lookup.Views(of, resource, namespace, selector)
}
