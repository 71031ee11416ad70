// Package sched is the SDK for guests that extend kube-scheduler.
//
// A plugin is a struct with methods named after the extension points of
// k8s.io/kube-scheduler/framework. It is registered once:
//
//	type zone struct {
//		Zone string `json:"zone"` // Filled from the plugin's configuration.
//	}
//
//	func (z *zone) Filter(_ sched.CycleState, _ core.Pod, node sched.NodeInfo) *sched.Status {
//		if got := node.Node().Metadata().Labels().Get("topology.kubernetes.io/zone"); got != z.Zone {
//			return sched.Unschedulable("node is in zone ", got, ", not in ", z.Zone)
//		}
//		return nil
//	}
//
//	func init() { sched.Register(&zone{}) }
//
//	func main() {}
//
// Build it, with the Go toolchain alone, by
//
//	kubewasm build
//
// The command github.com/kubewasm/kubewasm/cmd/kubewasm also starts a plugin with its test:
// kubewasm new --kind scheduler DIR.
//
// Natively, in a test, its methods are called like any others, with a Pod and a
// Node made by [github.com/kubewasm/kubewasm/sched/schedtest], which also runs the
// same test natively and as WebAssembly.
//
// docs/guests.md describes the time, files and network that a guest can use, and the errors and
// warnings of build.
package sched
