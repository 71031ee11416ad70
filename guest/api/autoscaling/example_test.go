package autoscaling_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/autoscaling"
)

func Example() {
	h := autoscaling.HorizontalPodAutoscalerFromJSON([]byte(`{"spec": {"minReplicas": 2, "maxReplicas": 9, "metrics": [
		{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
	]}}`))
	fmt.Println(h.Spec().MinReplicas(), h.Spec().MaxReplicas())
	for _, m := range h.Spec().Metrics() {
		if m.Type() == autoscaling.ResourceMetricSourceType {
			fmt.Println(m.Resource().Name(), m.Resource().Target().AverageUtilization())
		}
	}
	// Output:
	// 2 9
	// cpu 80
}
