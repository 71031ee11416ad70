package authentication_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/authentication"
)

func Example() {
	review := authentication.TokenReviewFromJSON([]byte(`{"status": {"authenticated": true, "user": {
		"username": "system:serviceaccount:shop:web", "extra": {"scopes": ["read", "list"]}
	}}}`))
	user := review.Status().User()
	fmt.Println(review.Status().Authenticated(), user.Username(), user.Extra().Get("scopes"))
	// Output: true system:serviceaccount:shop:web [read list]
}
