package core_test

import (
	"encoding/json"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	componentresource "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/guest/api/core"
	"github.com/kubewasm/kubewasm/guest/api/meta"
)

// source is where tests take random things from: few values, so that many match.
type source struct{ *rand.Rand }

func newSource() source { return source{rand.New(rand.NewPCG(3, 4))} }

func (s source) pick(list ...string) string { return list[s.IntN(len(list))] }

func (s source) key() string {
	if s.IntN(20) == 0 { // Mostly such as no label has.
		return s.pick("", "-a", "a-", "a.b_c-D", "a b", "a/b/c", "/a", "a/", "UPPER.com/a", "-x.com/a", "x-.com/a", "x..com/a", "exa_mple.com/a", "ä",
			strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 126)+"a/b", strings.Repeat("a.", 127)+"a/b", strings.Repeat("a", 64)+".com/b")
	}
	return s.pick("zone", "disk", "example.com/gen", "none")
}

func (s source) value() string {
	if s.IntN(30) == 0 {
		return s.pick("-a", "a-", "a.b_c-D", "a b", "a/b", "ä", "+5", "-5", strings.Repeat("a", 63), strings.Repeat("a", 64))
	}
	return s.pick("", "a", "b", "5", "7", "70", "007", "x5")
}

func (s source) values() (list []string) {
	for range s.IntN(3) {
		list = append(list, s.value())
	}
	return list
}

func (s source) set() map[string]string {
	m := map[string]string{}
	for range s.IntN(4) {
		m[s.key()] = s.value()
	}
	return m
}

// pod and node return the views of objects, by turns of protobuf and JSON.
func (s source) pod(t *testing.T, p *corev1.Pod) core.Pod {
	if s.IntN(2) == 0 {
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		return core.PodFromJSON(raw)
	}
	raw, err := codec.Encode(p)
	if err != nil {
		t.Fatal(err)
	}
	return core.PodFromProto(raw)
}

func (s source) node(t *testing.T, n *corev1.Node) core.Node {
	raw, err := codec.Encode(n)
	if err != nil {
		t.Fatal(err)
	}
	return core.NodeFromProto(raw)
}

func TestLabelSelectorsAsApimachinery(t *testing.T) {
	s := newSource()
	matched := 0
	oneOf := regexp.MustCompile(` in \(([^,)]*)\)`) // The same as matchLabels.
	for range 30_000 {
		var selector *metav1.LabelSelector
		if s.IntN(10) > 0 {
			selector = &metav1.LabelSelector{MatchLabels: s.set()}
			if s.IntN(2) == 0 {
				selector.MatchLabels = nil
			}
			for range s.IntN(3) {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: s.key(), Operator: metav1.LabelSelectorOperator(s.pick("In", "NotIn", "Exists", "DoesNotExist", "In", "NotIn", "Gt", "")), Values: s.values(),
				})
			}
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: s.set()}}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{LabelSelector: selector}}
		want, err := metav1.LabelSelectorAsSelector(selector)
		v := s.pod(t, p)
		got, gotErr := v.Spec().TopologySpreadConstraints()[0].LabelSelector().Matches(v.Metadata().Labels())
		if (err == nil) != (gotErr == nil) {
			t.Fatalf("%+v: %v, want %v", selector, gotErr, err)
		}
		if err == nil && got != want.Matches(labels.Set(p.Labels)) {
			t.Fatalf("%+v on %v: %v", selector, p.Labels, got)
		}
		if parsed, err := v.Spec().TopologySpreadConstraints()[0].LabelSelector().Parse(); err == nil {
			if got, want := parsed.String(), oneOf.ReplaceAllString(want.String(), "=$1"); got != want {
				t.Fatalf("%+v: %q, want %q", selector, got, want)
			}
		}
		if got {
			matched++
		}
	}
	if matched < 1000 {
		t.Errorf("only %d selectors matched", matched)
	}
}

