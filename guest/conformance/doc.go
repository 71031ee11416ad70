// Package conformance tells whether a host and a guest agree about abi/SPEC.md.
//
// It has three guests, one of each kind, whose behaviour is described below so
// that anyone can write them in any language from the specification alone; and
// calls with the results that they must have, in cases.yaml, which any host can
// make. Here the guests are in C (c), in WebAssembly text (testdata) and in Go by
// the SDK (guests), and the test of the package runs them all in our host.
//
// A host is tried by loading the guests in testdata, which are compiled already,
// and making the calls of each case in order on a fresh plugin. An SDK is tried by
// writing the three guests in it and running them in our host: the test shows how.
// A pad of n adds an annotation "pad" of n letters x to an object, or to the pod of
// a hook request, so that an answer is larger than any first buffer.
//
// # The scheduler guest
//
// Its configuration is the bytes {"label":"L"} without any space, L at most 32
// letters. configure logs the line "configured" with the attribute label=L at the
// level info. Any other configuration is an error; without any the reason is
// want {"label":"…"}, the dots being one character, U+2026.
//
// prefilter looks at the labels of the Pod, in this order. With "skip" it returns
// Skip. Without L it returns UnschedulableAndUnresolvable with the reason
// "the Pod has no L". With "only" it narrows the nodes down to the one of that
// name. It remembers the value of L for the cycle.
//
// filter traps if the Node has the label "trap". It returns Success if the Node's
// L has the value that prefilter remembered, and otherwise Unschedulable with the
// reason "want W, got G", G being empty if there is none.
//
// score is ten times the number of labels of the Node.
//
// normalizescore gives 100 to the node whose name is the value that prefilter
// remembered, and 100 minus its score to each other.
//
// # The admission guest
//
// validate looks at the name of the request. "trap" traps. "fail" is an error with
// the reason "no data". "bad" is denied with the reason "bad name". "busy" is
// denied with the status 409. "field" is denied with the field error of type
// FieldValueInvalid at metadata.name, the message "is odd" and the bad value
// "field", a JSON string. "warn" is allowed with the warning "careful" and the
// audit annotation k=v. "empty" is denied with the reason "no object" if there is
// none. Any other is denied with the status 413 if its object has more than 100,000
// bytes, and allowed otherwise.
//
// mutate looks at the name of the request, too. "bad" is denied with the reason "bad
// name". "patch" gives the object the annotation k=v, and no other, by a patch;
// "whole" hands over, as the whole object, a v1 Pod that has nothing but the name
// "whole" and the label k=v. Otherwise nothing is changed.
//
// # The hook guest
//
// hook looks at the pod's label "tier". "batch" decides 128 CPU shares. "idle"
// decides 2 CPU shares and a quota of -1. "wrong" is an error with the reason "tier
// is wrong". Otherwise nothing is decided.
package conformance
