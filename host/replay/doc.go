// Package replay repeats recorded calls on a module.
//
// [Verify] repeats them on the module that was recorded, where everything must cross as it did.
// [Compare] repeats them on two versions, and says what the second one answers otherwise. Both
// are the command kubewasm replay. A [Player] repeats calls one by one.
//
// Host functions answer from the recording. What a component offers beyond that is not needed:
// no scheduler, no API server, no configuration but the recorded one.
package replay
