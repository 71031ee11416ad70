// Package shadow repeats calls of the serving version of a plugin on a candidate, a new version,
// and compares the answers. The settings shadow of the adapters are based on it.
//
// A sample of the calls is repeated in the background: after the caller has its answer, on a
// separate goroutine, on one instance in a separate Runtime. The candidate has a share of one
// processor, separate memory, and a queue that drops calls for which it has no room. Its decisions
// have no effect.
//
// Differences are counted in groups: the verdicts of both, such as "allow -> deny". The first
// examples of each group are kept and logged. [Shadow.Status] returns all of it.
//
// The candidate takes the place of the serving version by [Shadow.Promote]. It does not by
// itself: replicas would serve different versions, each from another time on. It is stopped when it keeps failing,
// and rests while the machine is busy.
package shadow
