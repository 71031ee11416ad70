// Package v1alpha1 has the custom resource ScalePolicy.
//
// +kubebuilder:object:generate=true
// +groupName=autoscaling.kubewasm.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the types.
var GroupVersion = schema.GroupVersion{Group: "autoscaling.kubewasm.dev", Version: "v1alpha1"}

// AddToScheme adds the types to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &ScalePolicy{}, &ScalePolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
