// Package nodewatch follows the Node of a node agent at the API server: one watch for one Node, at
// a cost independent of the size of the cluster.
//
// A [Watch] passes the node to an engine with Node set:
//
//	watch, err := nodewatch.New(nodewatch.Config{Name: os.Getenv("NODE_NAME"), Set: engine.SetNode})
//	if err != nil { … }
//	go watch.Run(ctx)
//	watch.Wait(ctx) // So that the first requests have the node.
//
// It follows other objects with the name of the node by a watch for each resource, for the grants
// of hooks.
//
// While the API server does not answer, its last state is used. The service account needs the verbs
// list and watch for nodes.
package nodewatch
