package field_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/admission/field"
)

// A path is put together from the root on.
func Example() {
	path := field.NewPath("spec", "containers").Index(0).Child("image")
	fmt.Println(field.Invalid(path, "nginx:latest", "must have a version"))
	fmt.Println(field.Required(field.NewPath("metadata", "labels").Key("team"), ""))
	// Output:
	// spec.containers[0].image: Invalid value: "nginx:latest": must have a version
	// metadata.labels[team]: Required value
}
