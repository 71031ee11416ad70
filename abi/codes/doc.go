// Package codes has the codes of errors: of methods of services in both directions, of hooks, and
// of a refused configuration.
package codes
