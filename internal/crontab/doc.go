// Package crontab has views of a custom resource.
package crontab

//go:generate kubewasm gen --output-dir . crontabs.yaml
