// Package recording writes and reads the data that crosses the boundary of guests.
//
// A guest depends only on the data that crosses and on its own memory, so a call can be repeated
// exactly if all earlier calls of its instance were written. Therefore a recording consists of
// sequences: the calls of one instance, in order, from its begin or reset. A recorded instance is
// reset when a sequence ends, which the ABI allows between any two calls.
//
// Package host/record has the configuration, package host makes the [Recorder], and package replay
// repeats the calls. docs/recording.md has the format.
package recording
