package policy_test

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host/confidential"
)

// The objects of a request are searched once for all policies, and again in the next request.
func TestConfidentialValuesAreSharedByPolicies(t *testing.T) {
	t.Parallel()
	for range 2 {
		req := policy.NewRequest(&admissionv1.AdmissionRequest{}, nil)
		searches := 0
		for range 3 {
			found := req.Confidential(func(s *confidential.Stain) {
				searches++
				s.AddText("hunter2hunter2")
			})
			if found.Text("hunter2hunter2") != "xxxxxxxxxxxxxx" {
				t.Error("the value is not found")
			}
		}
		if searches != 1 {
			t.Errorf("%d searches", searches)
		}
		req.Free()
	}
}
