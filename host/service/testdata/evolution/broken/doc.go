// Package broken is the broken version of the extension point.
package broken

//go:generate kubewasm gen --host . --output-dir guest orders.proto
