// Package policies tests engines with policies of all dialects: those of this module and of package
// rego, and beside them those of package stellar.
package policies
