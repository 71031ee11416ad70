package c_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	walk "github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/testkit/languages"
)

// TestReadersUnderLibFuzzer lets libFuzzer change objects and read them by the header, natively,
// with the sanitizers of addresses and of what C leaves undefined. KUBEWASM_FUZZTIME is for how
// many seconds, instead of 100,000 inputs.
func TestReadersUnderLibFuzzer(t *testing.T) {
	languages.Slow(t)
	dir := t.TempDir()
	target := filepath.Join(dir, "fuzz")
	// A copy of nothing, from no address, is fine where clang makes the module.
	compile := exec.CommandContext(t.Context(), "clang", "-g", "-O1", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-I", ".",
		"-fsanitize=fuzzer,address,undefined", "-fno-sanitize=nonnull-attribute,pointer-overflow", "-fno-sanitize-recover=all",
		"-o", target, "testdata/libfuzzer/fuzz.c")
	if out, err := compile.CombinedOutput(); err != nil {
		if runtimes, _ := filepath.Glob("/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a"); len(runtimes) == 0 && os.Getenv("CI") == "" {
			t.Skip("clang has no libFuzzer (Debian: clang, libclang-rt-14-dev)")
		}
		t.Fatalf("%v\n%s", err, out)
	}
	corpus := filepath.Join(dir, "corpus")
	if err := os.Mkdir(corpus, 0o755); err != nil {
		t.Fatal(err)
	}
	for n, seed := range seeds(t) {
		if err := os.WriteFile(filepath.Join(corpus, fmt.Sprint(n)), seed, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bound := "-runs=100000"
	if seconds := os.Getenv("KUBEWASM_FUZZTIME"); seconds != "" {
		bound = "-max_total_time=" + seconds
	}
	fuzz := exec.CommandContext(t.Context(), target, bound, "-max_len=4096", "-timeout=20", "-print_final_stats=1", corpus)
	fuzz.Dir = dir
	if out, err := fuzz.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// seeds returns inputs of the target: a byte that says how the others are read, and those.
func seeds(t *testing.T) (all [][]byte) {
	t.Helper()
	add := func(as byte, b []byte) { all = append(all, append([]byte{as}, b...)) }
	amounts := corev1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("1.5Gi")}
	meta := metav1.ObjectMeta{
		Name: "web", UID: "u", Labels: map[string]string{"app": "web", "é": "\""}, Annotations: map[string]string{"a": "b"},
		CreationTimestamp: metav1.Unix(1700000000, 0), OwnerReferences: []metav1.OwnerReference{{Name: "o", Controller: new(bool)}}, Finalizers: []string{"f"},
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web"}}}}
	spec := corev1.PodSpec{
		Containers: []corev1.Container{{
			Name: "c", Image: "image:1", Command: []string{"run"}, Ports: []corev1.ContainerPort{{HostPort: 80}}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
			Resources:     corev1.ResourceRequirements{Requests: amounts, Limits: amounts},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("http")}}},
		}},
		Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists}}, NodeSelector: map[string]string{"zone": "a"}, Overhead: amounts,
		Affinity: &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "app", Operator: corev1.NodeSelectorOpGt, Values: []string{"5"}}},
			}}}},
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: selector}}},
		},
	}
	for _, o := range []interface{ Marshal() ([]byte, error) }{
		&corev1.Pod{ObjectMeta: meta, Spec: spec, Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady}}}},
		&corev1.Node{
			ObjectMeta: meta, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}},
			Status: corev1.NodeStatus{Allocatable: amounts, Images: []corev1.ContainerImage{{Names: []string{"a", "b"}, SizeBytes: 5}}},
		},
		&appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: selector, Template: corev1.PodTemplateSpec{ObjectMeta: meta, Spec: spec},
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromString("25%"))}},
		}},
		&meta, &spec,
	} {
		proto, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		add(0, proto)
		add(1, text)
		add(2, proto)
		add(3, text)
		places := make([]uint64, 63)
		_, n := walk.ValidIndex(text, places, 0)
		indexed := []byte{byte(n)}
		for _, place := range places[:n] {
			indexed = binary.LittleEndian.AppendUint64(indexed, place)
		}
		add(5, append(indexed, text...))
	}
	for _, value := range []string{"1.5Gi", "-100m", "1e3", "12345678901234567890", "2026-11-21T03:00:00.5+01:00", "-42", "1.25E-3", " a, b ,", `{"a":[1,{"b":"\\u00e9"}]}`} {
		add(3, []byte(value))
		add(4, []byte(value))
	}
	return all
}
