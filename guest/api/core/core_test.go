package core_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/randfill"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
)

// What a view says, in the words of the test.
type (
	objectMeta struct {
		Name, GenerateName, Namespace, UID, ResourceVersion string
		Labels, Annotations                                 map[string]string
	}
	container struct{ Name, Image, ImagePullPolicy string }
	pod       struct {
		objectMeta
		NodeName, SchedulerName, PriorityClassName, RuntimeClassName string
		HostNetwork                                                  bool
		Priority                                                     *int32
		NodeSelector                                                 map[string]string
		Containers, InitContainers                                   []container
		Tolerations                                                  [][4]string
	}
	image struct {
		Names     []string
		SizeBytes int64
	}
	node struct {
		objectMeta
		PodCIDR, ProviderID string
		Unschedulable       bool
		Taints              [][3]string
		Images              []image
	}
)

func mapOf(m meta.StringMap) map[string]string {
	all := maps.Collect(m.All)
	if len(all) == 0 {
		return nil
	}
	for k, v := range all {
		if m.Get(k) != v || !m.Has(k) {
			panic("Get and All do not agree on " + k)
		}
	}
	return all
}

func readMeta(m meta.ObjectMeta) objectMeta {
	return objectMeta{
		m.Name(), m.GenerateName(), m.Namespace(), m.UID(), m.ResourceVersion(),
		mapOf(m.Labels()), mapOf(m.Annotations()),
	}
}

func containers(list []core.Container) (out []container) {
	for _, c := range list {
		out = append(out, container{c.Name(), c.Image(), c.ImagePullPolicy()})
	}
	return out
}

// readPod calls every accessor of a Pod.
func readPod(p core.Pod) pod {
	s := p.Spec()
	out := pod{
		objectMeta: readMeta(p.Metadata()),
		NodeName:   s.NodeName(), SchedulerName: s.SchedulerName(), PriorityClassName: s.PriorityClassName(), RuntimeClassName: s.RuntimeClassName(),
		HostNetwork: s.HostNetwork(), NodeSelector: mapOf(s.NodeSelector()),
		Containers: containers(s.Containers()), InitContainers: containers(s.InitContainers()),
	}
	if s.HasPriority() {
		v := s.Priority()
		out.Priority = &v
	}
	for _, t := range s.Tolerations() {
		out.Tolerations = append(out.Tolerations, [4]string{t.Key(), t.Operator(), t.Value(), t.Effect()})
	}
	return out
}

// readNode calls every accessor of a Node.
func readNode(n core.Node) node {
	s := n.Spec()
	out := node{objectMeta: readMeta(n.Metadata()), PodCIDR: s.PodCIDR(), ProviderID: s.ProviderID(), Unschedulable: s.Unschedulable()}
	for _, t := range s.Taints() {
		out.Taints = append(out.Taints, [3]string{t.Key(), t.Value(), t.Effect()})
	}
	for _, i := range n.Status().Images() {
		out.Images = append(out.Images, image{i.Names(), i.SizeBytes()})
	}
	return out
}

func wantMeta(m *metav1.ObjectMeta) objectMeta {
	return objectMeta{m.Name, m.GenerateName, m.Namespace, string(m.UID), m.ResourceVersion, some(m.Labels), some(m.Annotations)}
}

func some(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

func wantContainers(list []corev1.Container) (out []container) {
	for _, c := range list {
		out = append(out, container{c.Name, c.Image, string(c.ImagePullPolicy)})
	}
	return out
}

func wantPod(p *corev1.Pod) pod {
	s := &p.Spec
	out := pod{
		objectMeta: wantMeta(&p.ObjectMeta),
		NodeName:   s.NodeName, SchedulerName: s.SchedulerName, PriorityClassName: s.PriorityClassName,
		HostNetwork: s.HostNetwork, Priority: s.Priority, NodeSelector: some(s.NodeSelector),
		Containers: wantContainers(s.Containers), InitContainers: wantContainers(s.InitContainers),
	}
	if s.RuntimeClassName != nil {
		out.RuntimeClassName = *s.RuntimeClassName
	}
	for _, t := range s.Tolerations {
		out.Tolerations = append(out.Tolerations, [4]string{t.Key, string(t.Operator), t.Value, string(t.Effect)})
	}
	return out
}

func wantNode(n *corev1.Node) node {
	out := node{objectMeta: wantMeta(&n.ObjectMeta), PodCIDR: n.Spec.PodCIDR, ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, [3]string{t.Key, t.Value, string(t.Effect)})
	}
	for _, i := range n.Status.Images {
		out.Images = append(out.Images, image{i.Names, i.SizeBytes})
	}
	return out
}

