// Package guesttest tests guests, natively and as WebAssembly.
//
// [Each] runs one test both ways: on the plugin itself, and on the guest that is
// compiled from the package of the test, in the host that a component embeds.
//
//	func TestFilter(t *testing.T) {
//		guesttest.Each(t, &zone{}, func(t *testing.T, p *guesttest.Scheduler) {
//			for name, test := range map[string]struct{ config, pod, node, want string }{
//				"another zone": {`zone: a`, `{}`, `metadata: {labels: {topology.kubernetes.io/zone: b}}`, "Unschedulable: node is in zone b, not in a"},
//			} {
//				t.Run(name, func(t *testing.T) {
//					if got := p.Configure(t, test.config).Filter(t, test.pod, test.node).String(); got != test.want {
//						t.Errorf("got %s, want %s", got, test.want)
//					}
//				})
//			}
//		})
//	}
//
// The type of the second argument says what is tested: a [Scheduler] plugin, an
// [Admission] plugin or a [Hook]. A panic in WebAssembly fails the test with the Go
// stack.
//
// A scheduler plugin that looks at more than its arguments gets a scheduler by
// [Scheduler.In]: nodes with Pods, and objects of the Kubernetes API. Pods that it
// makes wait do wait, [Cycle.Outcome] tells what becomes of them, and
// [Scheduler.Events] what it has reported:
//
//	p = p.Configure(t, `timeout: 5s`).In(t, cluster)
//	first, second := p.Begin(t, `metadata: {name: a}`), p.Begin(t, `metadata: {name: b}`)
//	first.Permit(t, "n1")  // Wait
//	second.Permit(t, "n1") // Success
//	first.Outcome()        // allowed
//
// [Cycle.AddPod], [Cycle.RemovePod] and [Cycle.PostFilter] are what preemption calls,
// [Scheduler.Less] and [Scheduler.QueueingHint] what the queue does. The extension
// points of Pod groups are tested natively, by calling them.
//
// An admission plugin that looks objects up gets them by [Admission.In]:
//
//	got := p.In(t, ingresses).Create(t, ingress)
//
// [Pod], [Node] and [Create] make the arguments of a plugin's methods, for tests
// that call them directly; the views that they make read the same bytes as in
// WebAssembly.
//
// Unlike the other packages of the SDK this one imports Kubernetes and the host, so
// it is for test files only: a guest that imports it does not compile.
package guesttest
