package objects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// message is the interface that the generated code of k8s.io/api gives every object. It writes map
// entries in the order of their keys, so that equal objects have equal bytes.
type message interface {
	Size() int
	MarshalToSizedBuffer(b []byte) (int, error)
}

// Encode returns the bytes of an object of any kind for a guest, without
// managedFields: protobuf, or the JSON of a [Kept]. object is not changed. The
// error is for another object that is not one of k8s.io/api.
func Encode(object metav1.Object) ([]byte, error) {
	switch o := object.(type) {
	case *corev1.Pod:
		return allFields().pod.Append(nil, o), nil
	case *corev1.Node:
		return allFields().node.Append(nil, o), nil
	case *Kept:
		return o.JSON, nil
	}
	if _, ok := object.(message); !ok {
		return nil, fmt.Errorf("encode %T %q: it has no protobuf encoding", object, object.GetName())
	}
	original, ok := object.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("encode %T %q: it cannot be copied", object, object.GetName())
	}
	// The few objects encoded here may be copied. The generated code changes the object that it
	// encodes: it keeps the texts of quantities in them.
	clone := original.DeepCopyObject()
	clone.(metav1.Object).SetManagedFields(nil)
	m := clone.(message)
	b := make([]byte, m.Size())
	n, err := m.MarshalToSizedBuffer(b)
	if err != nil {
		return nil, fmt.Errorf("encode %T %q: %w", object, object.GetName(), err)
	}
	return b[len(b)-n:], nil
}