// options compare a list without elements as none.
var options = cmp.Options{cmp.AllowUnexported(pod{}, node{}), cmpopts.EquateEmpty()}

// filler fills objects with whatever fits into them and survives both
// encodings.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.5).NumElements(0, 4).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<32), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.MicroTime{Time: metav1.Unix(c.Int63n(1<<32), 0).Time}
		},
		func(i *intstr.IntOrString, c randfill.Continue) { *i = intstr.FromInt32(c.Int31()) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = metav1.FieldsV1{} },
		func(s *string, c randfill.Continue) {
			*s = c.String(20)
			if c.Intn(4) == 0 { // Lengths of two bytes, and escapes.
				*s = strings.Repeat("\"\\\n<a", 40) + *s
			}
		},
	)
}

func TestViewsReadWhatIsInObjects(t *testing.T) {
	for seed := range int64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			var p corev1.Pod
			var n corev1.Node
			f := filler(seed)
			f.Fill(&p)
			f.Fill(&n)
			raw, err := codec.Encode(&p)
			if err != nil {
				t.Fatal(err)
			}
			rawNode, err := codec.Encode(&n)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(&p)
			if err != nil {
				t.Fatal(err)
			}
			textNode, err := json.Marshal(&n)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wantPod(&p), readPod(core.PodFromProto(raw)), options); diff != "" {
				t.Errorf("Pod in protobuf (-object +view):\n%s", diff)
			}
			if diff := cmp.Diff(wantPod(&p), readPod(core.PodFromJSON(text)), options); diff != "" {
				t.Errorf("Pod in JSON (-object +view):\n%s", diff)
			}
			if diff := cmp.Diff(wantNode(&n), readNode(core.NodeFromProto(rawNode)), options); diff != "" {
				t.Errorf("Node in protobuf (-object +view):\n%s", diff)
			}
			if diff := cmp.Diff(wantNode(&n), readNode(core.NodeFromJSON(textNode)), options); diff != "" {
				t.Errorf("Node in JSON (-object +view):\n%s", diff)
			}
		})
	}
}

func TestZeroViewsAreEmpty(t *testing.T) {
	for name, p := range map[string]core.Pod{
		"zero": {}, "no bytes": core.PodFromProto(nil), "no JSON": core.PodFromJSON(nil),
		"empty object": core.PodFromJSON([]byte("{}")), "null": core.PodFromJSON([]byte("null")),
		"null members": core.PodFromJSON([]byte(`{"metadata":null,"spec":{"priority":null,"containers":null,"nodeSelector":null}}`)),
	} {
		if diff := cmp.Diff(pod{}, readPod(p), options); diff != "" {
			t.Errorf("Pod of %s (-want +got):\n%s", name, diff)
		}
	}
	for name, n := range map[string]core.Node{"zero": {}, "no bytes": core.NodeFromProto(nil), "no JSON": core.NodeFromJSON(nil)} {
		if diff := cmp.Diff(node{}, readNode(n), options); diff != "" {
			t.Errorf("Node of %s (-want +got):\n%s", name, diff)
		}
	}
	var (
		spec       core.NodeSpec
		taint      core.Taint
		toleration core.Toleration
		c          core.Container
		i          core.ContainerImage
	)
	if got := spec.PodCIDR() + taint.String() + toleration.Key() + c.Name() + fmt.Sprint(i.Names(), i.SizeBytes(), spec.Taints()); got != "[] 0 []" {
		t.Errorf("got %q of zero views", got)
	}
	if !toleration.Tolerates(taint) {
		t.Error("a zero toleration does not tolerate a zero taint")
	}
}

