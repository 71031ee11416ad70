package objects

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"
)

func fieldSet(t testing.TB, paths ...string) *FieldSet {
	t.Helper()
	s, err := ParseFieldSet(paths)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func nodeBytes(s *FieldSet, node *corev1.Node) []byte {
	e := s.Node()
	return e.Append(nil, node)
}

func podBytes(s *FieldSet, pod *corev1.Pod) []byte {
	e := s.Pod()
	return e.Append(nil, pod)
}

func TestParseFieldSetNamesEveryMistake(t *testing.T) {
	_, err := ParseFieldSet([]string{
		"node.metadata.labels",
		"node.metadata.label",
		"nodes.metadata",
		"Pod.spec",
		"service.spec",
		"pod.spec.container.image",
		"pod.spec.containers.imgae",
		"pod.metadata.labels.app",
		"pod.metadata.creationTimestamp.seconds",
		"node.status.capacity.cpu",
		"pod.spec.nodeName.x",
		"pod.metadata.managedFields",
		"pod.kind",
		"pod.spec.containers.livenessProbe.httpget",
		"pod.spec.nodeName[x]",
		"node[x]",
		"node.metadata.labels[]",
		"node.metadata.labels[a].b",
		"pod.spec..x",
		"",
		"--pod.metadata",
		"-pod.metadata",
		"-pod.metadata.labels[a]",
		"-pod.spec.nodeName",
	})
	want := []string{
		`field path "node.metadata.label": ObjectMeta has no field "label"; did you mean "labels"?`,
		`field path "nodes.metadata": there is no kind "nodes"; did you mean "node"?`,
		`field path "Pod.spec": there is no kind "Pod"; did you mean "pod"?`,
		`field path "service.spec": there is no kind "service"; there are node, pod`,
		`field path "pod.spec.container.image": PodSpec has no field "container"; did you mean "containers"?`,
		`field path "pod.spec.containers.imgae": Container has no field "imgae"; did you mean "image"?`,
		`field path "pod.metadata.labels.app": a map has no fields; its entries stand in brackets, as in "[app]"`,
		`field path "pod.metadata.creationTimestamp.seconds": Time has no fields that can be told apart, so "seconds" must be left out`,
		`field path "node.status.capacity.cpu": a map has no fields; its entries stand in brackets, as in "[cpu]"`,
		`field path "pod.spec.nodeName.x": a string has no fields that can be told apart, so "x" must be left out`,
		`field path "pod.metadata.managedFields": managedFields never travel`,
		`field path "pod.kind": Pod has no field "kind"; there are metadata, spec, status`,
		`field path "pod.spec.containers.livenessProbe.httpget": Probe has no field "httpget"; did you mean "httpGet"?`,
		`field path "pod.spec.nodeName[x]": a string has no entries, so "[x]" must be left out`,
		`field path "node[x]": Node has no entries, so "[x]" must be left out`,
		`field path "node.metadata.labels[]": the key of an entry stands between two brackets, at the end`,
		`field path "node.metadata.labels[a].b": the key of an entry stands between two brackets, at the end`,
	}
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(err.Error(), "\n")
	if diff := cmp.Diff(want, got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("mistakes (-want +got):\n%s", diff)
	}
	if len(got) != len(want)+6 {
		t.Errorf("got %d mistakes, want %d:\n%s", len(got), len(want)+6, err)
	}
}

func TestWhatIdentifiesAnObjectIsLeftOut(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "1"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	for name, c := range map[string]struct {
		paths []string
		want  *corev1.Pod
	}{
		"nothing":                         {[]string{"pod.spec.nodeName"}, pod},
		"the name and the UID":            {[]string{"pod.spec.nodeName", "-pod.metadata.uid", "-pod.metadata.name"}, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: pod.Spec}},
		"of a kind that has nothing else": {[]string{"-pod.metadata.name", "-pod.metadata.uid", "-pod.metadata.namespace"}, &corev1.Pod{}},
		"of the other kind":               {[]string{"-node.metadata.name"}, pod},
	} {
		t.Run(name, func(t *testing.T) {
			got := &corev1.Pod{}
			if err := got.Unmarshal(fieldSet(t, c.paths...).Pod().Append(nil, pod)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("the Pod (-want +got):\n%s", diff)
			}
		})
	}
	for _, paths := range [][]string{
		{"-pod.metadata.name", "pod.metadata.name"}, {"-pod.metadata.uid", "pod.metadata"}, {"pod", "-pod.metadata.namespace"},
	} {
		if _, err := ParseFieldSet(paths); err == nil || !strings.Contains(err.Error(), "another path names the field") {
			t.Errorf("%q: got the error %v", paths, err)
		}
	}
}

