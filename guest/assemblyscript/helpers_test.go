package assemblyscript_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	componentresource "k8s.io/component-helpers/resource"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// randomPod returns a Pod with requests, host ports and a constraint.
func randomPod(r *rand.Rand) *corev1.Pod {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	amounts := func() corev1.ResourceList {
		list := corev1.ResourceList{}
		for range r.IntN(4) {
			name := corev1.ResourceName(pick("cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/gpu"))
			list[name] = resource.MustParse(pick("0", "1", "100m", "1500m", "1Gi", "512Mi", "1e3", "7n", "2.5"))
		}
		return list
	}
	containers := func() (list []corev1.Container) {
		for range r.IntN(4) {
			c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: amounts(), Limits: amounts()}}
			for range r.IntN(3) {
				c.Ports = append(c.Ports, corev1.ContainerPort{HostPort: r.Int32N(3), Protocol: corev1.Protocol(pick("", "TCP", "UDP")), HostIP: pick("", "0.0.0.0", "10.0.0.1", "10.0.0.2")})
			}
			list = append(list, c)
		}
		return list
	}
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: containers(), InitContainers: containers()}}
	for i := range p.Spec.InitContainers {
		if policy := corev1.ContainerRestartPolicy(pick("", "Always", "Never")); policy != "" {
			p.Spec.InitContainers[i].RestartPolicy = &policy
		}
	}
	if r.IntN(2) == 0 {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: amounts()}
		p.Spec.Overhead = amounts()
	}
	for range r.IntN(3) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[pick("app", "zone", "disk")] = pick("a", "b", "")
	}
	c := corev1.TopologySpreadConstraint{MatchLabelKeys: []string{"zone", "disk", "none"}[:r.IntN(4)]}
	if r.IntN(4) > 0 {
		c.LabelSelector = &metav1.LabelSelector{}
		if r.IntN(2) == 0 {
			c.LabelSelector.MatchLabels = map[string]string{"app": pick("a", "b")}
		}
	}
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{c}
	return p
}

// TestHelpersAnswerAsKubernetes compares requests, host ports and the selectors of constraints
// with what the packages of Kubernetes and the SDK for Go say.
func TestHelpersAnswerAsKubernetes(t *testing.T) {
	p, err := admission.Load(t.Context(), newRuntime(t), admission.PluginConfig{Config: host.Config{
		Name: "helpers", Module: host.ModuleConfig{File: languages.Build(t, "testdata/helpers")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := admission.NewEngine(p)
	t.Cleanup(func() { e.Close(t.Context()) })
	encode := func(p *corev1.Pod) []byte {
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	r := rand.New(rand.NewPCG(5, 6))
	counted, conflicts := 0, 0
	const pods = 3000
	for range pods {
		pod, other := randomPod(r), randomPod(r)
		raw, old := encode(pod), encode(other)
		answer := e.Validate(t.Context(), &admissionv1.AdmissionRequest{
			UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Operation: admissionv1.Update, Object: runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: old},
		})
		var got []string
		amounts := map[string]resource.Quantity{}
		for line := range strings.Lines(strings.TrimPrefix(answer.Result.Message, "helpers: ")) {
			line = strings.TrimSuffix(line, "\n")
			name, amount, ok := strings.Cut(line, "=")
			if !ok {
				got = append(got, line)
				continue
			}
			if amounts[name], err = resource.ParseQuantity(amount); err != nil {
				t.Fatalf("%s of %s: %v", line, raw, err)
			}
		}
		var want []string
		view := core.PodFromJSON(raw)
		ports := view.HostPorts()
		for i, p := range ports {
			line := fmt.Sprintf("port %s:%d", p.HostIP(), p.HostPort())
			for j := range i {
				if p.ConflictsOnHost(ports[j]) {
					line += fmt.Sprint(" ", j)
					conflicts++
				}
			}
			want = append(want, line)
		}
		counts := counts(t, pod, other)
		if counts {
			counted++
		}
		want = append(want, fmt.Sprintf("counts %v", counts))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s (-want +got):\n%s", raw, diff)
		}
		requests := componentresource.PodRequests(pod, componentresource.PodResourcesOptions{})
		if diff := cmp.Diff(slices.Sorted(maps.Keys(amounts)), names(requests)); diff != "" {
			t.Fatalf("%s (-got +want):\n%s", raw, diff)
		}
		for name, amount := range requests {
			if q := amounts[string(name)]; q.Cmp(amount) != 0 {
				t.Fatalf("%s of %s: got %v, want %v", name, raw, &q, &amount)
			}
		}
	}
	if counted == 0 || counted == pods || conflicts == 0 {
		t.Errorf("%d of %d Pods count and %d ports conflict", counted, pods, conflicts)
	}
}

// TestLongTextWithEscapes holds that the cost of a text with many escapes grows with its length:
// a ConfigMap may have a megabyte of lines.
func TestLongTextWithEscapes(t *testing.T) {
	p, err := admission.Load(t.Context(), newRuntime(t), admission.PluginConfig{Config: host.Config{
		Name: "helpers", Module: host.ModuleConfig{File: languages.Build(t, "testdata/helpers")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	e := admission.NewEngine(p)
	t.Cleanup(func() { e.Close(t.Context()) })
	const lines = 40_000
	text := strings.Repeat("a: \"ä\" 😀\n", lines) + "\b\f\r\t\\ end."
	raw, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"text": text}}})
	if err != nil {
		t.Fatal(err)
	}
	answer := e.Validate(t.Context(), &admissionv1.AdmissionRequest{
		UID: "u", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
		Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: raw},
	})
	// Of each line two quotes get a unit more when they are quoted, and the line feed five.
	units := lines*len(utf16.Encode([]rune("a: \"ä\" 😀\n"))) + 10
	want := fmt.Sprintf("helpers: %d %d \b\f\r\t\\ end.", units, 2+units+lines*(1+1+5)+4*5+1)
	if diff := cmp.Diff(want, answer.Result.Message); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

// counts reports whether the first constraint of a Pod counts another one.
func counts(t *testing.T, pod, other *corev1.Pod) bool {
	c := pod.Spec.TopologySpreadConstraints[0]
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
	if err != nil {
		t.Fatal(err)
	}
	requirements, selectable := selector.Requirements()
	if !selectable {
		return false
	}
	same := labels.Set{}
	for _, key := range c.MatchLabelKeys {
		if value, ok := pod.Labels[key]; ok {
			same[key] = value
		}
	}
	return labels.SelectorFromSet(same).Add(requirements...).Matches(labels.Set(other.Labels))
}

func names(list corev1.ResourceList) (names []string) {
	for name := range list {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}
