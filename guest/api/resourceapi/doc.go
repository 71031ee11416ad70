// Package resourceapi has views of k8s.io/api/resource/v1, for guests: ResourceClaims,
// ResourceSlices and DeviceClasses, by which Pods ask for devices. Package core describes the use
// of views and the time for which they are valid.
package resourceapi
