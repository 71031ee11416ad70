package admission_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/admission"
)

func Example() {
	review := admission.AdmissionReviewFromJSON([]byte(`{"request": {
		"uid": "705ab4f5", "operation": "UPDATE", "name": "web", "userInfo": {"username": "ada", "groups": ["dev", "ops"]},
		"object": {"kind": "Pod", "metadata": {"name": "web"}}
	}}`))
	request := review.Request()
	fmt.Println(request.Operation() == admission.Update, request.UserInfo().Groups())
	fmt.Printf("%s\n", request.Object())
	// Output:
	// true [dev ops]
	// {"kind": "Pod", "metadata": {"name": "web"}}
}
