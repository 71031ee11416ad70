// Package evolved is the new version of the extension point.
package evolved

//go:generate kubewasm gen --host . --output-dir guest orders.proto
