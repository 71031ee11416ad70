package objects

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kept is an object of which the JSON is kept: a custom resource, or another that has no type in
// Go. The JSON has no managedFields. Of the metadata it has the namespace, the name, the UID, the
// resource version and the labels. It does not change.
type Kept struct {
	metav1.PartialObjectMetadata
	JSON []byte
}

// Keep returns an object with its JSON.
func Keep(u *unstructured.Unstructured, raw []byte) *Kept {
	k := &Kept{JSON: raw}
	k.APIVersion, k.Kind = u.GetAPIVersion(), u.GetKind()
	k.Namespace, k.Name, k.UID, k.ResourceVersion, k.Labels = u.GetNamespace(), u.GetName(), u.GetUID(), u.GetResourceVersion(), u.GetLabels()
	return k
}

// DeepCopyObject implements runtime.Object.
func (k *Kept) DeepCopyObject() runtime.Object { return k }
