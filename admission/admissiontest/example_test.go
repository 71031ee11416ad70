package admissiontest_test

import (
	"fmt"
	"testing"

	"github.com/kubewasm/kubewasm/admission/admissiontest"
	"github.com/kubewasm/kubewasm/guest/admission"
)

// owner is a policy.
type owner struct{}

func (owner) Validate(r *admission.Request) *admission.Response {
	if r.Namespace() == "default" {
		return admission.Deny("nothing lives in default")
	}
	return admission.Allow()
}

func ExampleRequest() {
	t := &testing.T{} // In a test, its own.
	request := admissiontest.Request(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}}`)
	fmt.Println(owner{}.Validate(request).Message())
	// Output: nothing lives in default
}

func Example() {
	// In the package of the policy this is func TestOwner(t *testing.T).
	testOwner := func(t *testing.T) {
		admissiontest.Each(t, owner{}, func(t *testing.T, p *admissiontest.Plugin) {
			if v := p.Create(t, `{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: default}}`); v.Allowed {
				t.Error("allowed in default")
			}
		})
	}
	_ = testOwner
}
