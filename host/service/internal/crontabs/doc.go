// Package crontabs is the host side of a service with a custom resource.
package crontabs

//go:generate kubewasm gen --host . --output-dir guest crontabs.proto
