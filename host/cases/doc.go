// Package cases tests guests by tables in YAML: any WebAssembly module, written in any
// language, in the hosts that components embed. kubewasm test is this package as a command.
//
// A file has cases, and defaults for them:
//
//	config: {zone: a}        # The configuration of cases that have none.
//	objects: cluster.yaml    # The objects of cases that have none: those of the component.
//	cases:
//	- name: a Node in another zone is refused
//	  pod: {metadata: {name: web}}
//	  node: {metadata: {name: n1, labels: {topology.kubernetes.io/zone: b}}}
//	  want: 'Unschedulable: node is in zone b, not in a'
//
// An object stands in the file, or is the name of a file beside it. A Node may also be the name of
// one among the objects. A Pod and a Node need no apiVersion and no kind. A case without an
// expectation requires success and nothing else.
//
// # The scheduler
//
// A case with a pod and a node begins a cycle, and calls Filter. A case with steps makes these
// calls in order; prefilter begins a cycle. A status is a code, with a reason after a colon:
//
//   - name: images count
//     steps:
//   - prefilter: {pod: {spec: {containers: [{name: web, image: "web:1"}]}}, want: Success}
//   - score: {node: {status: {images: [{names: ["web:1"], sizeBytes: 157286400}]}}, score: 150}
//   - normalizescore: {scores: [{name: n1, score: 150}, {name: n2}], want: [{name: n1, score: 100}, {name: n2}]}
//
// The other steps are preenqueue, queuesort, signpod, addpod, removepod, postfilter,
// prescore, reserve, unreserve, permit, prebind and bind.
//
// # Admission
//
// A case has a request: create, update with old, delete, or a whole review. With mutate the plugin
// is asked to change the object, and object in want is the expected result, if it changes. A
// conversion has convert and to.
//
//   - name: a missing label is named
//     create: {apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}}
//     want: {code: 422, errors: ["metadata.labels[team]: Required value: every Pod must have it"]}
//
// # Hooks
//
// A case has a pod, and the name of a container of it, or none for the Pod itself, and may have the
// node, a Node. want holds fields of the decision by their names in hook.proto:
//
//   - name: a container of the batch tier
//     pod: batch.yaml
//     container: worker
//     want: {cpu_shares: 2}
//
// # Services
//
// A case has a method, a request, and answers of host services:
//
//   - method: Picker/Pick
//     request: {model: llama, endpoints: [{name: a}]}
//     answers: {Cache/Match: {blocks: 3}}
//     want: {endpoint: a}
//
// # Failures
//
// In a case of any kind refused is a part of the text with which the plugin must refuse its
// configuration, error of its error, and traps of the output and the stack of a trap. The error of
// a service that has a code begins with its name: "NotFound: no such model".
package cases
