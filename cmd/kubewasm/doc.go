//go:build !wasip1

// Command kubewasm builds guests, tells what is in them, and runs them:
//
//	go run github.com/kubewasm/kubewasm/cmd/kubewasm build ./zone
//	go run github.com/kubewasm/kubewasm/cmd/kubewasm inspect zone.wasm
//	go run github.com/kubewasm/kubewasm/cmd/kubewasm run -f cluster.yaml zone.wasm
//
// # build
//
// Compiles the package main in a directory to a WebAssembly module with the Go
// that is installed, stripped, and adds metadata in the custom section
// "kubewasm". They come from comments of the package:
//
//	//kubewasm:name zone
//	//kubewasm:version 1.2.0
//	//kubewasm:reads node.metadata.labels node.spec.taints
//	//kubewasm:decides cpu_shares container_envs[GOGC]
//	//kubewasm:matches CREATE,UPDATE pods deployments.apps
//
// reads names the fields of Pods and Nodes that the plugin reads, or those of a
// hook's request (pod_annotations[kubewasm.dev/cpu]): the host then encodes only
// those. If any field of a kind is declared, the others of that kind read as empty. A
// plugin that declares nothing of a kind gets every field that it reads. The
// test harness, guesttest, runs with what is declared. decides names the
// fields that a hook's decisions set: a node agent whose operator does not grant
// them refuses the plugin when it is loaded. matches names the operations and the
// resources that an admission plugin is for, resources as kubectl does (with a version,
// stellarnodes.v1alpha1.stellar.org): a server that is configured to ask it about
// others, or not about all of them, warns. Then the module is loaded once, so that
// a plugin that registers nothing fails here.
//
// What compiles may be a mistake all the same. build refuses a plugin with a method that
// has the name of an extension point, and not its type: it would never be called. It
// refuses a guest of two kinds, which no host takes, and a directive that is a comment by
// a space. It warns of what does something else in a guest than elsewhere, such as
// time.Now and os.ReadFile, with the grant that changes it, if there is one, and of
// packages that a guest has no use for: net, os/exec, k8s.io/api. docs/guests.md says
// what a guest has. inspect and run of a directory do the same.
//
// # inspect
//
// Prints what a module is, what it wants and what it exports: the ABI that it is written
// for, kind, implemented functions, imports and the grants that they need, memory,
// metadata, size and digest; and of each other kind why it is none. It knows every ABI
// that the hosts run: our own, kube-scheduler-wasm-extension, Kubewarden's two, that of
// the Open Policy Agent, and the Stellar operator's. -o json prints the same for programs.
//
// It exits with 0 if some host runs the module, given its grants, or with a configuration
// if it wants one and -config has none; with 2 if none does, and the lines "problem" say
// why; with 1 if it is no module.
//
// # run
//
// Runs a module on the objects of a file, by the engine that runs it in a component and
// whatever its ABI is: a scheduler plugin schedules its Pods
// without a spec.nodeName to its Nodes, by PreFilter, Filter, PreScore, Score and
// NormalizeScore, with the others running there and all objects to be had; an admission plugin is asked about each object, a hook about
// each Pod and container, and what its decisions need to be granted on a node is
// printed at the end. It prints verdicts, time and fuel.
//
// An admission plugin is asked about the creation of the objects, or about what the flags
// say: -operation, -old with the objects as they were, -user and -group, -namespace,
// -subresource, -dry-run. An AdmissionReview in the file, or the request of one as
// Kubewarden's tools keep it, is asked as it stands. A policy that looks objects up finds
// those of the file, of the kinds that its metadata declare and -see names.
//
// What fails is told in the end with the plugin, the extension point, what it was asked
// about and the line of a panic. run exits with 1 after such an error or any other, with 2
// if a Pod fits no Node or an object is refused, and with 0 otherwise.
package main
