// Package kubewasm is the root of a library with which Kubernetes components load
// sandboxed WebAssembly extensions. It has no code of its own; these packages do:
//
//   - [github.com/kubewasm/kubewasm/host] loads modules and calls them, under limits
//   - [github.com/kubewasm/kubewasm/sched] makes guests plugins of kube-scheduler
//   - [github.com/kubewasm/kubewasm/admission] makes guests policies of an admission
//     webhook, which [github.com/kubewasm/kubewasm/admission/webhook] serves
//   - [github.com/kubewasm/kubewasm/hooks] makes guests runtime hooks of a node agent
//   - [github.com/kubewasm/kubewasm/guest/sched],
//     [github.com/kubewasm/kubewasm/guest/admission] and
//     [github.com/kubewasm/kubewasm/guest/hooks] are what a guest is written with;
//     [github.com/kubewasm/kubewasm/sched/schedtest],
//     [github.com/kubewasm/kubewasm/admission/admissiontest] and
//     [github.com/kubewasm/kubewasm/hooks/hookstest] test it
//   - [github.com/kubewasm/kubewasm/cmd/kubewasm] builds, inspects and runs guests
//   - [github.com/kubewasm/kubewasm/abi] is the contract between the two sides
//
// Start with README.md. docs/writing-plugins.md is for authors of plugins,
// docs/embedding.md for programs that load them, docs/operating.md for those who run
// such programs.
package kubewasm
