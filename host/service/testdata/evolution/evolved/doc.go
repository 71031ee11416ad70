// Package evolved is the new version of the extension point.
package evolved

//go:generate go run github.com/kubewasm/kubewasm/cmd/kubewasm gen --host . --output-dir guest orders.proto
