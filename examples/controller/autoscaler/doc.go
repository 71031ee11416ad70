// Package autoscaler is the controller of ScalePolicies: it asks guests for the numbers of replicas
// of workloads, and scales the workloads.
//
// The README beside it describes requests, statuses and Events. The following rules ensure that it
// never writes a wrong number:
//
//   - It reads the scale, then the data that the answer depends on, and writes with the resource
//     version that it has read. The API server refuses a late write.
//   - Only a valid answer counts. Otherwise the last valid one does, as long as the workload is the
//     same object.
//   - It writes a decision into the status before it acts, and begins with the status in the API
//     server, not in a cache. So a restarted controller has the last decision.
package autoscaler
