// Package declared runs the controller and two webhooks beside a real API server, whose policies are
// objects of the cluster.
package declared
