// Package batch has views of k8s.io/api/batch/v1, for guests: Jobs and CronJobs.
// How views work, and for how long they are good, says package core.
package batch
