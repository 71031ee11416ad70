// Package crontabs is the host side of a service with a custom resource.
package crontabs

//go:generate go run github.com/kubewasm/kubewasm/cmd/kubewasm gen --host . --output-dir guest crontabs.proto
