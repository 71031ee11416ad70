package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// SchedulerPlugin declares a plugin of schedulers. It serves in the profiles that name it with the
// arguments {cluster: true}.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=sp,categories=kubewasm
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Schedulers",type=string,JSONPath=`.spec.schedulers.names`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a name has at most 63 characters"
type SchedulerPlugin struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec has the members of a plugin's args in KubeSchedulerConfiguration,
	// docs/schemas/scheduler.json, and schedulers, the processes that it is for.
	//
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec"`
	// +optional
	Status PluginStatus `json:"status,omitzero"`
}

// SchedulerPluginList is a list of plugins.
//
// +kubebuilder:object:root=true
type SchedulerPluginList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SchedulerPlugin `json:"items"`
}
