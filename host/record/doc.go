// Package record writes and reads the data that crosses the boundary of guests.
//
// A guest depends only on the data that crosses and on its own memory, so a call can be repeated
// exactly if all earlier calls of its instance were written. Therefore a recording consists of
// sequences: the calls of one instance, in order, from its begin or reset. A recorded instance is
// reset when a sequence ends, which the ABI allows between any two calls.
//
// [Config] is the field record of a plugin's configuration; package host makes the [Recorder].
// Package internal/replay repeats the calls. docs/recording.md has the format.
//
//	recording, err := record.Open("/var/lib/kubewasm/recording")
//	for _, s := range recording.Sequences() {
//		for call, err := range s.Calls() {
//			…
//		}
//	}
package record
