package hookmsg

import "github.com/kubewasm/kubewasm/abi"

// Request is the host's request for a decision.
type Request struct {
	// Stage is the moment of the request.
	Stage abi.Stage
	// Level is the subject of the request.
	Level abi.Level
	// Pod is empty at level QOS.
	Pod PodMeta
	// Container is empty at levels QOS and Pod.
	Container ContainerMeta
	// PodLabels and PodAnnotations are those of the pod object.
	PodLabels, PodAnnotations map[string]string
	// ContainerAnnotations are those that the runtime keeps of the container.
	ContainerAnnotations map[string]string
	// CgroupParent is the cgroup of the pod, under which those of its containers
	// lie, or the cgroup of the class at level QOS: a slash-separated path
	// relative to the root of the hierarchy.
	CgroupParent string
	// QOSClass is the class of the pod, or the class at level QOS.
	QOSClass abi.QOSClass
	// Resources are those requested by the kubelet, before any plugin changed them. nil fields are
	// not known to the host.
	Resources *Resources
	// ContainerEnvs is the environment of the container, in the runtime's order. Of several values
	// with one name the last counts.
	ContainerEnvs []Env
	// Node is the node of the host, nil if it is not known.
	Node *Node
}

// Node describes the node of the host.
type Node struct {
	// Name, Labels and Annotations are those of the Node object.
	Name                string
	Labels, Annotations map[string]string
	// Capacity and Allocatable are those of its status, quantities by resource.
	Capacity, Allocatable map[string]string
	// Topology is the arrangement of its processors, nil if that is not known.
	Topology *Topology
}

// Topology is the arrangement of a node's processors. Lists of CPUs are in the kernel's format:
// "0-3,8". CPUs that are offline are in none of them.
type Topology struct {
	// OnlineCPUs is the list of online CPUs.
	OnlineCPUs string
	// NUMANodes are those with CPUs or memory, by ID.
	NUMANodes []NUMANode
	// Sockets are by ID, Cores in the order of their first CPUs. The IDs of cores may be
	// the same in two sockets.
	Sockets, Cores []CPUGroup
	// Caches are those of the CPUs, each once, by level, type and first CPU.
	Caches []CPUCache
}

// NUMANode is a memory node with its CPUs.
type NUMANode struct {
	ID          int64
	CPUs        string
	MemoryBytes int64
}

// CPUGroup is the CPUs of a socket or a core.
type CPUGroup struct {
	ID   int64
	CPUs string
}

// CPUCache is a cache and the CPUs that share it.
type CPUCache struct {
	Level int64
	// Type is Data, Instruction or Unified.
	Type      string
	SizeBytes int64
	CPUs      string
}

// Env is a variable of an environment.
type Env struct{ Name, Value string }

// PodMeta names a pod by its metadata.
type PodMeta struct {
	Namespace, Name, UID string
}

// ContainerMeta names a container: by its name in the pod's spec and by the
// identifier of the runtime, which is empty before it is created.
type ContainerMeta struct {
	Name, ID string
}

// Resources are the limits and weights of one cgroup. A nil field is not known,
// in a request, or stays as it is, in a decision. hook.proto has the ranges.
type Resources struct {
	// CPUShares is in the unit of cgroup v1, where 1024 is one CPU.
	CPUShares *int64
	// CFSQuotaUS and CFSPeriodUS are in microseconds; a quota of -1 is no limit.
	CFSQuotaUS, CFSPeriodUS *int64
	// CPUSetCPUs and CPUSetMems are lists in the kernel's format: "0-3,8".
	CPUSetCPUs, CPUSetMems *string
	// CPUBvt is the group identity, cpu.bvt_warp_ns.
	CPUBvt *int64
	// CPUIdle is 1 for tasks that run only on idle CPUs.
	CPUIdle *int64
	// CPUBurstUS is in microseconds.
	CPUBurstUS *int64
	// The memory fields are in bytes; -1 is no limit.
	MemoryLimitBytes, MemoryMinBytes, MemoryLowBytes, MemoryHighBytes *int64
	// OOMScoreAdj belongs to the processes of a container, not to its cgroup.
	OOMScoreAdj *int64
	// Unified are other files of the cgroup and the values to write to them.
	Unified map[string]string
	// NetClsClassID is the class of packets.
	NetClsClassID *int64
	// CoreSchedGroup and ResctrlGroup name groups of a container's processes; ResctrlSchemata is
	// the resources of the latter.
	CoreSchedGroup, ResctrlGroup, ResctrlSchemata *string
}

// Decision is the set of changes to make. nil means unchanged.
type Decision struct {
	// Resources of the cgroup of the request.
	Resources *Resources
	// ContainerAnnotations are added to the container, or replaced.
	ContainerAnnotations map[string]string
	// ContainerEnvs are added to the container's environment, or replaced.
	ContainerEnvs map[string]string
	// ContainerMounts and ContainerDevices are added to the container.
	ContainerMounts  []Mount
	ContainerDevices []Device
}

// Mount is a mount of a container, as in the OCI runtime specification.
type Mount struct {
	// Destination is the path in the container, Source the mounted object: for a bind mount, a path
	// on the node.
	Destination, Source string
	// Type is that of the file system.
	Type    string
	Options []string
}

// Device is a device file of a container, as in the OCI runtime specification.
type Device struct {
	// Path is that in the container.
	Path string
	// Type is "c", "b" or "p".
	Type         string
	Major, Minor int64
	// FileMode, UID and GID are the runtime's defaults if they are nil.
	FileMode, UID, GID *int64
}
