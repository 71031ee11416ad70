package policy_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/policy"
)

func Example() {
	budget := policy.PodDisruptionBudgetFromJSON([]byte(`{
		"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "web"}}}, "status": {"disruptionsAllowed": 1}
	}`))
	spec := budget.Spec()
	fmt.Println(spec.MinAvailable(), spec.HasMaxUnavailable(), spec.Selector().MatchLabels().Get("app"), budget.Status().DisruptionsAllowed())
	// Output: 50% false web 1
}
