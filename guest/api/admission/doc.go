// Package admission has views of k8s.io/api/admission/v1, for guests: an AdmissionReview with its
// request and response. Package core describes the use of views and the time for which they are
// valid.
package admission
