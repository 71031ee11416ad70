package hooks

import "github.com/kubewasm/kubewasm/guest/internal/lookup"

// Get returns the object of a resource that has the name of the node as of reads it, and
// whether there is one:
//
//	slo, ok := hooks.Get(NodeSLOFromJSON, "slo.koordinator.sh/v1alpha1/nodeslos", req.Node().Name())
//
// of is the function FromJSON of a view, such as one that kubewasm gen has made for a custom
// resource, or any other that reads JSON. The resource is named as in the plugin's
// configuration, which must name it.
//
// The host answers from its watch, which may be some moments old, and asks the plugin anew when
// the object has changed. If the configuration does not name the resource, the name is not that
// of the node, or the host does not know the object yet, the plugin fails: Get does not return.
//
// Natively the only objects are those of a kit.
func Get[V any](of func(json []byte) V, resource, name string) (object V, ok bool) {
	return lookup.View(of, resource, "", name)
}
