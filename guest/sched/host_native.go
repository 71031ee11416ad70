//go:build !wasip1

package sched

import "github.com/kubewasm/kubewasm/abi"

// Natively there is no scheduler: what a plugin asks for beyond its arguments is
// not there, and what it does has no effect.

func hostWaitingPods() []byte { return nil }

func hostEvent([]byte) {}

func hostWaitingPod(string) []byte  { return nil }
func hostGetObject(string) []byte   { return nil }
func hostListObjects(string) []byte { return nil }

func hostAllowWaitingPod(string) bool  { return false }
func hostRejectWaitingPod(string) bool { return false }

func hostNodeNames() []byte                  { return nil }
func hostNodeByName(string) (NodeInfo, bool) { return NodeInfo{}, false }
func hostNodeInfoVersion(abi.Ref) uint64     { return 0 }
func hostNodeInfo(abi.Ref) []byte            { return nil }
func hostNodeImages(abi.Ref) []byte          { return nil }
func hostNodePod(abi.Ref, int) []byte        { return nil }
func hostPodGroupPod(int) []byte             { return nil }
func hostTryPodGroup(string) []byte          { return nil }
