// Package admission has views of k8s.io/api/admission/v1, for guests: an
// AdmissionReview with its request and response. How views work, and for how long
// they are good, says package core.
package admission
