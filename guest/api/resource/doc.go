// Package resource has quantities, as k8s.io/apimachinery/pkg/api/resource.
package resource
