package service

import (
	"iter"

	"github.com/kubewasm/kubewasm/guest/internal/lookup"
)

// GetObject returns an object of the cluster, or a value of metrics, as of reads its JSON, and whether
// there is one:
//
//	node, ok := service.GetObject(core.NodeFromJSON, "v1/nodes", "", pod.Spec().NodeName())
//
// of, the names, and the failures are those of Get of package admission. A method may call it. Within
// a call all answers of one resource and namespace of the configuration are of the same moment.
//
// Natively the only objects are those of package servicetest.
func GetObject[V any](of func(json []byte) V, resource, namespace, name string) (object V, ok bool) {
	return lookup.View(of, resource, namespace, name)
}

// ListObjects returns the objects of a resource in a namespace, or in all if it is empty, sorted by
// namespace and name. selector chooses among them by labels: "app=web,tier in (a, b)"; empty chooses
// all. They come from the host a page at a time: a view is valid in its iteration of the loop only.
func ListObjects[V any](of func(json []byte) V, resource, namespace, selector string) iter.Seq[V] {
	return lookup.Views(of, resource, namespace, selector)
}
