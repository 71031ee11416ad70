// Package conformance tests hosts and guests against abi/SPEC.md: it describes eight guests,
// and has calls with the results that they must have. The calls are data, cases.yaml, so
// that a host or an SDK in any language can be tested. The types in cases_test.go document
// the file.
//
// The guests are described below, so that each can be written from the specification alone:
//
//	scheduler  configure, prefilter, filter, score, normalizescore
//	queue      preenqueue, queuesort, eventstoregister, queueinghint, prequeueinghint, signpod
//	cycle      prefilter, clonecycle, addpod, removepod, filter, postfilter, prescore,
//	           score, reserve, unreserve, permit, prebindpreflight, prebind, bind,
//	           postbind
//	group      podgrouppostfilter, generateplacements, scoreplacement,
//	           normalizeplacementscore, potentialvictims
//	admission  validate, mutate, convert
//	hook       hook
//	service    services, Echo, Price, Choose
//
// Together they implement all functions of the ABI, and import all that a scheduler
// offers. The directory c has them in C and guests in Go, each by its SDK, and testdata has
// scheduler, queue, admission and hook in WebAssembly text, with the modules. docs/conformance.md
// has the results of all languages.
//
// # Testing another host
//
// Load a guest, the modules in testdata first, since they need no compiler. For each case
// of the guest in cases.yaml make a fresh plugin, make the calls of the case in order, and
// compare the results. The tests of this package do so with the hosts of kubewasm: a file
// for each guest, such as queue_test.go. A host passes if all cases of the kinds of guests
// that it supports have the results that are wanted.
//
// A pad of n in a case is an annotation "pad" of n letters x, of the object or of the pod
// in a hook's request. It makes an answer larger than a first buffer.
//
// # Testing another SDK
//
// Write the guests by it and run them in the hosts of kubewasm: add the language to the
// table languages in conformance_test.go and run the tests of this package.
//
// In the following, a Pod without a label behaves as one whose label has none of the
// values that are named.
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
// filter traps if the Node has the label "trap". If it has the annotation "closed",
// filter returns Unschedulable with the reason "closed: V", V being its value. If it
// has taints, filter returns UnschedulableAndUnresolvable with the reason
// "tainted: K", K being the key of the last one, at most 63 letters. Otherwise it
// returns Success if the Node's L has the value that prefilter remembered, and
// Unschedulable with the reason "want W, got G" if not, G being empty if there is
// none.
//
// score is ten times the number of labels of the Node.
//
// normalizescore gives 100 to the node whose name is the value that prefilter
// remembered, and 100 minus its score to each other.
//
// It may ask for whole objects or for their parts and entries. Those by an SDK ask for parts
// and entries, the one in text for whole objects and for the entry "closed". Those in C and in
// text also ask for the entry of a field that is no map, and the one in C for a part that no
// Node has: they trap if there is any.
//
// # The queue guest
//
// preenqueue returns UnschedulableAndUnresolvable for a Pod with the label "hold",
// with the reason "held: V", V being its value; if that is "twice", with the two
// reasons "first" and "second". Any other Pod may enter.
//
// queuesort puts the Pod whose label "order" is the smaller one, byte by byte,
// first; a Pod without it has the empty one. Of two with the same label the one
// that was tried less often is first, then the one that was first to be tried
// earlier, then the one that came later, and of two that came at the same time none.
//
// eventstoregister registers for four events, in this order: Add and
// UpdateNodeLabel of Node, with a hint; Delete of AssignedPod, with a hint; Add of
// PersistentVolumeClaim, without; Add of Pod, with a hint for all Pods.
//
// queueinghint is an Error with the reason "no hint" for a Pod with the label
// "puzzled". After the first event it tries the Pod again if the new Node's label
// "zone" is that of the Pod, and the old Node is absent or has another. After the
// second it does if the Pod that was deleted has the name that the Pod's label
// "after" has. A label that is absent counts as the empty one. It leaves every other
// Pod where it is.
//
// prequeueinghint is an Error with the reason "no hint" for a new Pod with the label
// "puzzled", and leaves result_pods alone for one with the label "everyone". For one with the
// label "before" it hands over two Pods of the namespace "default": that of the label's value,
// and "always". For any other it hands over none.
//
// signpod returns Unschedulable with the reason "unlike any other" for a Pod with
// the label "unlike". It signs any other by two fragments: "zone" is the Pod's
// label "zone" as a JSON string, which is empty if there is none, and "labels" the
// number of its labels. No value needs an escape.
//
// # The named guest
//
// It needs the grants objects, for example.com/v1/things and metrics.kubewasm.dev/v1/load, activate and
// apply, for the status of things and their annotations example.com/a and example.com/by.
//
// eventstoregister registers for Add of Node, without a hint, and for Add and any update of
// example.com/v1/things, with one. queueinghint tries a Pod again if the new object is JSON that
// contains "for":"N", N being the Pod's name. permit activates the Pods shop/a and bank/b.
// filter refuses each node with the QoS class of the Pod and, after a space each, thousandths of what it
// requests of cpu, memory, hugepages-2Mi and example.com/gpu, which is no function of the ABI.
// score returns a hundred times the value of load with the name of the node, or 50 without one. prebind
// looks up the thing with the Pod's name in the namespace shop. If there is none it awaits it for 600
// seconds and returns Wait with the reason "no thing N". Otherwise it applies the annotations
// example.com/a, a quotation mark and "ä", and example.com/by, the Pod's name, and the status
// {"phase":"Bound"}.
//
// # The cycle guest
//
// It needs the grants events, waiting-pods and objects, the last for
// v1/persistentvolumeclaims. Two Pods are of one app if their labels "app" are
// equal; there is no Pod without it.
//
// prefilter counts the Pods of all nodes that are of the Pod's app, and remembers
// how many there are. addpod adds 1 for a Pod of the app, removepod takes 1 away.
// clonecycle copies all that it remembers of a cycle.
//
// filter returns Unschedulable with the reason "total=T here=H cpu=R/A image=S": T
// is what it remembers, H the number of Pods of the app on the node, R and A the
// requested and the allocatable CPU of the node in thousandths, and S the size of
// the image "web:1", 0 if the node does not have it.
//
// postfilter takes the nomination of the Pod away if it has the label "clear".
// Otherwise it nominates the first node, by name, whose status is Unschedulable
// with the reason "full"; both are a Success. If there is no such node it returns
// Unschedulable with the reason "none of N nodes", N being how many nodes the
// scheduler has.
//
// prescore remembers how many nodes there are, and the name of the first. score is
// ten times that number for the first node and the number for each other, times
// 2 to the power of 40 for a node with the label "huge", and the negative of that for
// one with the label "tiny".
//
// reserve remembers the name of the node, and returns Unschedulable with the reason
// "refused" if that is the value of the Pod's label "refuse". unreserve reports an
// event of the type Warning with the reason "Unreserved", the action "Binding" and
// the note "NODE, reserved R": R is what reserve remembered, "nothing" without it.
//
// permit looks at the Pod's label "permit". "wait" returns Wait for 1500
// milliseconds. "deny" returns Unschedulable with the reason "denied on NODE".
// "allow" allows each Pod that waits and has the same label "group" as the Pod.
// "reject" rejects each of them with the reason "NAME waits for PLUGINS", the
// plugins with commas between them. Both return Success if there is one and
// Unschedulable with the reason "nobody waits" otherwise. "ghost" returns
// Unschedulable with the reason "there is no ghost" unless a Pod with the UID
// "ghost" waits, or can be allowed, or rejected. Otherwise it returns Success.
//
// prebindpreflight returns Skip for a Pod without the label "claim"; for any other
// Success, and that prebind may run beside others if the Pod has the label
// "parallel".
//
// prebind gets the claim that the label "claim" names in the Pod's namespace. If
// there is none it is an Error with the reason "no claim NAMESPACE/NAME"; if the
// claim has no spec.volumeName, Pending with the reason "claim NAME is not bound";
// otherwise Unschedulable with the reason "VOLUME, N claims of M", N being how many
// claims there are in the namespace and M in all.
//
// bind returns Skip unless the Pod's label "bind" is "self"; then Success if the node
// is the one that reserve remembered, and an Error with the reason "NODE is not R"
// otherwise.
//
// postbind reports an event of the type Normal with the reason "Bound", the action
// "Binding" and the note "to NODE".
//
// # The group guest
//
// podgrouppostfilter collects the values of the label "evict" of the group's Pods,
// in their order. If there are any it tries the group without the Pods that have
// these UIDs. If the group fits it nominates the nodes that the trial assigned, and
// otherwise returns Unschedulable with the reason "trial: C R", C being the code of
// the trial as a number and R its reason. If no Pod has the label it nominates, for
// each Pod with the label "node", the node of that name, and returns Success; if
// there is none of them either, Unschedulable with the reason "TYPE NAMESPACE/NAME
// of N Pods is stuck".
//
// generateplacements makes a placement of the nodes that have the same label
// "rack", in the order in which the labels are met and with its value as the name.
// Nodes without it are in none. If there is no placement it returns Unschedulable
// with the reason "no racks".
//
// scoreplacement is ten times the number of Pods that are assigned to a node of the
// placement, less the number of its nodes, times 2 to the power of 40 if the
// placement's name is "huge". If the name is "odd" it is an Error with the reason "odd".
//
// normalizeplacementscore lifts all scores by the same number, so that the highest
// is 100, and makes those that are below 0 then 0.
//
// potentialvictims names the Pods of the node without the label "keep", in their
// order, and returns Success. If the Pod has the label "nominated" it returns
// Unschedulable with the reason "nominated: NAMES" instead: the names of the Pods
// that are nominated for the node, with commas between them. It needs the grant
// preempt-any.
//
// # The admission guest
//
// validate looks at the name of the request. "trap" traps. "fail" is an error with
// the reason "no data". "bad" is denied with the reason "bad name". "busy" is
// denied with the status 409. "field" is denied with the field error of type
// FieldValueInvalid at metadata.name, the message "is odd" and the bad value
// "field", a JSON string. "warn" is allowed with the warning "careful" and the
// audit annotation k=v. "empty" is denied with the reason "no object" if there is
// none. "same" is denied with the reason "unchanged" if the old object is the same as
// the object, byte for byte, and allowed otherwise. "relabelled" is denied with the
// reason "was X, is Y", X and Y being the labels "app" of the old object and the
// object, read from protobuf. "options" is denied with the options as the reason.
// "found" is denied with a ConfigMap as the reason, byte for byte: that of the namespace
// shop that has the label "app" of the object as its name; with the reason "none" if there
// is none. "listed" is denied with the reason "N, S, A": N is how many ConfigMaps there
// are, S how many in the namespace shop, and A how many of these have the label tier=a.
// They are listed by pages. "secret" gets the Secret a of the namespace shop, which is not
// granted, and would allow.
// Any other is denied with the status 413 if its object has more than 100,000
// bytes, and allowed otherwise.
//
// mutate looks at the name of the request, too. "bad" is denied with the reason "bad
// name". "patch" gives the object the annotation k=v, and no other, by a patch;
// "whole" hands over, as the whole object, a v1 Pod that has nothing but the name
// "whole" and the label k=v. Otherwise nothing is changed.
//
// convert looks at the version that is desired. "example.com/v1" is set by a patch, which
// changes nothing else. For "example.com/v2" it hands over, as the whole object, a Widget of
// that version with the name "w" and the spec {"size":2}. "example.com/trap" traps, and any
// other is an error with the reason "bad version".
//
// # The hook guest
//
// hook looks at the pod's label "tier", and if that is "node" at the node's annotation
// "tier" in its place. If it is "object" it looks the object of v1/nodes with the node's name
// up, in JSON, and takes its label "tier"; nothing is decided if there is none. A guest that
// does not import get_object is not asked for that. "batch" decides 128 CPU shares. "idle"
// decides 2 CPU shares and a quota of -1. "wrong" is an error with the reason "tier
// is wrong". Otherwise nothing is decided.
//
// # The service guest
//
// It implements kubewasm.conformance.v1.Quotes of testdata/quotes/quotes.proto, and needs the
// grant rates. A guest whose compiler adds no custom section gets the schema by its test.
//
// Echo returns the request.
//
// Price is an error with the reason "no currency" without one, and traps for the currency
// "trap". For the currency "fail" it is an error with the reason "failed" and the amount as the
// code, any number. It asks the host's Market for the rate of the currency; an error of the host is
// its error, with the same text and the same code. The total is the amount times the rate. The note is the value of
// the Pod's label "discount", and "none" if there is no Pod or the Pod does not have it.
//
// For the currency "found" it looks ConfigMaps up, in JSON, and asks for no rate: the total is 100 times
// the number of all and the number of those of the namespace "shop" that "tier=a" selects, the note
// the label "tier" of the one in "shop" that has the Pod's name, empty if there is none. For "secret" it
// looks v1/secrets up, which the configuration does not name.
//
// Choose returns the first of the Pods whose spec.nodeName is the node of the request. If there
// is none it returns, as the text, the value of "none" in the data of the ConfigMap.
package conformance
