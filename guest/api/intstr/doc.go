// Package intstr has the type of fields that are a number or a string, as
// k8s.io/apimachinery/pkg/util/intstr.
package intstr
