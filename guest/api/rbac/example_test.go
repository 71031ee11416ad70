package rbac_test

import (
	"fmt"
	"slices"

	"github.com/kubewasm/kubewasm/guest/api/rbac"
)

func Example() {
	role := rbac.RoleFromJSON([]byte(`{"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "*"]}]}`))
	for _, rule := range role.Rules() {
		if slices.Contains(rule.Verbs(), rbac.VerbAll) {
			fmt.Println("everything may be done to", rule.Resources())
		}
	}
	// Output: everything may be done to [pods]
}
