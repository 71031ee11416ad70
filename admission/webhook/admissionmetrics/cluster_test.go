package admissionmetrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/kubewasm/kubewasm/admission/webhook/admissionmetrics"
	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/host"
)

func TestCluster(t *testing.T) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{pods: "PodList"})
	c := clustercache.New(t.Context(), client, meta.NewDefaultRESTMapper(nil), nil)
	if err := c.Keep(pods, "shop", host.ObjectQuery{}).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP kubewasm_admission_objects_age_seconds Time since the last answer of the API server to a list or watch of objects for look-ups; 0 while they are watched.
# TYPE kubewasm_admission_objects_age_seconds gauge
kubewasm_admission_objects_age_seconds{object_namespace="shop",resource="v1/pods"} 0
`
	if err := testutil.CollectAndCompare(admissionmetrics.NewCluster(c), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
