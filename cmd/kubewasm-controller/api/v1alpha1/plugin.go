package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// ClusterAdmissionPolicy declares a policy of the admission webhooks for the whole cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=cap,categories=kubewasm
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.conditions[?(@.type=="RolledOut")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a name has at most 63 characters"
type ClusterAdmissionPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec has the members of a plugin in the webhook's file, docs/schemas/policies.json, without
	// name.
	//
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec"`
	// +optional
	Status PluginStatus `json:"status,omitzero"`
}

// ClusterAdmissionPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type ClusterAdmissionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterAdmissionPolicy `json:"items"`
}

// AdmissionPolicy declares a policy of the admission webhooks that is asked about the objects of its
// namespace alone.
//
// The webhooks hold what its owner may not decide: its module comes from a registry, or from a
// ConfigMap or Secret of its namespace; it looks up objects of its namespace alone; and it has no
// permissions of the server.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=ap,categories=kubewasm
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.conditions[?(@.type=="RolledOut")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a name has at most 63 characters"
type AdmissionPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec has the members of a plugin in the webhook's file, docs/schemas/policies.json, without
	// name.
	//
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec"`
	// +optional
	Status PluginStatus `json:"status,omitzero"`
}

// AdmissionPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type AdmissionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AdmissionPolicy `json:"items"`
}

// NodeHook declares a plugin of the node agents.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nh,categories=kubewasm
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.ready`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.spec.nodeSelector`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.conditions[?(@.type=="RolledOut")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`,priority=1
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",message="a name has at most 63 characters"
type NodeHook struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec has the members of a plugin in the agent's file, docs/schemas/hook.json, without name,
	// and nodeSelector, a selector on the labels of the nodes.
	//
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	Spec runtime.RawExtension `json:"spec"`
	// +optional
	Status PluginStatus `json:"status,omitzero"`
}

// NodeHookList is a list of hooks.
//
// +kubebuilder:object:root=true
type NodeHookList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NodeHook `json:"items"`
}

// The types of the conditions of a plugin.
const (
	// ConditionReady is true if the declared plugin serves in every process that is for it. Its
	// message says why not.
	ConditionReady = "Ready"
	// ConditionResolved is true if the tag of the module was resolved to a digest, and the module
	// fetched, checked and found loadable.
	ConditionResolved = "Resolved"
	// ConditionSent is true if a webhook configuration sends the requests that a policy is for.
	ConditionSent = "Sent"
	// ConditionRolledOut is true if the wanted revision is the stable one. Its message says where its
	// rollout is, or why it was rolled back.
	ConditionRolledOut = "RolledOut"
)

// PluginStatus is the status of a plugin. The controller writes it from the reports.
type PluginStatus struct {
	// observedGeneration is the generation that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// pin is the artifact that the processes load in place of the one that a tag names.
	//
	// +optional
	Pin *Pin `json:"pin,omitempty"`
	// rollout has the revisions of the plugin.
	//
	// +optional
	Rollout *RolloutStatus `json:"rollout,omitempty"`
	// revision is the number of the revision that processes serve, or several with the numbers of their
	// processes: "3 (495), 4 (5)".
	//
	// +optional
	Revision string `json:"revision,omitempty"`
	// desired is the number of processes that report on the plugin, or are to. serving is the number
	// of those that serve it as it was declared.
	//
	// +optional
	Desired int32 `json:"desired"`
	// +optional
	Serving int32 `json:"serving"`
	// ready is "serving/desired".
	//
	// +optional
	Ready string `json:"ready,omitempty"`
	// digest is the SHA-256 of the module that most processes serve, in hexadecimal.
	//
	// +optional
	Digest string `json:"digest,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Pin is the artifact that a module's tag was resolved to, once for all processes.
type Pin struct {
	// generation is the generation of the plugin whose module was resolved. Processes go on with the
	// generation before until theirs is pinned.
	Generation int64 `json:"generation"`
	// reference is the artifact with its digest.
	Reference string `json:"reference"`
}

// RolloutStatus has the revisions of a plugin. If the spec has a rollout or a revision, each process
// serves the revision that this has for it, by its name, and nothing else.
type RolloutStatus struct {
	// generation is the generation of the plugin that this is about, and pin its module's pin.
	Generation int64 `json:"generation"`
	// +optional
	Pin string `json:"pin,omitempty"`
	// wanted is the number of the revision that the spec wants: that of the spec, or the one that it
	// names.
	//
	// +optional
	Wanted int64 `json:"wanted,omitempty"`
	// stable is the revision that the processes serve that are in no step.
	//
	// +optional
	Stable *RevisionRef `json:"stable,omitempty"`
	// candidate is the revision on trial.
	//
	// +optional
	Candidate *RevisionRef `json:"candidate,omitempty"`
	// failed is the number of the wanted revision if it was rolled back. The next change of the spec
	// tries it again.
	//
	// +optional
	Failed int64 `json:"failed,omitempty"`
	// trial is the number of the last trial of a candidate: the generation with which it has begun, or
	// a later number if that was another trial's.
	//
	// +optional
	Trial int64 `json:"trial,omitempty"`
	// step is the number of the step, from 1, and since the time when it has begun.
	//
	// +optional
	Step int32 `json:"step,omitempty"`
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// below and nodeSelectors choose the processes of the step: those whose place is below, of
	// 4294967296, and those on the nodes that one of the selectors selects.
	//
	// +optional
	Below int64 `json:"below,omitempty"`
	// +listType=atomic
	// +optional
	NodeSelectors []string `json:"nodeSelectors,omitempty"`
	// mode is that of the step.
	//
	// +optional
	Mode string `json:"mode,omitempty"`
	// failures, differences and latency are those of spec.rollout.analysis.
	//
	// +optional
	Failures int64 `json:"failures,omitempty"`
	// +optional
	Differences int64 `json:"differences,omitempty"`
	// +optional
	Latency string `json:"latency,omitempty"`
}

// RevisionRef is a revision, for the processes that serve it.
type RevisionRef struct {
	// revision is its number, and generation the generation of the plugin that had it first.
	Revision   int64 `json:"revision"`
	Generation int64 `json:"generation"`
	// spec is the spec of the revision, and pin the artifact to load in place of module.oci. Revisions
	// of plugins without a rollout are not repeated here.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +mapType=atomic
	// +optional
	Spec *runtime.RawExtension `json:"spec,omitempty"`
	// +optional
	Pin string `json:"pin,omitempty"`
}

// PluginRevision is a version of a plugin: each spec and pin that differs from the others has one. The
// controller writes them, in the namespace of the plugin, or in its own for plugins of the cluster,
// which own them. They do not change.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=prev
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=`.pluginKind`
// +kubebuilder:printcolumn:name="Plugin",type=string,JSONPath=`.plugin`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.revision`
// +kubebuilder:printcolumn:name="Pin",type=string,JSONPath=`.pin`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PluginRevision struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// pluginKind and plugin are the kind and the name of the plugin.
	PluginKind string `json:"pluginKind"`
	Plugin     string `json:"plugin"`
	// revision is the number. A plugin's first is 1, and no number is used twice.
	Revision int64 `json:"revision"`
	// generation is the generation of the plugin that had it first.
	Generation int64 `json:"generation"`
	// spec is the spec of the plugin without rollout, revision, revisionHistoryLimit and enabled.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec runtime.RawExtension `json:"spec"`
	// pin is the artifact that a tag was resolved to.
	//
	// +optional
	Pin string `json:"pin,omitempty"`
	// hash is the SHA-256 of the spec and the pin, in hexadecimal.
	Hash string `json:"hash"`
}

