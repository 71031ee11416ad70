// Package resource has quantities, as k8s.io/apimachinery/pkg/api/resource: exact
// amounts of CPU, memory and devices, with the same texts, the same order and the
// same roundings, in a form that costs a guest little.
//
// Two things are better defined: Value, MilliValue and ScaledValue of an amount
// that does not fit into an int64 are the largest or the smallest number, and
// String always returns the canonical form.
package resource
