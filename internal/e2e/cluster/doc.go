// Package cluster runs a real control plane for tests: etcd and kube-apiserver
// on loopback, built from their Go modules, and schedulers beside them.
//
// The first build takes five minutes on two cores, every other one seconds. A
// control plane is up in about three seconds and gone with the test.
package cluster
