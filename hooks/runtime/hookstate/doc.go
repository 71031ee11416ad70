// Package hookstate shows why a container is throttled. It reports the plugin that has set each
// field of a pod or a container and since when, the value requested by the kubelet, the value in
// force in the cgroup, and the files left alone with the reason.
//
// A [Source] reads the state from the parts of an agent, and is an HTTP handler:
//
//	source, err := hookstate.New(hookstate.Config{Engine: engine, State: state, Enforcer: enforcer})
//	mux.Handle("GET /state", source)
//
// A GET without parameters returns the whole node; the parameters namespace, pod and container
// select those of that name. The answer is a [Node] in JSON. It contains names of pods, but no
// value of an environment variable, an annotation, a mount or a device. Serve it to users who may
// list the pods of the node.
package hookstate
