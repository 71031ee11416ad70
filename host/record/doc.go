// Package record writes what crosses the boundary of guests, and reads it again.
//
// A guest depends on what crosses and on its own memory alone, so a call can be repeated
// exactly if everything was written that its instance was asked before. Therefore a recording
// is made of sequences: the calls of one instance, in order, from when it began or was reset.
// An instance that is recorded is reset when a sequence ends, which the ABI allows between any
// two calls.
//
// [Config] is the field record of a plugin's configuration; package host makes the [Recorder].
// Package host/replay repeats the calls. docs/recording.md has the format.
//
//	recording, err := record.Open("/var/lib/kubewasm/recording")
//	for _, s := range recording.Sequences() {
//		for call, err := range s.Calls() {
//			…
//		}
//	}
package record
