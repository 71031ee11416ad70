package main

import (
	"os"
	"testing"

	"github.com/kubewasm/kubewasm/guest/admission"
)

// BenchmarkPolicy is the policy alone, natively, on a Pod of 4.3 KB: compare
// with BenchmarkValidate of package admission, which runs it as a guest.
func BenchmarkPolicy(b *testing.B) {
	pod, err := os.ReadFile("../../../admission/testdata/pod.json")
	if err != nil {
		b.Fatal(err)
	}
	req, err := admission.RequestFromReview([]byte(`{"request":{"uid":"1","operation":"CREATE","object":` + string(pod) + `}}`))
	if err != nil {
		b.Fatal(err)
	}
	p := &policy{Labels: []string{"app", "owner"}, Registries: []string{"registry.example.com/"}}
	b.ReportAllocs()
	for b.Loop() {
		if !p.Validate(req).Allowed() {
			b.Fatal("denied")
		}
	}
}