func TestUnion(t *testing.T) {
	labels, taints := fieldSet(t, "node.metadata.labels"), fieldSet(t, "node.spec.taints", "pod.spec.tolerations")
	if got := labels.Union(taints).String(); got != "node.metadata.labels, node.spec.taints" {
		t.Errorf("got %s; one of them has all of a Pod", got)
	}
	if got := labels.Union(nil); got != nil {
		t.Errorf("got %s, want everything", got)
	}
	if got := labels.Union(fieldSet(t, "pod.spec")); got != nil {
		t.Errorf("got %s, want everything: each has one kind whole", got)
	}
	without := fieldSet(t, "-pod.metadata.name", "-pod.metadata.uid", "pod.spec")
	for _, c := range []struct {
		of   *FieldSet
		want string
	}{
		{fieldSet(t, "-pod.metadata.name", "pod.status"), "-pod.metadata.name, pod.spec, pod.status"},
		{fieldSet(t, "pod.metadata"), "pod.metadata, pod.spec"},
		{without, "-pod.metadata.name, -pod.metadata.uid, pod.spec"},
	} {
		if got := without.Union(c.of).String(); got != c.want {
			t.Errorf("with %s: got %s, want %s", c.of, got, c.want)
		}
	}
	if !labels.Union(labels).Equal(labels) || labels.Equal(taints) || labels.Equal(nil) || !(*FieldSet)(nil).Equal(nil) {
		t.Error("Equal is wrong")
	}
}

// leaves returns all paths below t, at most depth names long. The tree of a
// PodSpec is finite.
func leaves(prefix string, t reflect.Type, depth int) (paths []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if !nested(t) || depth == 0 {
		return nil
	}
	each(t, func(name string, _ []int, t reflect.Type) {
		if name == "managedFields" {
			return
		}
		paths = append(paths, prefix+"."+name)
		paths = append(paths, leaves(prefix+"."+name, t, depth-1)...)
	})
	return paths
}

// TestEveryFieldHasAnEncoder names each field that there is, one at a time.
func TestEveryFieldHasAnEncoder(t *testing.T) {
	node, pod := &corev1.Node{}, &corev1.Pod{}
	filler(1).NilChance(0).Fill(node)
	filler(1).NilChance(0).Fill(pod)
	for _, path := range slices.Concat(leaves("node", kinds["node"], 12), leaves("pod", kinds["pod"], 12)) {
		p := fieldSet(t, path)
		nodeBytes(p, node)
		podBytes(p, pod)
	}
}

func TestEntriesOfMaps(t *testing.T) {
	node := largeNode()
	node.Labels["topology.kubernetes.io/zone"] = "b"
	node.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("1Gi")}
	p := fieldSet(t, "node.metadata.labels[topology.kubernetes.io/zone]", "node.metadata.labels[example.com/a]",
		"node.metadata.labels[example.com/none]", "node.metadata.labels[example.com/a]", "node.status.capacity[cpu]")
	var got corev1.Node
	if err := got.Unmarshal(nodeBytes(p, node)); err != nil {
		t.Fatal(err)
	}
	want := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"topology.kubernetes.io/zone": "b", "example.com/a": "value"}},
		Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{"cpu": resource.MustParse("2")}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// All entries, where all of them are named too.
	var all corev1.Node
	if err := all.Unmarshal(nodeBytes(fieldSet(t, "node.metadata.labels[example.com/a]", "node.metadata.labels"), node)); err != nil || len(all.Labels) != len(node.Labels) {
		t.Errorf("got %d labels and the error %v, want %d", len(all.Labels), err, len(node.Labels))
	}
}