// taintsAndTolerations are random ones of few values, so that many match.
func taintsAndTolerations(r *rand.Rand) ([]corev1.Taint, []corev1.Toleration) {
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	key := func() string { return pick("", "a", "b", "example.com/dedicated") }
	value := func() string {
		return pick("", "x", "5", "7", "-7", "007", "+7", "9223372036854775807", "9223372036854775808", strconv.Itoa(r.IntN(9)))
	}
	effect := func() string { return pick("", "NoSchedule", "PreferNoSchedule", "NoExecute", "Other", "Another") }
	taints := make([]corev1.Taint, r.IntN(4))
	for i := range taints {
		taints[i] = corev1.Taint{Key: key(), Value: value(), Effect: corev1.TaintEffect(effect())}
	}
	tolerations := make([]corev1.Toleration, r.IntN(4))
	for i := range tolerations {
		op := pick("", "Equal", "Exists", "Lt", "Gt", "Unknown")
		tolerations[i] = corev1.Toleration{Key: key(), Operator: corev1.TolerationOperator(op), Value: value(), Effect: corev1.TaintEffect(effect())}
	}
	return taints, tolerations
}

func TestTolerationsAsKubernetes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		taints, tolerations := taintsAndTolerations(r)
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: taints}}
		p := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tolerations}}
		rawNode, _ := codec.Encode(n)
		rawPod, _ := json.Marshal(p)
		viewsOfTaints, viewsOfTolerations := core.NodeFromProto(rawNode).Spec().Taints(), core.PodFromJSON(rawPod).Spec().Tolerations()

		untolerated := -1
		for i := range taints {
			tolerated := false
			for j := range tolerations {
				want := tolerations[j].ToleratesTaint(klog.Logger{}, &taints[i], true)
				if got := viewsOfTolerations[j].Tolerates(viewsOfTaints[i]); got != want {
					t.Fatalf("%+v tolerates %+v: got %v, want %v", tolerations[j], taints[i], got, want)
				}
				tolerated = tolerated || want
			}
			e := taints[i].Effect
			if untolerated < 0 && !tolerated && (e == corev1.TaintEffectNoSchedule || e == corev1.TaintEffectNoExecute) {
				untolerated = i
			}
		}
		got, found := core.FindUntolerated(viewsOfTaints, viewsOfTolerations)
		if found != (untolerated >= 0) || found && got.String() != taints[untolerated].ToString() {
			t.Fatalf("taints %+v, tolerations %+v: got %s, %v, want number %d", taints, tolerations, got, found, untolerated)
		}
	}
}

// TestFindUntoleratedKnowsWhichListsItWasAskedAbout asks about the same lists in
// any order, and about slices that are no list of a view: what was found out
// about one pair must not be the answer for another.
func TestFindUntoleratedKnowsWhichListsItWasAskedAbout(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	type node struct {
		taints []corev1.Taint
		views  []core.Taint
	}
	type pod struct {
		tolerations []corev1.Toleration
		views       []core.Toleration
	}
	var nodes []node
	var pods []pod
	for i := range 8 {
		taints, tolerations := taintsAndTolerations(r)
		rawNode, _ := codec.Encode(&corev1.Node{Spec: corev1.NodeSpec{Taints: taints}})
		nodes = append(nodes, node{taints, core.NodeFromProto(rawNode).Spec().Taints()})
		p := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tolerations}}
		if i%2 == 0 {
			raw, _ := codec.Encode(p)
			pods = append(pods, pod{tolerations, core.PodFromProto(raw).Spec().Tolerations()})
		} else {
			raw, _ := json.Marshal(p)
			pods = append(pods, pod{tolerations, core.PodFromJSON(raw).Spec().Tolerations()})
		}
	}
	var taintBuffer []core.Taint
	var tolerationBuffer []core.Toleration
	found := 0
	for range 20_000 {
		n, p := nodes[r.IntN(len(nodes))], pods[r.IntN(len(pods))]
		switch r.IntN(3) {
		case 0: // Parts of the lists.
			i, j := r.IntN(len(n.taints)+1), r.IntN(len(p.tolerations)+1)
			n, p = node{n.taints[i:], n.views[i:]}, pod{p.tolerations[:j], p.views[:j]}
		case 1: // A buffer of the plugin's own.
			taintBuffer, tolerationBuffer = append(taintBuffer[:0], n.views...), append(tolerationBuffer[:0], p.views...)
			n.views, p.views = taintBuffer, tolerationBuffer
		}
		want := slices.IndexFunc(n.taints, func(taint corev1.Taint) bool {
			return (taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute) &&
				!slices.ContainsFunc(p.tolerations, func(toleration corev1.Toleration) bool {
					return toleration.ToleratesTaint(klog.Logger{}, &taint, true)
				})
		})
		got, ok := core.FindUntolerated(n.views, p.views)
		if ok != (want >= 0) || ok && got != n.views[want] {
			t.Fatalf("taints %+v, tolerations %+v: got %s, %v, want number %d", n.taints, p.tolerations, got, ok, want)
		}
		if ok {
			found++
		}
	}
	if found < 1000 || found > 19_000 {
		t.Errorf("%d of 20,000 were found", found)
	}
}

