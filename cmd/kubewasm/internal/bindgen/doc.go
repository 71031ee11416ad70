// Package bindgen generates typed views of messages, for kubewasm gen: from .proto
// files, see [Proto], and from CustomResourceDefinitions, see [CRD]. [Write] writes
// the Go source.
package bindgen

//go:generate kubewasm gen --output-dir testdata/kinds -I testdata/kinds kinds.proto
//go:generate kubewasm gen --lang rust -I ../../../../abi --output-dir ../../../../guest/rust/src/sched/messages sched.proto
//go:generate kubewasm gen --lang rust -I ../../../../abi --output-dir ../../../../guest/rust/src/admission/messages admission.proto
//go:generate kubewasm gen --lang rust -I ../../../../abi --output-dir ../../../../guest/rust/src/hooks/messages hook.proto
