// Package record configures the recording of calls: the data that crosses the boundary of guests,
// for kubewasm replay. docs/recording.md has the format.
package record
