// Package authentication has views of k8s.io/api/authentication/v1, for guests: users and reviews
// of tokens. Package core describes the use of views and the time for which they are valid.
package authentication
