// Package storage has views of k8s.io/api/storage/v1, for guests: StorageClasses, VolumeAttachments
// and the objects in which CSI drivers describe themselves. Package core describes the use of views
// and the time for which they are valid.
package storage
