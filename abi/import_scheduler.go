package abi

// The functions of [ModuleScheduler].
const (
	// ImportNodeScores is k8s.io/scheduler.node_scores (buf, limit) -> len.
	ImportNodeScores = "node_scores"
	// ImportNodeNames is k8s.io/scheduler.node_names (buf, limit) -> len.
	ImportNodeNames = "node_names"
	// ImportNodeRefs is k8s.io/scheduler.node_refs (buf, limit) -> len.
	ImportNodeRefs = "node_refs"
	// ImportNodeName is k8s.io/scheduler.node_name (buf, limit) -> len.
	ImportNodeName = "node_name"
	// ImportNodeByName is k8s.io/scheduler.node_by_name (ptr, len) -> i64.
	ImportNodeByName = "node_by_name"
	// ImportNodeInfoVersion is k8s.io/scheduler.node_info_version (node i64) -> i64.
	ImportNodeInfoVersion = "node_info_version"
	// ImportNodeInfo is k8s.io/scheduler.node_info (node i64, buf, limit) -> len.
	ImportNodeInfo = "node_info"
	// ImportNodeImages is k8s.io/scheduler.node_images (node i64, buf, limit) -> len.
	ImportNodeImages = "node_images"
	// ImportNodePods is k8s.io/scheduler.node_pods (node i64, buf, limit) -> len.
	ImportNodePods = "node_pods"
	// ImportNodeStatuses is k8s.io/scheduler.node_statuses (buf, limit) -> len.
	ImportNodeStatuses = "node_statuses"
	// ImportPodGroup is k8s.io/scheduler.pod_group (buf, limit) -> len.
	ImportPodGroup = "pod_group"
	// ImportPodGroupPod is k8s.io/scheduler.pod_group_pod (index, buf, limit) -> len.
	ImportPodGroupPod = "pod_group_pod"
	// ImportTryPodGroup is k8s.io/scheduler.try_pod_group (ptr, len, buf, limit) -> len.
	ImportTryPodGroup = "try_pod_group"
	// ImportPlacement is k8s.io/scheduler.placement (buf, limit) -> len.
	ImportPlacement = "placement"
	// ImportResultNodeNames is k8s.io/scheduler.result_node_names (ptr, len).
	ImportResultNodeNames = "result_node_names"
	// ImportResultScores is k8s.io/scheduler.result_scores (ptr, len).
	ImportResultScores = "result_scores"
	// ImportResultClusterEvents is k8s.io/scheduler.result_cluster_events (ptr, len).
	ImportResultClusterEvents = "result_cluster_events"
	// ImportResultNominatedNodeName is k8s.io/scheduler.result_nominated_node_name (ptr, len).
	ImportResultNominatedNodeName = "result_nominated_node_name"
	// ImportResultSignFragments is k8s.io/scheduler.result_sign_fragments (ptr, len).
	ImportResultSignFragments = "result_sign_fragments"
	// ImportResultNominations is k8s.io/scheduler.result_nominations (ptr, len).
	ImportResultNominations = "result_nominations"
	// ImportResultPlacements is k8s.io/scheduler.result_placements (ptr, len).
	ImportResultPlacements = "result_placements"

	// ImportEvent is k8s.io/scheduler.event (ptr, len).
	ImportEvent = "event"
	// ImportWaitingPods is k8s.io/scheduler.waiting_pods (buf, limit) -> len.
	ImportWaitingPods = "waiting_pods"
	// ImportWaitingPod is k8s.io/scheduler.waiting_pod (ptr, len, buf, limit) -> len.
	ImportWaitingPod = "waiting_pod"
	// ImportAllowWaitingPod is k8s.io/scheduler.allow_waiting_pod (ptr, len) -> i32.
	ImportAllowWaitingPod = "allow_waiting_pod"
	// ImportRejectWaitingPod is k8s.io/scheduler.reject_waiting_pod (ptr, len) -> i32.
	ImportRejectWaitingPod = "reject_waiting_pod"
)
