// Package authentication has views of k8s.io/api/authentication/v1, for guests:
// users and reviews of tokens. How views work, and for how long they are good,
// says package core.
package authentication
