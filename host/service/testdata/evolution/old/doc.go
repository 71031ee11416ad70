// Package old is the old version of the extension point.
package old

//go:generate go run github.com/kubewasm/kubewasm/cmd/kubewasm gen --host . --output-dir guest orders.proto
