// Package nodewatch follows the Node of a node agent at the API server: one Node by one
// watch, which does not grow with the cluster.
//
// A [Watch] tells an engine that was made with Node set:
//
//	watch, err := nodewatch.New(nodewatch.Config{Name: os.Getenv("NODE_NAME"), Set: engine.SetNode})
//	if err != nil { … }
//	go watch.Run(ctx)
//	watch.Wait(ctx) // So that the first requests know the node.
//
// It follows other objects that have the name of the node by a watch for each of their
// resources, for the grants of hooks.
//
// While the API server does not answer, what it told last stands. The service account needs
// the verbs list and watch for nodes.
package nodewatch
