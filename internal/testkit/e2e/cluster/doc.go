// Package cluster runs a real control plane for tests: etcd and kube-apiserver
// on loopback, built from their Go modules in the version of the minor that is
// tested, and schedulers beside them.
//
// The first build of a minor takes five minutes on two cores, every other one seconds. A
// control plane is up in about three seconds and gone with the test.
package cluster
