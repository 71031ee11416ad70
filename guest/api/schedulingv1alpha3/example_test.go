package schedulingv1alpha3_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/schedulingv1alpha3"
)

func Example() {
	group := schedulingv1alpha3.PodGroupFromJSON([]byte(`{"metadata": {"name": "training"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}`))
	policy := group.Spec().SchedulingPolicy()
	fmt.Println(group.Metadata().Name(), policy.HasGang(), policy.Gang().MinCount())
	// Output: training true 4
}
