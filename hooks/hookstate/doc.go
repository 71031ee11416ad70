// Package hookstate answers why a container is throttled: which plugin has set which field of a
// pod or a container since when, what the kubelet asks for, what is in force in the cgroup, and
// what is left alone and why.
//
// A [Source] reads it from the parts of an agent, and is a handler of HTTP:
//
//	source, err := hookstate.New(hookstate.Config{Engine: engine, State: state, Enforcer: enforcer})
//	mux.Handle("GET /state", source)
//
// A GET without parameters is about the node, with namespace, pod or container about those of
// that name. The answer is a [Node] in JSON. It has names of pods and no value of an environment
// variable, an annotation, a mount or a device; serve it to those who may list the pods of the
// node.
package hookstate
