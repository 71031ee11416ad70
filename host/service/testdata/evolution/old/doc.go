// Package old is the old version of the extension point.
package old

//go:generate kubewasm gen --host . --output-dir guest orders.proto
