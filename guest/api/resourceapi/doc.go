// Package resourceapi has views of k8s.io/api/resource/v1, for guests:
// ResourceClaims, ResourceSlices and DeviceClasses, by which Pods ask for devices.
// How views work, and for how long they are good, says package core.
package resourceapi
