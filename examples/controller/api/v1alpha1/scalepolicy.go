package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ScalePolicy lets a guest decide the number of replicas of a workload in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=scp,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.spec.scaleTargetRef.kind`
// +kubebuilder:printcolumn:name="Workload",type=string,JSONPath=`.spec.scaleTargetRef.name`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.minReplicas`
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=`.spec.maxReplicas`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.desiredReplicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.lastDecision.reason`,priority=1
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.status.lastDecision.digest`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ScalePolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +required
	Spec ScalePolicySpec `json:"spec"`
	// +optional
	Status ScalePolicyStatus `json:"status,omitempty"`
}

// ScalePolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type ScalePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScalePolicy `json:"items"`
}

// ScalePolicySpec is the desired configuration. The schema refuses every value that this struct
// cannot hold, since a controller that cannot decode one policy reads no other.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="minReplicas must not be more than maxReplicas"
type ScalePolicySpec struct {
	// scaleTargetRef names the workload: any object in the namespace of the policy with the
	// subresource scale.
	//
	// +required
	ScaleTargetRef ScaleTargetRef `json:"scaleTargetRef"`
	// minReplicas is the lower bound of every answer of the guest.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	// +optional
	MinReplicas int32 `json:"minReplicas"`
	// maxReplicas is the upper bound of every answer of the guest.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	// +required
	MaxReplicas int32 `json:"maxReplicas"`
	// intervalSeconds is the interval between calls of the guest.
	//
	// +kubebuilder:default=15
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// timeZone is the zone of the time that the guest gets, as a name of the IANA database such as
	// "Europe/Berlin".
	//
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="a time zone has a name as in Europe/Berlin"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// podUsage passes the resource usage of the workload's Pods to the guest. The cluster needs the
	// API metrics.k8s.io.
	//
	// +optional
	PodUsage bool `json:"podUsage,omitempty"`
	// guest is the module that decides.
	//
	// +required
	Guest Guest `json:"guest"`
}

// ScaleTargetRef names a workload of the policy's namespace.
type ScaleTargetRef struct {
	// apiVersion is the group and the version, as in apps/v1.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +required
	APIVersion string `json:"apiVersion"`
	// kind is the kind, as in Deployment.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +required
	Kind string `json:"kind"`
	// name is the name of the object.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
}

// Guest is a module with its configuration, grants and limits.
//
// +kubebuilder:validation:XValidation:rule="[has(self.configMap), has(self.file), has(self.oci)].exists_one(x, x)",message="a guest has one of configMap, file and oci"
type Guest struct {
	// configMap names a module in a ConfigMap of the policy's namespace.
	//
	// +optional
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
	// file is a file below the directory configured by the operator.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(part, part == '..')",message="a file is a path without .. that does not begin with /"
	// +optional
	File string `json:"file,omitempty"`
	// oci is a reference to a registry whose repositories the operator trusts, such as
	// ghcr.io/acme/queue:1.2.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	OCI string `json:"oci,omitempty"`
	// sha256 is the required digest of the module. Without one, the controller follows the source
	// and replaces the module when it changes.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +optional
	SHA256 string `json:"sha256,omitempty"`
	// config is the configuration of the guest.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Config *apiextensionsv1.JSON `json:"config,omitempty"`
	// grants are permissions of the guest beyond the request: metrics allows queries of external
	// metrics in the policy's namespace.
	//
	// +kubebuilder:validation:MaxItems=1
	// +kubebuilder:validation:items:Enum=metrics
	// +listType=set
	// +optional
	Grants []string `json:"grants,omitempty"`
	// limits lower the operator's limits for guests.
	//
	// +optional
	Limits *Limits `json:"limits,omitempty"`
}

// ConfigMapKey names a module in a ConfigMap.
type ConfigMapKey struct {
	// name is the name of the ConfigMap.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +required
	Name string `json:"name"`
	// key is the key of binaryData, or of data with a value in base64.
	//
	// +kubebuilder:default="module.wasm"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// Limits bound a call of a guest. Values above those of the operator are reduced to them.
type Limits struct {
	// memoryBytes is the maximum memory of an instance of the guest.
	//
	// +kubebuilder:validation:Minimum=65536
	// +kubebuilder:validation:Maximum=4294967296
	// +optional
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// fuel is the number of WebAssembly instructions that a call may execute.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000000
	// +optional
	Fuel int64 `json:"fuel,omitempty"`
	// timeoutMilliseconds bounds the time of a call.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	// +optional
	TimeoutMilliseconds int32 `json:"timeoutMilliseconds,omitempty"`
}

// ScalePolicyStatus is the observed state of a policy.
type ScalePolicyStatus struct {
	// observedGeneration is the generation of the spec described by the status.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are the conditions of the policy: Ready, ModuleCurrent, GuestAnswers and Limited.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// desiredReplicas is the last answer of the guest within the bounds.
	//
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`
	// lastDecision is the last answer of the guest. It applies until the next answer.
	//
	// +optional
	LastDecision *Decision `json:"lastDecision,omitempty"`
	// lastScaleTime is the time at which the controller last changed the workload.
	//
	// +optional
	LastScaleTime *metav1.Time `json:"lastScaleTime,omitempty"`
}

// Decision is an answer of a guest.
type Decision struct {
	// replicas is the answer, before the bounds were applied.
	Replicas int32 `json:"replicas"`
	// reason is the guest's explanation, at most 256 bytes.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// digest is the SHA-256 of the module that answered.
	Digest string `json:"digest"`
	// time is the time at which the guest first gave this answer.
	Time metav1.Time `json:"time"`
	// workload is the UID of the workload of the answer.
	Workload types.UID `json:"workload"`
}

// The types of conditions.
const (
	// Ready is True if the workload has the number of replicas decided by the guest.
	Ready = "Ready"
	// ModuleCurrent is True if the module named by the spec is in service.
	ModuleCurrent = "ModuleCurrent"
	// GuestAnswers is True if the guest answered the last call.
	GuestAnswers = "GuestAnswers"
	// Limited is True if the bounds changed the answer.
	Limited = "Limited"
)
