// Package batch has views of k8s.io/api/batch/v1, for guests: Jobs and CronJobs. Package core
// describes the use of views and the time for which they are valid.
package batch