func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(1, 3).MaxDepth(14).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1<<40), resource.BinarySI)
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<32), 0).Rfc3339Copy() },
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.MicroTime{Time: time.Unix(c.Int63n(1<<32), 0)}
		},
		func(i *intstr.IntOrString, c randfill.Continue) { *i = intstr.FromInt32(c.Int31()) },
		func(f *metav1.ManagedFieldsEntry, _ randfill.Continue) { *f = metav1.ManagedFieldsEntry{Manager: "m"} },
		func(m *metav1.TypeMeta, _ randfill.Continue) { *m = metav1.TypeMeta{} },
	)
}

// prune keeps of a JSON value what paths lead to.
func prune(v any, paths [][]string) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = prune(v[i], paths)
		}
	case map[string]any:
		below := map[string][][]string{}
		for _, path := range paths {
			if len(path) == 0 {
				return v
			}
			below[path[0]] = append(below[path[0]], path[1:])
		}
		for name := range v {
			if rest, ok := below[name]; ok {
				v[name] = prune(v[name], rest)
			} else {
				delete(v, name)
			}
		}
	}
	return v
}

// pruned decodes into out what is left of object by way of its JSON.
func pruned(t *testing.T, kind string, paths []string, object, out any) {
	t.Helper()
	encoded, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	numbers := json.NewDecoder(bytes.NewReader(encoded))
	numbers.UseNumber() // A float64 does not hold every int64.
	if err := numbers.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	below := slices.Clone(identifying)
	for _, path := range paths {
		if rest, ok := strings.CutPrefix(path, kind+"."); ok {
			below = append(below, strings.Split(rest, "."))
		}
	}
	if len(below) != len(identifying) {
		tree = prune(tree, below)
	}
	delete(tree.(map[string]any)["metadata"].(map[string]any), "managedFields")
	if encoded, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, out); err != nil {
		t.Fatal(err)
	}
}

// equate compares what was decoded from protobuf with what was decoded from
// JSON: they disagree about empty lists and about time zones.
var equate = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.Comparer(func(a, b metav1.Time) bool { return a.Unix() == b.Unix() }),
	cmp.Comparer(func(a, b metav1.MicroTime) bool { return a.Unix() == b.Unix() }),
	cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 }),
}

// TestFieldSetKeepsWhatItNames compares random sets of fields of random
// objects with what pruning their JSON leaves.
func TestFieldSetKeepsWhatItNames(t *testing.T) {
	all := slices.Concat(leaves("node", kinds["node"], 6), leaves("pod", kinds["pod"], 6))
	if len(all) < 500 {
		t.Fatalf("only %d paths", len(all))
	}
	r := rand.New(rand.NewPCG(7, 7))
	for seed := range int64(300) {
		var node corev1.Node
		var pod corev1.Pod
		filler(seed).Fill(&node)
		filler(seed).Fill(&pod)
		paths := make([]string, r.IntN(8))
		for i := range paths {
			paths[i] = all[r.IntN(len(all))]
		}
		p := fieldSet(t, paths...)

		var gotNode, wantNode corev1.Node
		if err := gotNode.Unmarshal(nodeBytes(p, &node)); err != nil {
			t.Fatal(err)
		}
		pruned(t, "node", paths, &node, &wantNode)
		if diff := cmp.Diff(wantNode, gotNode, equate); diff != "" {
			t.Fatalf("seed %d: Node with %s (-want +got):\n%s", seed, p, diff)
		}

		var gotPod, wantPod corev1.Pod
		if err := gotPod.Unmarshal(podBytes(p, &pod)); err != nil {
			t.Fatal(err)
		}
		pruned(t, "pod", paths, &pod, &wantPod)
		if diff := cmp.Diff(wantPod, gotPod, equate); diff != "" {
			t.Fatalf("seed %d: Pod with %s (-want +got):\n%s", seed, p, diff)
		}
	}
}

