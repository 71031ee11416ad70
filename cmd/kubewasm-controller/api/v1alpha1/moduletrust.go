package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ModuleTrust decides on the modules, the permissions and the shares of the policies of namespaces.
//
// Without any ModuleTrust, each namespace may have AdmissionPolicies. With one, only those namespaces may
// that one selects. Several add up: what one allows is allowed, and the largest bound counts.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=mt,categories=kubewasm
// +kubebuilder:printcolumn:name="Namespaces",type=string,JSONPath=`.spec.namespaceSelector`
// +kubebuilder:printcolumn:name="Repositories",type=string,JSONPath=`.spec.repositories`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ModuleTrust struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +required
	Spec ModuleTrustSpec `json:"spec"`
}

// ModuleTrustSpec is the spec of a ModuleTrust.
type ModuleTrustSpec struct {
	// namespaceSelector is a selector on the labels of namespaces, as of kubectl get -l. Default all.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	// repositories are the repositories of modules, with their registry: "ghcr.io/acme/zone" for one,
	// "ghcr.io/acme/*" for all below. Artifacts of others are not fetched, so that their registries get
	// no credentials.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +listType=set
	// +optional
	Repositories []string `json:"repositories,omitempty"`
	// signatures are those that artifacts of the repositories must have, with the members allOf, anyOf and
	// minimum of a rule of trust in the file of registries, whose rules count, too. Of several ModuleTrusts
	// for a repository one suffices.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Signatures *runtime.RawExtension `json:"signatures,omitempty"`
	// inline allows modules from the object itself, and from ConfigMaps and Secrets of the namespace,
	// which have no signatures.
	//
	// +optional
	Inline bool `json:"inline,omitempty"`
	// grants are the permissions that policies may have.
	//
	// +kubebuilder:validation:MaxItems=64
	// +listType=set
	// +optional
	Grants []string `json:"grants,omitempty"`
	// limits are the largest limits of policies, with the members of limits of a plugin. Each is at
	// least the default.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +optional
	Limits *runtime.RawExtension `json:"limits,omitempty"`
	// quota bounds the policies of each namespace together, in each webhook.
	//
	// +optional
	Quota ModuleTrustQuota `json:"quota,omitzero"`
}

// ModuleTrustQuota bounds the policies of a namespace together. Those that come first by name count
// first. 0 is no bound.
type ModuleTrustQuota struct {
	// policies is the number of policies, at most 32.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	Policies int32 `json:"policies,omitempty"`
	// instances is the sum of limits.instances: the number of processors that they may use at a time.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	Instances int32 `json:"instances,omitempty"`
	// memoryBytes is the sum of limits.memoryBytes of all instances.
	//
	// +optional
	MemoryBytes resource.Quantity `json:"memoryBytes,omitzero"`
	// fuelPerSecond is the fuel that their calls may use in a second, on average: 2,000,000,000 keep about
	// one processor busy. After 10 seconds without calls, the fuel of 10 seconds may be used at once. When
	// it is used up, calls fail, and the failure policies of the policies decide, until it is paid back.
	// Calls for requests, audits, shadows and profiles count, and starts of instances.
	//
	// +kubebuilder:validation:Minimum=0
	// +optional
	FuelPerSecond int64 `json:"fuelPerSecond,omitempty"`
}

// ModuleTrustList is a list of ModuleTrusts.
//
// +kubebuilder:object:root=true
type ModuleTrustList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ModuleTrust `json:"items"`
}
