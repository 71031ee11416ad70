// Package rbac has views of k8s.io/api/rbac/v1, for guests: roles and their bindings. Package core
// describes the use of views and the time for which they are valid.
package rbac
