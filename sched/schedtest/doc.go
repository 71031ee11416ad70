// Package schedtest tests scheduler plugins, natively and as WebAssembly. [Each] runs one test both
// ways: on the plugin itself, and on the guest that is compiled from the package of the test, in
// the host that a component embeds.
//
//	func TestFilter(t *testing.T) {
//		schedtest.Each(t, &zone{}, func(t *testing.T, p *schedtest.Plugin) {
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
// A panic in WebAssembly fails the test with the Go stack. [Pod] and [Node] make the arguments of a
// plugin's methods, for tests that call them directly; these views read the same bytes as in
// WebAssembly. A kit imports Kubernetes and the host, so it is for test files only: a guest cannot
// import it.
//
// A plugin that uses more than its arguments gets a scheduler by [Plugin.In]: nodes with Pods, and
// objects of the Kubernetes API. A Pod that it makes wait does wait. [Cycle.Outcome] returns the
// result for the Pod, and [Plugin.Events] the events that the plugin has reported:
//
//	p = p.Configure(t, `timeout: 5s`).In(t, cluster)
//	first, second := p.Begin(t, `metadata: {name: a}`), p.Begin(t, `metadata: {name: b}`)
//	first.Permit(t, "n1")  // Wait
//	second.Permit(t, "n1") // Success
//	first.Outcome()        // allowed
//
// [Cycle.Clone], [Cycle.AddPod], [Cycle.RemovePod] and [Cycle.PostFilter] are the calls of
// preemption, [Plugin.Less] and [Plugin.QueueingHint] those of the queue. The extension points of
// Pod groups are tested natively, by calling them.
package schedtest
