// Package v1alpha1 has the custom resources with which a cluster declares plugins, and those that
// report on them.
//
// A [ClusterAdmissionPolicy], [AdmissionPolicy] or [NodeHook] declares a plugin for the programs
// that are for it: those watch it, and put it into service. Its spec has the members of a plugin in
// the program's configuration file, without a name, which is that of the object. docs/schemas has
// their JSON schemas, and so has the CustomResourceDefinition.
//
// A [PluginRevision] is a version of a plugin. Each process writes one [PluginReport]. The controller adds the reports up in the status of the
// plugins.
//
// v1alpha1 may change incompatibly with each release.
//
// +kubebuilder:object:generate=true
// +groupName=kubewasm.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go run sigs.k8s.io/controller-tools/cmd/controller-gen@v0.23.0 object crd paths=. output:crd:dir=../../../../charts/kubewasm/files/crds
//go:generate go run -C ../../../../internal/testkit/schemas . -crds ../../../charts/kubewasm/files/crds

// GroupVersion is the group and the version of the types.
var GroupVersion = schema.GroupVersion{Group: "kubewasm.dev", Version: "v1alpha1"}

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ClusterAdmissionPolicy{}, &ClusterAdmissionPolicyList{}, &AdmissionPolicy{}, &AdmissionPolicyList{},
		&NodeHook{}, &NodeHookList{}, &PluginRevision{}, &PluginRevisionList{}, &PluginReport{}, &PluginReportList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
