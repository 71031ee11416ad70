// Package storage has views of k8s.io/api/storage/v1, for guests: StorageClasses,
// VolumeAttachments and what CSI drivers say of themselves. How views work, and
// for how long they are good, says package core.
package storage
