// Package shadow asks a candidate, a new version of a plugin, what the serving version was asked,
// and compares the answers. It is what the settings shadow of the adapters stand on.
//
// A sample of the calls is repeated in the background: after the caller has its answer, on a
// goroutine of its own, on one instance in a Runtime of its own. The candidate has a share of
// one processor, memory that counts for it alone, and a queue that drops what it has no room
// for. Nothing that it decides has an effect.
//
// What differs is counted in groups: the verdicts of both, such as "allow -> deny". The first
// examples of each group are kept and logged. [Shadow.Status] has all of it.
//
// The candidate takes the place of the serving version by [Shadow.Promote], or by itself when
// enough calls have agreed for long enough, see [Promote]. It is stopped when it keeps failing,
// and rests while the machine is busy.
package shadow