// TestLookUpsDoNotAllocate holds it for what a plugin reads for every Pod and
// node, once it was read.
func TestLookUpsDoNotAllocate(t *testing.T) {
	n, p := core.NodeFromProto(benchNode()), core.PodFromProto(benchPod())
	sum := 0
	read := func() {
		labels := n.Metadata().Labels()
		sum += len(labels.Get("topology.kubernetes.io/zone")) + len(labels.Get("none"))
		sum += len(n.Metadata().Name()) + len(n.Spec().PodCIDR()) + len(n.Status().Images()[0].Names())
		for _, t := range n.Spec().Taints() {
			sum += len(t.Key()) + len(t.Effect())
		}
		if _, found := core.FindUntolerated(n.Spec().Taints(), p.Spec().Tolerations()); found {
			sum++
		}
		for range labels.All {
			sum++
		}
	}
	if allocs := testing.AllocsPerRun(100, read); allocs != 0 {
		t.Errorf("%v allocations in a look-up, want none", allocs)
	}
	text := core.PodFromJSON([]byte(`{"metadata":{"name":"a\"b","labels":{"k":"v\n"}},"spec":{"priority":7}}`))
	readJSON := func() {
		sum += len(text.Metadata().Name()) + len(text.Metadata().Labels().Get("k")) + int(text.Spec().Priority())
	}
	if allocs := testing.AllocsPerRun(100, readJSON); allocs != 0 {
		t.Errorf("%v allocations in a look-up in JSON, want none", allocs)
	}
}

// corpus is small objects with every field that views read.
func corpus() (list []struct{ proto, json []byte }) {
	m := metav1.ObjectMeta{Name: "n", GenerateName: "g", Namespace: "s", UID: "u", ResourceVersion: "1", Labels: map[string]string{"a": "1", "bc": ""}, Annotations: map[string]string{"x": "\""}}
	n := &corev1.Node{ObjectMeta: m, Spec: corev1.NodeSpec{PodCIDR: "p", ProviderID: "q", Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Value: "5", Effect: "NoSchedule"}}}}
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"i", "j"}, SizeBytes: 300}}
	priority, class := int32(-1), "c"
	c := []corev1.Container{{Name: "c", Image: "i", ImagePullPolicy: "Always"}}
	p := &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{
		NodeName: "n", SchedulerName: "s", PriorityClassName: "p", RuntimeClassName: &class, Priority: &priority, HostNetwork: true,
		NodeSelector: map[string]string{"a": "1"}, Containers: c, InitContainers: c,
		Tolerations: []corev1.Toleration{{Key: "k", Operator: "Gt", Value: "4", Effect: "NoSchedule"}},
	}}
	rawNode, _ := codec.Encode(n)
	rawPod, _ := codec.Encode(p)
	textNode, _ := json.Marshal(n)
	textPod, _ := json.Marshal(p)
	return []struct{ proto, json []byte }{{rawNode, textNode}, {rawPod, textPod}}
}

func FuzzProto(f *testing.F) {
	for _, o := range corpus() {
		f.Add(o.proto)
	}
	f.Fuzz(func(_ *testing.T, raw []byte) {
		readPod(core.PodFromProto(raw))
		readNode(core.NodeFromProto(raw))
		core.FindUntolerated(core.NodeFromProto(raw).Spec().Taints(), core.PodFromProto(raw).Spec().Tolerations())
	})
}

func FuzzJSON(f *testing.F) {
	for _, o := range corpus() {
		f.Add(o.json)
	}
	f.Add([]byte(`{"metadata":{"labels":{"a":1,"a":"b"}},"spec":{"taints":[0,null,{"key":3}],"priority":"x"}}`))
	f.Fuzz(func(_ *testing.T, raw []byte) {
		readPod(core.PodFromJSON(raw))
		readNode(core.NodeFromJSON(raw))
		core.FindUntolerated(core.NodeFromJSON(raw).Spec().Taints(), core.PodFromJSON(raw).Spec().Tolerations())
	})
}
