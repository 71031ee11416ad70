// Package rbac has views of k8s.io/api/rbac/v1, for guests: roles and their
// bindings. How views work, and for how long they are good, says package core.
package rbac
