package batch_test

import (
	"fmt"

	"github.com/kubewasm/kubewasm/guest/api/batch"
)

func Example() {
	job := batch.CronJobFromJSON([]byte(`{"spec": {"schedule": "0 3 * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": {"backoffLimit": 0}}}}`))
	template := job.Spec().JobTemplate().Spec()
	fmt.Println(job.Spec().Schedule(), job.Spec().ConcurrencyPolicy() == batch.ForbidConcurrent)
	fmt.Println(template.BackoffLimit(), template.HasBackoffLimit(), template.HasCompletions())
	// Output:
	// 0 3 * * * true
	// 0 true false
}
