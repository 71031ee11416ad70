// Package crontab has views of a custom resource.
package crontab
