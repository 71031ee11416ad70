// Package hooks is the SDK of runtime hooks: plugins that decide on the
// resources of QoS classes, pods and containers.
//
// A plugin has one method, which reads a [Request] and writes its changes into a
// [Decision]. It does no I/O: the host applies the decision, by the container
// runtime or in the cgroups.
//
//	package main
//
//	import "github.com/kubewasm/kubewasm/guest/hooks"
//
//	type offline struct{}
//
//	func (offline) Decide(req *hooks.Request, d *hooks.Decision) error {
//		if req.PodLabels().Get("tier") == "offline" {
//			d.SetCPUShares(2)
//		}
//		return nil
//	}
//
//	func init() { hooks.Register(offline{}) }
//	func main() {}
//
// A request may have the node: [Request.Node] has its labels, annotations, resources and
// processors. Declare the fields that the plugin reads, or it may be asked without the node:
//
//	//kubewasm:reads pod_labels[tier] node_annotations[example.com/ratio]
//
// Decisions on anything but the resources of cgroups, such as variables, mounts
// and devices of a container, need a grant of the plugin's operator.
//
// It is built with the Go toolchain alone, by the command
// [github.com/kubewasm/kubewasm/cmd/kubewasm]:
//
//	kubewasm build
//
// and tested with it: under go test a request is made by [NewRequest], the method
// is called, and the decision is read; or, natively and as WebAssembly in one test,
// by [github.com/kubewasm/kubewasm/hooks/hookstest].
//
// The package imports nothing of Kubernetes, and no fmt or encoding/json: each of
// them would add hundreds of kilobytes to a guest.
//
// docs/guests.md describes the time, files and network that a guest can use, and the errors and
// warnings of build.
package hooks