// TestEverythingIsWhatKubernetesWrites holds that objects travel as the generated
// code encodes them, byte by byte, unless a FieldSet says otherwise: guests of
// other projects read them with decoders of their own.
func TestEverythingIsWhatKubernetesWrites(t *testing.T) {
	for seed := range int64(100) {
		var node corev1.Node
		var pod corev1.Pod
		filler(seed).Fill(&node)
		filler(seed).Fill(&pod)
		gotNode, err := Encode(&node)
		if err != nil {
			t.Fatal(err)
		}
		gotPod, err := Encode(&pod)
		if err != nil {
			t.Fatal(err)
		}
		node.ManagedFields, pod.ManagedFields = nil, nil
		if want, _ := node.Marshal(); !bytes.Equal(gotNode, want) {
			t.Errorf("seed %d: Node is\n%x, want\n%x", seed, gotNode, want)
		}
		if want, _ := pod.Marshal(); !bytes.Equal(gotPod, want) {
			t.Errorf("seed %d: Pod is\n%x, want\n%x", seed, gotPod, want)
		}
	}
}

// TestObjectsStayAsTheyAre holds that encoding writes nothing into an object, not
// even where only the packages of Kubernetes see it: others read it meanwhile.
func TestObjectsStayAsTheyAre(t *testing.T) {
	for seed := range int64(100) {
		var pod corev1.Pod
		filler(seed).Fill(&pod)
		before := pod.DeepCopy()
		for _, encode := range []func(){
			func() { podBytes(nil, &pod) },
			func() { podBytes(fieldSet(t, "pod.spec"), &pod) },
			func() { _, _ = Encode(&pod) },
		} {
			encode()
			if !reflect.DeepEqual(&pod, before) {
				t.Fatalf("seed %d: the Pod has changed", seed)
			}
		}
	}
}

func largeNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{}, Annotations: map[string]string{}}}
	for _, c := range "abcdefghijklmnopqrst" {
		n.Labels["example.com/"+string(c)] = "value"
		n.Annotations["example.com/"+string(c)] = strings.Repeat("x", 50)
		n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{strings.Repeat("r", 90), strings.Repeat("s", 60)}, SizeBytes: 1 << 20})
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(c), Reason: "KubeletReady", Message: strings.Repeat("m", 60)})
	}
	n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	return n
}

func BenchmarkFieldSet(b *testing.B) {
	node := largeNode()
	for _, test := range []struct {
		name  string
		paths []string
	}{
		{"everything", nil},
		{"labels and taints", []string{"node.metadata.labels", "node.spec.taints"}},
		{"a label and taints", []string{"node.metadata.labels[example.com/a]", "node.spec.taints"}},
		{"through a list", []string{"node.metadata.labels", "node.status.images.names"}},
	} {
		b.Run(test.name, func(b *testing.B) {
			nodes := fieldSet(b, test.paths...).Node()
			raw := nodes.Append(nil, node)
			b.ReportMetric(float64(len(raw)), "bytes")
			b.ReportAllocs()
			for b.Loop() {
				raw = nodes.Append(raw[:0], node)
			}
		})
	}
}

// FuzzParseFieldSet holds that a FieldSet that is made can be used.
func FuzzParseFieldSet(f *testing.F) {
	for _, path := range []string{"node.metadata.labels", "pod", "pod.spec.containers.env.valueFrom", "node..", ".", "pod.spec.volumes.hostPath.path", "node.metadata.labels[a.b/c]", "pod.spec.overhead[cpu]"} {
		f.Add(path)
	}
	node, pod := largeNode(), &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "e"}}}}}}
	f.Fuzz(func(t *testing.T, path string) {
		p, err := ParseFieldSet([]string{path})
		if err != nil {
			return
		}
		nodeBytes(p, node)
		podBytes(p, pod)
	})
}