// PluginRevisionList is a list of revisions.
//
// +kubebuilder:object:root=true
type PluginRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PluginRevision `json:"items"`
}

// PluginReport has the plugins of one process. It is in the namespace of the process's Pod, which
// owns it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kubewasm
// +kubebuilder:printcolumn:name="Component",type=string,JSONPath=`.component`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.node`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.version`
// +kubebuilder:printcolumn:name="Serving",type=integer,JSONPath=`.serving`
// +kubebuilder:printcolumn:name="Others",type=integer,JSONPath=`.others`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PluginReport struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// component is the program: kubewasm-webhook, kubewasm-agent or kubewasm-scheduler.
	Component string `json:"component"`
	// schedulers are the names of the profiles of a scheduler.
	//
	// +listType=set
	// +optional
	Schedulers []string `json:"schedulers,omitempty"`
	// version is the version of the program.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// renewed is the time at which a process in no Pod has written the report last, by the half hour. A
	// report that no Pod owns, and that is not renewed, is removed.
	//
	// +optional
	Renewed *metav1.Time `json:"renewed,omitempty"`
	// node is the name of the process's node.
	//
	// +optional
	Node string `json:"node,omitempty"`
	// engine is compiler or interpreter.
	//
	// +optional
	Engine string `json:"engine,omitempty"`
	// serving and others are the numbers of plugins that serve as they were declared, and of the
	// others.
	Serving int32 `json:"serving"`
	Others  int32 `json:"others"`
	// plugins are the objects that are for the process.
	//
	// +listType=atomic
	// +optional
	Plugins []PluginState `json:"plugins,omitempty"`
}

// PluginReportList is a list of reports.
//
// +kubebuilder:object:root=true
type PluginReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PluginReport `json:"items"`
}

// PluginState is the state of a plugin in one process.
type PluginState struct {
	// kind, namespace and name are those of the object.
	Kind string `json:"kind"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// uid is that of the object. It tells an object from an earlier one of the same name.
	//
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// webhooks are the webhooks of which the module in service is a part: validate, mutate. A policy
	// gets requests of no other, since it would deny them.
	//
	// +listType=set
	// +optional
	Webhooks []string `json:"webhooks,omitempty"`
	// generation is the generation that the process has tried last.
	Generation int64 `json:"generation"`
	// revision is the number of that version, for a plugin with a rollout or a revision.
	//
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// trial is that of status.rollout if the version is or was the candidate. failing says why it
	// has failed in this process.
	//
	// +optional
	Trial int64 `json:"trial,omitempty"`
	// +optional
	Failing string `json:"failing,omitempty"`
	// state compares what serves with that generation: Loading, Serving, Stale (an earlier version
	// serves), Unavailable (none serves), Disabled, or Refused, for an object that the process does
	// not take: an earlier generation of it may serve.
	State string `json:"state"`
	// since is the time since which the module in service serves.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// message says why the plugin does not serve as it was declared.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// digest is the SHA-256 of the module in service, in hexadecimal, and reference its source.
	//
	// +optional
	Digest string `json:"digest,omitempty"`
	// +optional
	Reference string `json:"reference,omitempty"`
}

// StateRefused is the state of an object that a process does not take. The other states are those of
// package host.
const StateRefused = "Refused"
