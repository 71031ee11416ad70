package objects

import (
	"fmt"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// message is what the generated code of k8s.io/api gives every object. It
// writes map entries in the order of their keys, so that equal objects have
// equal bytes.
type message interface {
	Size() int
	MarshalToSizedBuffer(b []byte) (int, error)
}

// Pod returns the bytes of pod for a guest: k8s.io.api.core.v1.Pod, without
// managedFields. pod is not changed.
func Pod(pod *corev1.Pod) ([]byte, error) { return (*Projection)(nil).Pod(pod) }

// Node returns the bytes of node for a guest: k8s.io.api.core.v1.Node, without
// managedFields. node is not changed.
func Node(node *corev1.Node) ([]byte, error) { return (*Projection)(nil).Node(node) }

// Pod returns the bytes of those fields of pod that the Projection has. pod is
// not changed.
func (p *Projection) Pod(pod *corev1.Pod) ([]byte, error) { return p.appendPod(nil, pod) }

// Node returns the bytes of those fields of node that the Projection has. node
// is not changed.
func (p *Projection) Node(node *corev1.Node) ([]byte, error) { return p.appendNode(nil, node) }

// DeclaredPod returns the bytes of those fields of pod that the paths of the
// Projection name, without the identity that travels with them, and whether they
// name any. Pods that are equal in these fields have equal bytes.
func (p *Projection) DeclaredPod(pod *corev1.Pod) (b []byte, ok bool, err error) {
	if p == nil || p.declared == nil {
		return nil, false, nil
	}
	b, err = p.declared.append(nil, unsafe.Pointer(pod))
	if err != nil {
		return nil, true, fmt.Errorf("encode Pod %q: %w", pod.Namespace+"/"+pod.Name, err)
	}
	return b, true, nil
}

func (p *Projection) appendPod(b []byte, pod *corev1.Pod) ([]byte, error) {
	b, err := p.orEverything().pod.append(b, unsafe.Pointer(pod))
	if err != nil {
		return nil, fmt.Errorf("encode Pod %q: %w", pod.Namespace+"/"+pod.Name, err)
	}
	return b, nil
}

func (p *Projection) appendNode(b []byte, node *corev1.Node) ([]byte, error) {
	b, err := p.orEverything().node.append(b, unsafe.Pointer(node))
	if err != nil {
		return nil, fmt.Errorf("encode Node %q: %w", node.Name, err)
	}
	return b, nil
}

// Encode returns the bytes of an object of any kind for a guest, without
// managedFields. object is not changed. The error is for an object that is not
// one of k8s.io/api.
func Encode(object metav1.Object) ([]byte, error) {
	if _, ok := object.(message); !ok {
		return nil, fmt.Errorf("encode %T %q: it has no protobuf encoding", object, object.GetName())
	}
	original, ok := object.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("encode %T %q: it cannot be copied", object, object.GetName())
	}
	// The few objects that come this way may be copied. The generated code changes
	// what it encodes: it keeps the texts of quantities in them.
	clone := original.DeepCopyObject()
	clone.(metav1.Object).SetManagedFields(nil)
	m := clone.(message)
	return marshal(m, fmt.Sprintf("%T", object), object.GetName())
}

func marshal(m message, kind, name string) ([]byte, error) {
	b := make([]byte, m.Size())
	n, err := m.MarshalToSizedBuffer(b)
	if err != nil {
		return nil, fmt.Errorf("encode %s %q: %w", kind, name, err)
	}
	return b[len(b)-n:], nil
}
