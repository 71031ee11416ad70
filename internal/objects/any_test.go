package objects_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewasm/kubewasm/internal/objects"
)

// TestAnyObjectIsEncodedAsKubernetesDoes compares what EncoderOf encodes with the generated code
// of k8s.io/api, for kinds that have no Encoder of their own.
func TestAnyObjectIsEncodedAsKubernetesDoes(t *testing.T) {
	replicas := int32(3)
	meta := metav1.ObjectMeta{
		Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web", "a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	for _, object := range []metav1.Object{
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: pod}, Status: appsv1.DeploymentStatus{ReadyReplicas: 2}},
		&batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Parallelism: &replicas, Template: pod}},
		&corev1.Namespace{ObjectMeta: meta, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceActive}},
		&corev1.Pod{ObjectMeta: meta, Spec: pod.Spec},
		&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MaxReplicas: 7}},
	} {
		t.Run(fmt.Sprintf("%T", object), func(t *testing.T) {
			v := reflect.ValueOf(object)
			e, ok := objects.EncoderOf(v.Type().Elem())
			if !ok {
				t.Fatal("there is no encoder")
			}
			want, err := objects.Encode(object)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, e.Append(nil, (*objects.Any)(v.UnsafePointer()))); diff != "" {
				t.Errorf("bytes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTypesThatAreNotReadByParts(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[corev1.ConfigMap](), reflect.TypeFor[corev1.Secret](), reflect.TypeFor[corev1.Event](), reflect.TypeFor[corev1.Container](),
		reflect.TypeFor[unstructured.Unstructured](), reflect.TypeFor[string](), reflect.TypeFor[metav1.ObjectMeta](),
	} {
		if _, ok := objects.EncoderOf(typ); ok {
			t.Errorf("%v has an encoder of parts", typ)
		}
	}
}

// TestFieldsOfAnyType encodes the fields of a Deployment that paths name.
func TestFieldsOfAnyType(t *testing.T) {
	replicas := int32(3)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"app": "web", "tier": "a"}},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Paused: true},
		Status:     appsv1.DeploymentStatus{Replicas: 2},
	}
	e, err := objects.FieldsOf(reflect.TypeFor[appsv1.Deployment](), []string{"deployment.spec.replicas", "deployment.metadata.labels[tier]", "pod.spec"})
	if err != nil {
		t.Fatal(err)
	}
	got := &appsv1.Deployment{}
	if err := got.Unmarshal(e.Append(nil, (*objects.Any)(unsafe.Pointer(d)))); err != nil {
		t.Fatal(err)
	}
	want := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", Labels: map[string]string{"tier": "a"}},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if e, err := objects.FieldsOf(reflect.TypeFor[corev1.ConfigMap](), []string{"pod.spec"}); e != nil || err != nil {
		t.Errorf("a ConfigMap: got %v, %v", e, err)
	}
	for path, want := range map[string]string{
		"deployment.spec.replica":           `field path "deployment.spec.replica": DeploymentSpec has no field "replica"; did you mean "replicas"?`,
		"deployment.spec.replicas[a]":       `so "[a]" must be left out`,
		"deployment.metadata.managedFields": "managedFields never travel",
	} {
		if _, err := objects.FieldsOf(reflect.TypeFor[appsv1.Deployment](), []string{path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
