package main

import (
	"os"
	"testing"

	"github.com/kubewasm/kubewasm/guest/admission"
)

func BenchmarkNative(b *testing.B) {
	pod, _ := os.ReadFile("../../../admission/testdata/pod.json")
	p := &policy{Labels: []string{"app", "owner"}, Registries: []string{"registry.example.com/"}}
	review := []byte(`{"request":{"uid":"1","operation":"CREATE","object":` + string(pod) + `}}`)
	req, _ := admission.RequestFromReview(review)
	b.ReportAllocs()
	for b.Loop() {
		p.Validate(req)
	}
}
