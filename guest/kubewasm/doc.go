//go:build !wasip1

// Command kubewasm builds guests, tells what is in them, and runs them:
//
//	go run github.com/kubewasm/kubewasm/guest/kubewasm build ./zone
//	go run github.com/kubewasm/kubewasm/guest/kubewasm inspect zone.wasm
//	go run github.com/kubewasm/kubewasm/guest/kubewasm run -f cluster.yaml zone.wasm
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
// those, and a change of any other field costs the guest nothing.
// Without it, everything is there. -node.metadata says that the plugin does not ask
// which Node it is: Nodes that are equal in what it reads are one to it then, and
// their names read as empty; a plugin of this SDK needs it not, since the host sees what
// it asks for. What is not declared reads as empty, and the
// test harness, guesttest, runs with what is declared. decides names the
// fields that a hook's decisions set: a node agent whose operator does not grant
// them refuses the plugin when it is loaded. matches names the operations and the
// resources that an admission plugin is for, resources as kubectl does (with a version,
// stellarnodes.v1alpha1.stellar.org): a server that is configured to ask it about
// others, or not about all of them, warns. Then the module is loaded once, so that
// a plugin that registers nothing fails here.
//
// # inspect
//
// Prints what a module is, what it wants and what it exports: kind, implemented
// functions, imports and the grants that they need, memory, metadata, size and
// digest. -o json prints the same for programs.
//
// # run
//
// Runs a module on the objects of a file: a scheduler plugin schedules its Pods
// without a spec.nodeName to its Nodes, with the others running there and all
// objects to be had; an admission plugin is asked about each object, a hook about
// each Pod and container, and what its decisions need to be granted on a node is
// printed at the end. It prints verdicts, time and fuel, and exits with 2 if
// a Pod fits no Node or an object is refused, 1 after an error, 0 otherwise.
package main
