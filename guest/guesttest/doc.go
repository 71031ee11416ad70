// Package guesttest makes the arguments of a plugin's methods from YAML, for
// native tests of guests:
//
//	func TestFilter(t *testing.T) {
//		z := &zone{Zone: "a"}
//		node := guesttest.Node(t, `metadata: {name: n1, labels: {topology.kubernetes.io/zone: b}}`)
//		got := z.Filter(sched.NewCycleState(), core.Pod{}, sched.NewNodeInfo(node))
//		if got.Code() != sched.CodeUnschedulable {
//			t.Errorf("got %s", got)
//		}
//	}
//
// The views that it makes read the same bytes as in WebAssembly. Unlike the
// other packages of the SDK it imports Kubernetes, so it is for test files only:
// a guest that imports it does not compile.
package guesttest
