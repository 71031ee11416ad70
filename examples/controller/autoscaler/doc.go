// Package autoscaler is the controller of ScalePolicies: it asks guests how many replicas
// workloads should have, and scales them.
//
// What a request, a status and an Event show is in the README beside it. The rules by which
// it never writes a wrong number:
//
//   - It reads the scale, then what the answer depends on, and writes with the resource
//     version that it read. A write that comes too late is refused by the API server.
//   - An answer counts only if it is one. Otherwise the last one does, for as long as the
//     workload is the same object.
//   - It writes a decision into the status before it acts, and begins with the status that
//     the API server has, not a cache. So a controller that starts anew knows the last one.
package autoscaler
