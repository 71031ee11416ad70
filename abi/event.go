package abi

// The resources of a cluster event, by their numbers in
// k8s.io/scheduler.result_cluster_events. The names are those of
// k8s.io/kube-scheduler/framework.EventResource, v0.37.
var eventResources = [...]string{
	"Pod", "AssignedPod", "UnscheduledPod", "TargetPod", "Node",
	"PersistentVolume", "PersistentVolumeClaim",
	"storage.k8s.io/CSINode", "storage.k8s.io/CSIDriver", "storage.k8s.io/VolumeAttachment",
	"storage.k8s.io/CSIStorageCapacity", "storage.k8s.io/StorageClass",
	"resource.k8s.io/ResourceClaim", "resource.k8s.io/ResourceSlice", "resource.k8s.io/DeviceClass",
	"scheduling.k8s.io/PodGroup", "scheduling.k8s.io/CompositePodGroup",
	"*",
}

// EventResource is the resource of a cluster event.
type EventResource uint32

// The resources of cluster events.
const (
	EventPod EventResource = iota
	EventAssignedPod
	EventUnscheduledPod
	EventTargetPod
	EventNode
	EventPersistentVolume
	EventPersistentVolumeClaim
	EventCSINode
	EventCSIDriver
	EventVolumeAttachment
	EventCSIStorageCapacity
	EventStorageClass
	EventResourceClaim
	EventResourceSlice
	EventDeviceClass
	EventPodGroup
	EventCompositePodGroup
	EventWildCard
)

// EventNamed is the resource of an event about objects that the plugin's configuration names. The
// name follows the event in k8s.io/scheduler.result_cluster_events.
const EventNamed EventResource = 255

// Known reports whether r is one of the resources above.
func (r EventResource) Known() bool { return r < EventResource(len(eventResources)) }

// String returns the framework's name of the resource, empty if it is none.
func (r EventResource) String() string {
	if !r.Known() {
		return ""
	}
	return eventResources[r]
}

// ActionType is a set of changes in a cluster event, with the bits of
// k8s.io/kube-scheduler/framework.ActionType, v0.37.
type ActionType uint32

// The actions of cluster events.
const (
	ActionAdd ActionType = 1 << iota
	ActionDelete
	ActionUpdateNodeAllocatable
	ActionUpdateNodeLabel
	ActionUpdateNodeTaint
	ActionUpdateNodeCondition
	ActionUpdateNodeAnnotation
	ActionUpdateNodeDeclaredFeature
	ActionUpdateNodePreemptionPolicy
	ActionUpdatePodLabel
	ActionUpdatePodScaleDown
	ActionUpdatePodScaleUp
	ActionUpdatePodToleration
	ActionUpdatePodSchedulingGatesEliminated
	ActionUpdatePodGeneratedResourceClaim

	ActionAll    ActionType = 1<<iota - 1
	ActionUpdate            = ActionAll &^ (ActionAdd | ActionDelete)

	// ActionHint is set for an event for which the host shall call
	// queueinghint.
	ActionHint ActionType = 1 << 31
	// ActionPreHint is set for an event for which the host shall call
	// prequeueinghint, once for all Pods.
	ActionPreHint ActionType = 1 << 30
)