// TestSpreadingSelectorsAsTheScheduler compares them with what PodTopologySpread makes of a
// constraint: the labels of matchLabelKeys beside the selector's requirements.
func TestSpreadingSelectorsAsTheScheduler(t *testing.T) {
	s := newSource()
	matched, narrowed := 0, 0
	for range 10_000 {
		c := corev1.TopologySpreadConstraint{MatchLabelKeys: []string{"zone", "disk", "none"}[:s.IntN(4)]}
		if s.IntN(8) > 0 {
			c.LabelSelector = &metav1.LabelSelector{}
		}
		if c.LabelSelector != nil && s.IntN(2) == 0 {
			c.LabelSelector.MatchLabels = map[string]string{"example.com/gen": s.pick("5", "7")}
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: s.set()}, Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{c}}}
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: s.set()}}
		if s.IntN(2) == 0 {
			other.Labels = p.Labels
		}
		want, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			t.Fatal(err)
		}
		plain := want.Matches(labels.Set(other.Labels))
		if requirements, selectable := want.Requirements(); selectable {
			same := labels.Set{}
			for _, key := range c.MatchLabelKeys {
				if value, ok := p.Labels[key]; ok {
					same[key] = value
				}
			}
			want = labels.SelectorFromSet(same).Add(requirements...)
		}
		v := s.pod(t, p)
		got, err := v.Spec().TopologySpreadConstraints()[0].ParseSelector(v)
		if err != nil {
			t.Fatal(err)
		}
		matches := got.Matches(s.pod(t, other).Metadata().Labels())
		if matches != want.Matches(labels.Set(other.Labels)) || got.Empty() != want.Empty() {
			t.Fatalf("%+v of %v on %v: %v, empty %v, want %v, %v", c, p.Labels, other.Labels, matches, got.Empty(), !matches, want.Empty())
		}
		if text := strings.ReplaceAll(want.String(), " in ()", "="); got.String() != text {
			t.Fatalf("%+v of %v: %q, want %q", c, p.Labels, got, text)
		}
		if matches {
			matched++
		} else if plain {
			narrowed++
		}
	}
	if matched < 1000 || narrowed < 500 {
		t.Errorf("only %d matched, and %d would have without matchLabelKeys", matched, narrowed)
	}
}

func (s source) requirements(field bool) (list []corev1.NodeSelectorRequirement) {
	for range s.IntN(3) {
		r := corev1.NodeSelectorRequirement{Key: s.key(), Operator: corev1.NodeSelectorOperator(s.pick("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "In", "NotIn", "Other")), Values: s.values()}
		if field {
			r = corev1.NodeSelectorRequirement{Key: s.pick("metadata.name", "metadata.name", "spec.x"), Operator: corev1.NodeSelectorOperator(s.pick("In", "NotIn", "In", "Exists")), Values: []string{s.pick("n1", "n2", "")}}
			if s.IntN(8) == 0 {
				r.Values = append(r.Values, "n1")
			}
		} else if r.Operator == "Gt" || r.Operator == "Lt" {
			r.Values = []string{s.value()}
		}
		list = append(list, r)
	}
	return list
}

func TestNodeAffinityAsComponentHelpers(t *testing.T) {
	s := newSource()
	matched, scored := 0, 0
	for range 40_000 {
		term := func() corev1.NodeSelectorTerm {
			return corev1.NodeSelectorTerm{MatchExpressions: s.requirements(false), MatchFields: s.requirements(true)}
		}
		p, n := &corev1.Pod{}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.pick("n1", "n2", "", "n3"), Labels: s.set()}}
		if s.IntN(3) == 0 {
			p.Spec.NodeSelector = s.set()
		}
		affinity := &corev1.NodeAffinity{}
		if s.IntN(3) > 0 {
			required := &corev1.NodeSelector{}
			for range s.IntN(3) {
				required.NodeSelectorTerms = append(required.NodeSelectorTerms, term())
			}
			affinity.RequiredDuringSchedulingIgnoredDuringExecution = required
		}
		for range s.IntN(3) {
			affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
				corev1.PreferredSchedulingTerm{Weight: s.Int32N(4), Preference: term()})
		}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: affinity}
		want, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n)
		vp, vn := s.pod(t, p), s.node(t, n)
		got, gotErr := vp.MatchesNode(vn)
		if got != want || (err == nil) != (gotErr == nil) {
			t.Fatalf("%+v on %+v: %v, %v, want %v, %v", p.Spec, n.ObjectMeta, got, gotErr, want, err)
		}
		if got {
			matched++
		}
		var wantScore int64
		preferred, err := nodeaffinity.NewPreferredSchedulingTerms(affinity.PreferredDuringSchedulingIgnoredDuringExecution)
		if err == nil {
			wantScore = preferred.Score(n)
		}
		terms, gotErr := core.ParsePreferredNodeAffinity(vp.Spec().Affinity().NodeAffinity().PreferredDuringSchedulingIgnoredDuringExecution())
		score := terms.Score(vn)
		if score != wantScore || (err == nil) != (gotErr == nil) {
			t.Fatalf("%+v on %+v: score %d, %v, want %d, %v", affinity, n.ObjectMeta, score, gotErr, wantScore, err)
		}
		if score > 0 {
			scored++
		}
	}
	if matched < 1000 || scored < 1000 {
		t.Errorf("only %d nodes matched and %d had a score", matched, scored)
	}
	if got, err := (core.NodeSelector{}).Matches(core.Node{}); got || err != nil {
		t.Errorf("nothing matches nothing: %v, %v", got, err)
	}
}

