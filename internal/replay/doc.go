// Package replay repeats recorded calls on a module.
//
// [Verify] repeats them on the recorded module, where everything must cross as it did. [Compare]
// repeats them on two versions, and reports the differences of their answers. Both are the command
// kubewasm replay. A [Player] repeats calls one by one.
//
// Host functions answer from the recording. Nothing else of the component is needed: no scheduler,
// no API server, and only the recorded configuration.
package replay
