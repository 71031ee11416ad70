// Package broken is the broken version of the extension point.
package broken

//go:generate go run github.com/kubewasm/kubewasm/cmd/kubewasm gen --host . --output-dir guest orders.proto
