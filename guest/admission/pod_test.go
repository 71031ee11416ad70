package admission_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/guest/admission"
)

// reviewOf returns the request of an object as an API server sends it.
func reviewOf(t *testing.T, kind schema.GroupVersionKind, subResource string, object runtime.Object) *admission.Request {
	t.Helper()
	raw, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	review := fmt.Sprintf(`{"request":{"uid":"u","operation":"UPDATE","kind":{"group":%q,"version":%q,"kind":%q},"subResource":%q,"object":%s,"oldObject":%[5]s}}`,
		kind.Group, kind.Version, kind.Kind, subResource, raw)
	req, err := admission.RequestFromReview([]byte(review))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func TestPodOf(t *testing.T) {
	meta := metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}
	spec := corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "a", Image: "init"}, {Name: "b", Image: "sidecar"}},
		Containers:     []corev1.Container{{Name: "c", Image: "web"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d", Image: "debug"}, TargetContainerName: "c"},
		},
	}
	template := corev1.PodTemplateSpec{ObjectMeta: meta, Spec: spec}
	apps, batch, core := appsv1.SchemeGroupVersion, batchv1.SchemeGroupVersion, corev1.SchemeGroupVersion
	job := batchv1.JobSpec{Template: template}
	tests := map[string]struct {
		kind        schema.GroupVersionKind
		subResource string
		object      runtime.Object
		path        string // "-" if it has no Pod.
	}{
		"Pod":                 {core.WithKind("Pod"), "", &corev1.Pod{ObjectMeta: meta, Spec: spec}, ""},
		"ephemeralcontainers": {core.WithKind("Pod"), "ephemeralcontainers", &corev1.Pod{ObjectMeta: meta, Spec: spec}, ""},
		"resize":              {core.WithKind("Pod"), "resize", &corev1.Pod{ObjectMeta: meta, Spec: spec}, ""},
		"Deployment":          {apps.WithKind("Deployment"), "", &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}, "spec.template"},
		"ReplicaSet":          {apps.WithKind("ReplicaSet"), "", &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}}, "spec.template"},
		"StatefulSet":         {apps.WithKind("StatefulSet"), "", &appsv1.StatefulSet{Spec: appsv1.StatefulSetSpec{Template: template}}, "spec.template"},
		"DaemonSet":           {apps.WithKind("DaemonSet"), "", &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: template}}, "spec.template"},
		"Job":                 {batch.WithKind("Job"), "", &batchv1.Job{Spec: job}, "spec.template"},
		"CronJob":             {batch.WithKind("CronJob"), "", &batchv1.CronJob{Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: job}}}, "spec.jobTemplate.spec.template"},
		"ReplicationController": {core.WithKind("ReplicationController"), "",
			&corev1.ReplicationController{Spec: corev1.ReplicationControllerSpec{Template: &template}}, "spec.template"},
		"PodTemplate": {core.WithKind("PodTemplate"), "", &corev1.PodTemplate{Template: template}, "template"},
		"of a review by hand": {schema.GroupVersionKind{}, "",
			&appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, Spec: appsv1.DeploymentSpec{Template: template}}, "spec.template"},
		"scale":   {autoscalingv1.SchemeGroupVersion.WithKind("Scale"), "scale", &autoscalingv1.Scale{}, "-"},
		"exec":    {core.WithKind("PodExecOptions"), "exec", &corev1.PodExecOptions{}, "-"},
		"Service": {core.WithKind("Service"), "", &corev1.Service{}, "-"},
		"a Deployment of another group": {schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Deployment"}, "",
			&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: template}}, "-"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req := reviewOf(t, test.kind, test.subResource, test.object)
			pod, ok := admission.PodOf(req)
			if ok != (test.path != "-") {
				t.Fatalf("ok is %v", ok)
			}
			if !ok {
				return
			}
			if got := pod.Path().String(); got != test.path || pod.Metadata().Labels().Get("app") != "web" {
				t.Errorf("the Pod is at %q and has the labels %v", got, pod.Metadata().Labels())
			}
			at := test.path
			if at != "" {
				at += "."
			}
			want := []string{
				at + "spec.initContainers[0] a init", at + "spec.initContainers[1] b sidecar", at + "spec.containers[0] c web", at + "spec.ephemeralContainers[0] d debug",
			}
			var got []string
			for c := range pod.AllContainers() {
				got = append(got, c.Path().String()+" "+c.Name()+" "+c.Image())
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
			for n := range want { // One that stops early is not asked further.
				for range pod.AllContainers() {
					if n--; n < 0 {
						break
					}
				}
			}
			if old, ok := admission.OldPodOf(req); !ok || old.Path().String() != test.path {
				t.Error("there is no old Pod")
			}
		})
	}
	gone, err := admission.RequestFromReview([]byte(`{"request":{"operation":"DELETE","kind":{"version":"v1","kind":"Pod"},"oldObject":{"spec":{}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := admission.PodOf(gone); ok {
		t.Error("a Pod of a request without an object")
	}
	if _, ok := admission.OldPodOf(gone); !ok {
		t.Error("no old Pod of a Pod that is deleted")
	}
}
