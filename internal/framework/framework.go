// Package framework makes the arguments that kube-scheduler passes to plugins,
// for programs without a scheduler: the quick start, tests and benchmarks. The
// scheduler's own constructors are in k8s.io/kubernetes, which a library cannot
// import.
package framework

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// CycleState is a fwk.CycleState that keeps what plugins write. Its other
// methods, which only the framework itself calls, panic.
type CycleState struct {
	fwk.CycleState
	data sync.Map
}

// NewCycleState returns an empty CycleState.
func NewCycleState() *CycleState { return &CycleState{} }

// Read implements fwk.CycleState.
func (s *CycleState) Read(key fwk.StateKey) (fwk.StateData, error) {
	v, ok := s.data.Load(key)
	if !ok {
		return nil, fwk.ErrNotFound
	}
	return v.(fwk.StateData), nil
}

// Write implements fwk.CycleState.
func (s *CycleState) Write(key fwk.StateKey, value fwk.StateData) { s.data.Store(key, value) }

// Delete implements fwk.CycleState.
func (s *CycleState) Delete(key fwk.StateKey) { s.data.Delete(key) }

// Clone implements fwk.CycleState.
func (s *CycleState) Clone() fwk.CycleState {
	clone := NewCycleState()
	s.data.Range(func(k, v any) bool {
		clone.data.Store(k, v.(fwk.StateData).Clone())
		return true
	})
	return clone
}

// NodeInfo is a fwk.NodeInfo of a node without Pods. Its other methods panic.
type NodeInfo struct {
	fwk.NodeInfo
	node *corev1.Node
}

// NewNodeInfo returns the NodeInfo of node.
func NewNodeInfo(node *corev1.Node) *NodeInfo { return &NodeInfo{node: node} }

// Node implements fwk.NodeInfo.
func (n *NodeInfo) Node() *corev1.Node { return n.node }
