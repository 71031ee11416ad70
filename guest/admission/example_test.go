package admission_test

import (
	"fmt"
	"strings"

	"github.com/kubewasm/kubewasm/guest/admission"
	"github.com/kubewasm/kubewasm/guest/admission/field"
	"github.com/kubewasm/kubewasm/guest/api/core"
)

// registry is a plugin; its fields are its configuration.
type registry struct {
	Host string `json:"host"`
}

func (r *registry) Validate(req *admission.Request) *admission.Response {
	pod := core.PodFromJSON(req.Object())
	var errs field.ErrorList
	for i, c := range pod.Spec().Containers() {
		if !strings.HasPrefix(c.Image(), r.Host+"/") {
			path := field.NewPath("spec", "containers").Index(i).Child("image")
			errs = append(errs, field.Invalid(path, c.Image(), "must come from "+r.Host))
		}
	}
	return admission.Invalid(errs...)
}

// A plugin runs natively in a test: no host, no WebAssembly.
func Example() {
	plugin := &registry{Host: "registry.example.com"}
	req, err := admission.RequestFromReview([]byte(`{"request":{
		"operation": "CREATE",
		"object": {"spec": {"containers": [{"name": "web", "image": "nginx:1.29"}]}}
	}}`))
	if err != nil {
		panic(err)
	}
	response := plugin.Validate(req)
	fmt.Println("allowed:", response.Allowed())
	for _, err := range response.FieldErrors() {
		fmt.Println(err)
	}
	// Output:
	// allowed: false
	// spec.containers[0].image: Invalid value: "nginx:1.29": must come from registry.example.com
}

// A patch makes the objects on the way to a field, and leaves out what is no
// change.
func ExamplePatch() {
	patch := admission.NewPatch([]byte(`{"metadata": {"labels": {"team": "shop"}}, "spec": {"containers": [{"name": "web"}]}}`))
	requests := field.NewPath("spec", "containers").Index(0).Child("resources", "requests")
	patch.Default(requests.Key("cpu"), "100m")
	patch.Set(field.NewPath("metadata", "labels").Key("team"), "shop")
	fmt.Println(string(patch.JSON()))
	// Output:
	// [{"op":"add","path":"/spec/containers/0/resources","value":{"requests":{"cpu":"100m"}}}]
}
