package quantities_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubewasm/kubewasm/internal/quantities"
)

func TestCheck(t *testing.T) {
	pod := func(of string) string {
		return `{"metadata": {"name": "p", "annotations": {"commit": "12e3456789"}}, ` + of + `}`
	}
	for name, test := range map[string]struct {
		document string
		to       any
		want     string
	}{
		"an ordinary Pod":          {pod(`"spec": {"containers": [{"resources": {"limits": {"cpu": "1e3", "memory": 12E6}}}]}`), &corev1.Pod{}, ""},
		"a small quantity":         {pod(`"spec": {"containers": [{"resources": {"limits": {"cpu": "1e-2147483647"}}}]}`), &corev1.Pod{}, `spec.containers[0].resources.limits.cpu: "1e-2147483647" is no quantity`},
		"a number":                 {pod(`"spec": {"containers": [{}, {"resources": {"requests": {"cpu": 1E-214748364}}}]}`), &corev1.Pod{}, `spec.containers[1].resources.requests.cpu: "1E-214748364" is no quantity`},
		"an escape":                {pod(`"spec": {"overhead": {"cpu": "1\u0065-99999"}}`), &corev1.Pod{}, `spec.overhead.cpu: "1e-99999" is no quantity`},
		"another case of a name":   {pod(`"Spec": {"OVERHEAD": {"cpu": "1e-99999"}}`), &corev1.Pod{}, `Spec.OVERHEAD.cpu: "1e-99999" is no quantity`},
		"the first of two members": {pod(`"spec": {"overhead": {"cpu": "1e-99999", "cpu": "1"}}`), &corev1.Pod{}, `spec.overhead.cpu: "1e-99999" is no quantity`},
		"a long text":              {pod(`"spec": {"overhead": {"cpu": "` + strings.Repeat("1", 200) + `"}}`), &corev1.Pod{}, `spec.overhead.cpu: "1111`},
		"a status":                 {pod(`"status": {"containerStatuses": [{"allocatedResources": {"cpu": "1e-99999"}}]}`), &corev1.Pod{}, `status.containerStatuses[0].allocatedResources.cpu: "1e-99999" is no quantity`},
		"a Node":                   {`{"status": {"capacity": {"cpu": "1e-99999"}}}`, &corev1.Node{}, `status.capacity.cpu: "1e-99999" is no quantity`},
		"a pointer":                {`{"spec": {"metrics": [{"pods": {"target": {"averageValue": "1e-99999"}}}]}}`, &autoscalingv2.HorizontalPodAutoscaler{}, `spec.metrics[0].pods.target.averageValue: "1e-99999" is no quantity`},
		"a quantity alone":         {`"1e-99999"`, new(resource.Quantity), `"1e-99999" is no quantity`},
		"no quantity":              {pod(`"spec": {"nodeName": "1e-99999"}`), &corev1.Pod{}, ""},
		"no JSON":                  {`{"spec": {"overhead": {"cpu": "1e-99999`, &corev1.Pod{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := quantities.Check([]byte(test.document), test.to)
			if got := fmt.Sprint(err); test.want == "" && err != nil || !strings.HasPrefix(got, test.want) && test.want != "" {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// FuzzCheck holds that what is not refused is decoded at once: the parser of a quantity with an
// exponent of three digits takes no time.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"cpu": "1e-999"}`, `{"CPU": "1e-9999"}`, `{"cpu": 1e-99999, "cpu": "1"}`, `{"cpu": "1\u0065-99999"}`, `{"cpu": "0.1E+5"}`} {
		f.Add([]byte(seed))
	}
	type list struct {
		CPU resource.Quantity `json:"cpu"`
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		if quantities.Check(document, &list{}) != nil {
			return
		}
		var l list
		if json.Unmarshal(document, &l) == nil {
			if text := l.CPU.String(); len(text) > 4096 {
				t.Errorf("%d bytes", len(text))
			}
		}
	})
}
