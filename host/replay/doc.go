// Package replay repeats recorded calls on a module.
//
// [Verify] repeats them on the module that was recorded, where everything must cross as it did.
// A [Player] repeats calls one by one, on that module or another version of it.
//
// Host functions answer from the recording. What a component offers beyond that is not needed:
// no scheduler, no API server, no configuration but the recorded one.
package replay