func (s source) resources() corev1.ResourceList {
	list := corev1.ResourceList{}
	for range s.IntN(4) {
		name := s.pick("cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/gpu")
		list[corev1.ResourceName(name)] = resource.MustParse(s.pick("0", "1", "100m", "1500m", "1Gi", "512Mi", "1e3", "7n", "9223372036854775807"))
	}
	return list
}

func (s source) containers(init bool) (list []corev1.Container) {
	always, other := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicy("Never")
	for range s.IntN(4) {
		c := corev1.Container{Resources: corev1.ResourceRequirements{Requests: s.resources(), Limits: s.resources()}}
		switch s.IntN(3) {
		case 0:
			c.RestartPolicy = &always
		case 1:
			c.RestartPolicy = &other
		}
		if !init {
			c.RestartPolicy = nil
		}
		for range s.IntN(3) {
			c.Ports = append(c.Ports, s.port())
		}
		list = append(list, c)
	}
	return list
}

func (s source) port() corev1.ContainerPort {
	return corev1.ContainerPort{HostPort: s.Int32N(3), Protocol: corev1.Protocol(s.pick("", "TCP", "UDP")), HostIP: s.pick("", "0.0.0.0", "10.0.0.1", "10.0.0.2")}
}

func TestRequestsAsComponentHelpers(t *testing.T) {
	s := newSource()
	for range 20_000 {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: s.containers(false), InitContainers: s.containers(true)}}
		if s.IntN(2) == 0 {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: s.resources()}
		}
		if s.IntN(2) == 0 {
			p.Spec.Overhead = s.resources()
		}
		got := s.pod(t, p).Requests()
		// This may add to the amounts in p, where they are too large for an int64.
		want := componentresource.PodRequests(p, componentresource.PodResourcesOptions{})
		if len(got) != len(want) {
			t.Fatalf("%+v: got %v, want %v", p.Spec, got, want)
		}
		for name, amount := range want {
			if q := got[string(name)]; q.String() != amount.String() {
				t.Fatalf("%s of %+v: got %s, want %s", name, p.Spec, q, &amount)
			}
		}
	}
}

func TestHostPortsAsTheScheduler(t *testing.T) {
	s := newSource()
	for range 20_000 {
		p := &corev1.Pod{Spec: corev1.PodSpec{Containers: s.containers(false), InitContainers: s.containers(true)}}
		var want []corev1.ContainerPort
		take := func(c corev1.Container) {
			for _, port := range c.Ports {
				if port.HostPort > 0 {
					want = append(want, port)
				}
			}
		}
		for _, c := range p.Spec.InitContainers {
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				take(c)
			}
		}
		for _, c := range p.Spec.Containers {
			take(c)
		}
		got := s.pod(t, p).HostPorts()
		if len(got) != len(want) {
			t.Fatalf("%d host ports, want %d", len(got), len(want))
		}
		for i, a := range want {
			if got[i].HostPort() != a.HostPort || got[i].HostIP() != a.HostIP {
				t.Fatalf("host port %d is %s:%d, want %+v", i, got[i].HostIP(), got[i].HostPort(), a)
			}
		}
	}
}

func TestSelectorsSayWhatIsWrong(t *testing.T) {
	for want, r := range map[string]meta.Requirement{
		`selector: key "a", operator "In": want values`:                 {Key: "a", Operator: "In"},
		`selector: key "a", operator "Exists": want no values`:          {Key: "a", Operator: "Exists", Values: []string{"x"}},
		`selector: key "a", operator "Gt": want one value`:              {Key: "a", Operator: "Gt"},
		`selector: key "a", operator "Lt": want a whole number`:         {Key: "a", Operator: "Lt", Values: []string{"x"}},
		`selector: key "a", operator "Near": there is no such operator`: {Key: "a", Operator: "Near"},
		`selector: key "a b", operator "Exists": no label has this key`: {Key: "a b", Operator: "Exists"},
		`selector: key "a", operator "In": no label has the value "-x"`: {Key: "a", Operator: "In", Values: []string{"x", "-x"}},
	} {
		if err := r.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		if r.Matches(meta.StringMap{}) {
			t.Errorf("%+v matches", r)
		}
	}
}
