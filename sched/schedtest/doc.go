// Package schedtest tests scheduler plugins, natively and as WebAssembly, see
// [Each].
//
// A plugin that looks at more than its arguments gets a scheduler by [Plugin.In]:
// nodes with Pods, and objects of the Kubernetes API. Pods that it makes wait do
// wait, [Cycle.Outcome] tells what becomes of them, and [Plugin.Events] what it has
// reported:
//
//	p = p.Configure(t, `timeout: 5s`).In(t, cluster)
//	first, second := p.Begin(t, `metadata: {name: a}`), p.Begin(t, `metadata: {name: b}`)
//	first.Permit(t, "n1")  // Wait
//	second.Permit(t, "n1") // Success
//	first.Outcome()        // allowed
//
// [Cycle.Clone], [Cycle.AddPod], [Cycle.RemovePod] and [Cycle.PostFilter] are what
// preemption calls, [Plugin.Less] and [Plugin.QueueingHint] what the queue does. The
// extension points of Pod groups are tested natively, by calling them.
package schedtest
