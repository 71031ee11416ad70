package apps_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/apps"
)

func Example() {
	d := apps.DeploymentFromJSON([]byte(`{
		"metadata": {"name": "web", "creationTimestamp": "2026-11-21T03:00:00Z"},
		"spec": {"replicas": 3, "strategy": {"rollingUpdate": {"maxSurge": "25%"}}, "template": {"spec": {"containers": [{"image": "web:1"}]}}}
	}`))
	spec := d.Spec()
	fmt.Println(d.Metadata().CreationTimestamp(), spec.Replicas(), spec.Strategy().RollingUpdate().MaxSurge())
	fmt.Println(spec.Template().Spec().Containers()[0].Image(), spec.HasRevisionHistoryLimit())
	// Output:
	// 2026-11-21T03:00:00Z 3 25%
	// web:1 false
}
