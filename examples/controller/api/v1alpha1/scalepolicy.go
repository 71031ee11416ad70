package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ScalePolicy has a guest decide how many replicas a workload of its namespace has.
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

// ScalePolicySpec is what a user wants. The schema refuses every value that this struct
// cannot hold: a controller that cannot decode one policy reads no other.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="minReplicas must not be more than maxReplicas"
type ScalePolicySpec struct {
	// scaleTargetRef names the workload: anything in the namespace of the policy that has
	// the subresource scale.
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
	// intervalSeconds is how often the guest is asked.
	//
	// +kubebuilder:default=15
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	// +optional
	IntervalSeconds int32 `json:"intervalSeconds,omitempty"`
	// timeZone is the zone of the time that the guest gets, by its name in the IANA
	// database, as in "Europe/Berlin".
	//
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="a time zone has a name as in Europe/Berlin"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
	// podUsage tells the guest what the Pods of the workload use. The cluster needs the API
	// metrics.k8s.io.
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

// Guest is a module, its configuration, and what it may use.
//
// +kubebuilder:validation:XValidation:rule="[has(self.configMap), has(self.file), has(self.oci)].exists_one(x, x)",message="a guest has one of configMap, file and oci"
type Guest struct {
	// configMap names a module in a ConfigMap of the policy's namespace.
	//
	// +optional
	ConfigMap *ConfigMapKey `json:"configMap,omitempty"`
	// file is a file below the directory that the operator gives the controller.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('/') && !self.split('/').exists(part, part == '..')",message="a file is a path without .. that does not begin with /"
	// +optional
	File string `json:"file,omitempty"`
	// oci is a reference of a registry whose repositories the operator trusts, as in
	// ghcr.io/acme/queue:1.2.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	OCI string `json:"oci,omitempty"`
	// sha256 is the digest that the module must have. Without one, the controller follows
	// the source and replaces the module when it changes.
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
	// grants are what the guest may use beyond the request: metrics is the external metrics
	// of the policy's namespace.
	//
	// +kubebuilder:validation:MaxItems=1
	// +kubebuilder:validation:items:Enum=metrics
	// +listType=set
	// +optional
	Grants []string `json:"grants,omitempty"`
	// limits lower the limits that the operator gives to guests.
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

// Limits bound a call of a guest. What is more than the operator allows counts as that.
type Limits struct {
	// memoryBytes is the most memory that an instance of the guest may have.
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
	// timeoutMilliseconds is how long a call may take.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	// +optional
	TimeoutMilliseconds int32 `json:"timeoutMilliseconds,omitempty"`
}

// ScalePolicyStatus is what the controller found and did.
type ScalePolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are those of the policy: Ready, ModuleCurrent, GuestAnswers and Limited.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// desiredReplicas is the last answer of the guest within the bounds.
	//
	// +optional
	DesiredReplicas *int32 `json:"desiredReplicas,omitempty"`
	// lastDecision is the last answer of the guest. It counts until there is another.
	//
	// +optional
	LastDecision *Decision `json:"lastDecision,omitempty"`
	// lastScaleTime is when the controller last changed the workload.
	//
	// +optional
	LastScaleTime *metav1.Time `json:"lastScaleTime,omitempty"`
}

// Decision is an answer of a guest.
type Decision struct {
	// replicas is the answer, before the bounds were applied.
	Replicas int32 `json:"replicas"`
	// reason is what the guest says of it, 256 bytes at most.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// digest is the SHA-256 of the module that answered.
	Digest string `json:"digest"`
	// time is when the guest first gave this answer.
	Time metav1.Time `json:"time"`
	// workload is the UID of the workload that the answer is about.
	Workload types.UID `json:"workload"`
}

// The types of conditions.
const (
	// Ready is True if the workload has the replicas that the guest wants.
	Ready = "Ready"
	// ModuleCurrent is True if the module that the spec names serves.
	ModuleCurrent = "ModuleCurrent"
	// GuestAnswers is True if the guest answered the last time it was asked.
	GuestAnswers = "GuestAnswers"
	// Limited is True if the bounds changed the answer.
	Limited = "Limited"
)
