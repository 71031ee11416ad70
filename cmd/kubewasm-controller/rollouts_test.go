package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// node is an agent without guests: the real watch, choice, count of failures and report. A version whose
// guestConfig has traps fails on one of a hundred Pods.
type node struct {
	name   string
	labels map[string]string
	trials clusterplugins.Trials

	mu      sync.Mutex
	objects []clusterplugins.Object
	// serves is the revision in service by plugin, and calls counts Pods. refused are the Pods that were
	// refused, by revision.
	serves  map[string]int64
	calls   int
	refused map[int64]int
}

// version returns the version of an object for the node, nil for none.
func (n *node) version(o *clusterplugins.Object) *clusterplugins.Object {
	if o.Else != nil && !slices.ContainsFunc(o.NodeSelectors, func(s string) bool {
		key, value, _ := strings.Cut(s, "=")
		return n.labels[key] == value
	}) {
		o = o.Else
	}
	if o.Held {
		return nil
	}
	return o
}

func (n *node) apply(objects []clusterplugins.Object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.objects, n.serves = objects, map[string]int64{}
	n.trials.Apply(objects)
	for i := range objects {
		if o := n.version(&objects[i]); o != nil {
			n.serves[o.Name] = o.Revision
		}
	}
}

// call has a Pod begin.
func (n *node) call() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	for i := range n.objects {
		o := n.version(&n.objects[i])
		if o == nil || !strings.Contains(string(o.Spec), `"traps"`) || n.calls%100 != 0 {
			continue
		}
		n.refused[o.Revision]++
		n.trials.Of(o).Called(errors.New("the guest trapped: unreachable"), time.Millisecond)
	}
}

func (n *node) states() (states []clusterplugins.State) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.objects == nil {
		return nil
	}
	states = []clusterplugins.State{}
	for i := range n.objects {
		if o := n.version(&n.objects[i]); o != nil {
			s := clusterplugins.State{Kind: o.Kind, Name: o.Name, UID: o.UID, Generation: o.Generation, Revision: o.Revision, State: "Serving", Digest: fmt.Sprintf("%064d", o.Revision)}
			n.trials.Of(o).Report(&s)
			states = append(states, s)
		}
	}
	return states
}

// fleet are nodes, and what they write.
type fleet struct {
	*world
	nodes  []*node
	writes atomic.Int64
}

func (f *fleet) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		f.writes.Add(1)
	}
	return f.transport.RoundTrip(r)
}

// run runs a node until ctx ends, and running waits for it.
func (f *fleet) start(ctx context.Context, running *sync.WaitGroup, n *node) {
	api := apiserver.Wrap(f.Config.Host, &http.Client{Transport: f})
	watch := clusterplugins.New(clusterplugins.Config{Client: api, Name: n.name, Resources: []clusterplugins.Resource{clusterplugins.NodeHooks}, Apply: n.apply, Logger: slog.New(slog.DiscardHandler)})
	running.Go(func() { watch.Run(ctx) })
	running.Go(func() {
		clusterplugins.Report(ctx, api, clusterplugins.Process{Component: "kubewasm-agent", Version: "v1", Name: "agent-" + n.name, Namespace: namespace, Node: n.name}, n.states, slog.New(slog.DiscardHandler))
	})
}

// newFleet starts nodes, whose first has the label pool=first.
func newFleet(t *testing.T, w *world, size int) *fleet {
	t.Helper()
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: w.Config.TLSClientConfig, Dial: w.Config.Dial})
	if err != nil {
		t.Fatal(err)
	}
	w.transport = transport
	f := &fleet{world: w}
	ctx, cancel := context.WithCancel(t.Context())
	running := new(sync.WaitGroup)
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for i := range size {
		n := &node{name: fmt.Sprintf("node-%03d", i), labels: map[string]string{"pool": "others"}, refused: map[int64]int{}}
		if i == 0 {
			n.labels["pool"] = "first"
		}
		w.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels}})
		f.nodes = append(f.nodes, n)
		f.start(ctx, running, n)
	}
	return f
}

// serving returns the number of nodes by the revision that they serve.
func (f *fleet) serving(hook string) map[int64]int {
	all := map[int64]int{}
	for _, n := range f.nodes {
		n.mu.Lock()
		if revision, ok := n.serves[hook]; ok {
			all[revision]++
		}
		n.mu.Unlock()
	}
	return all
}

// hook returns a NodeHook with a rollout, and with a version in its guestConfig.
func hook(name, version, rollout string) *v1alpha1.NodeHook {
	return &v1alpha1.NodeHook{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: hookSpec(version, rollout)}
}

func hookSpec(version, rollout string) runtime.RawExtension {
	spec := `{"module":{"file":"/m.wasm"},"owns":["cpu_shares"],"guestConfig":{"` + version + `":1}`
	if rollout != "" {
		spec += `,` + rollout
	}
	return runtime.RawExtension{Raw: []byte(spec + "}")}
}

// rolled waits until the condition RolledOut of a plugin has a reason, about its generation, and returns
// its message.
func (w *world) rolled(t testing.TB, o client.Object, reason string) (message string) {
	t.Helper()
	eventually(t, "rollout of "+o.GetName(), func() error {
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		p, _ := plugin.Of(o)
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)
		if c == nil || c.ObservedGeneration != o.GetGeneration() || c.Reason != reason {
			text, _ := json.Marshal(p.Status)
			return fmt.Errorf("the status is %s, want %s of generation %d", text, reason, o.GetGeneration())
		}
		message = c.Message
		return nil
	})
	return message
}

// revisions returns the numbers of the revisions of a plugin.
func (w *world) revisions(t testing.TB, o client.Object) (numbers []int64) {
	t.Helper()
	list := &v1alpha1.PluginRevisionList{}
	if err := w.admin.List(t.Context(), list, client.InNamespace(cmp.Or(o.GetNamespace(), namespace))); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], o) {
			numbers = append(numbers, list.Items[i].Revision)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// A change of a NodeHook comes into service step by step, a version that traps is rolled back at its
// first step, and one field rolls back to an older one.
func TestRollouts(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	o.namespaces = []string{"team"}
	w.run(t, o)
	t.Run("hook", func(t *testing.T) { rolloutOfAHook(t, w) })
	t.Run("policy", func(t *testing.T) { rolloutOfAPolicy(t, w) })
	t.Run("scheduler plugin", func(t *testing.T) { revisionsOfASchedulerPlugin(t, w) })
}

// revisionsOfASchedulerPlugin has a SchedulerPlugin go back to a revision by one field, and forward.
func revisionsOfASchedulerPlugin(t *testing.T, w *world) {
	of := func(version, more string) runtime.RawExtension {
		return spec(`{"module":{"bytes":"AGFzbQEAAAA="},"schedulers":{"names":["a"]},"guestConfig":"` + version + `"` + more + `}`)
	}
	zone := &v1alpha1.SchedulerPlugin{ObjectMeta: metav1.ObjectMeta{Name: "zone"}, Spec: of("1", "")}
	w.create(t, zone)
	w.rolled(t, zone, "Complete")
	w.change(t, zone, func() { zone.Spec = of("2", "") })
	w.rolled(t, zone, "Complete")
	if got := w.revisions(t, zone); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("the revisions are %v", got)
	}
	w.change(t, zone, func() { zone.Spec = of("3", `,"revision":1`) })
	w.rolled(t, zone, "Complete")
	if r := zone.Status.Rollout; r == nil || r.Stable == nil || r.Stable.Revision != 1 || !strings.Contains(string(r.Stable.Spec.Raw), `"guestConfig":"1"`) || !strings.Contains(string(r.Stable.Spec.Raw), `"names":["a"]`) {
		t.Errorf("the status is %+v, want revision 1 with its spec", r)
	}
	w.change(t, zone, func() { zone.Spec = of("3", `,"revisionHistoryLimit":1`) })
	w.rolled(t, zone, "Complete")
	eventually(t, "history", func() error {
		if got := w.revisions(t, zone); !slices.Equal(got, []int64{2, 3}) && !slices.Equal(got, []int64{3}) {
			return fmt.Errorf("the revisions are %v", got)
		}
		return nil
	})
}

// rolloutOfAHook has KUBEWASM_SCALE nodes.
func rolloutOfAHook(t *testing.T, w *world) {
	size := 40
	if text := os.Getenv("KUBEWASM_SCALE"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		size = n
	}
	ready := func(n int) string { return fmt.Sprintf("%d/%d", n, size) }
	f := newFleet(t, w, size)
	const steps = `"rollout":{"steps":[{"percent":5,"pause":"0s"},{"percent":50,"pause":"0s"}]}`
	h := hook("shares", "a", "")
	w.create(t, h)
	w.rolled(t, h, "Complete")
	w.status(t, h, ready(size), "Ready=True/Serving")
	// What processes report is summed up after a pause.
	revision := func(want string) {
		t.Helper()
		eventually(t, "the revision in the status", func() error {
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(h), h); err != nil {
				return err
			}
			if h.Status.Revision != want {
				return fmt.Errorf("revision is %q, want %s", h.Status.Revision, want)
			}
			return nil
		})
	}
	revision("1")
	if h.Status.Rollout.Stable.Spec != nil {
		t.Errorf("the status is %+v", h.Status)
	}

	// Each node writes at most twice: for the revision that it serves by now, and for the next.
	before, begun := f.writes.Load(), time.Now()
	w.change(t, h, func() { h.Spec = hookSpec("b", steps) })
	w.rolled(t, h, "Complete")
	w.status(t, h, ready(size), "Ready=True/Serving")
	if got := f.writes.Load() - before; got > int64(2*size) {
		t.Errorf("%d writes of %d nodes", got, size)
	} else {
		t.Logf("a change in two steps took %s, with %d writes of %d nodes", time.Since(begun).Round(time.Millisecond), got, size)
	}

	// 1 % of the Pods trap.
	w.change(t, h, func() { h.Spec = hookSpec("traps", `"rollout":{"steps":[{"percent":5,"pause":"1h"}]}`) })
	w.rolled(t, h, "Progressing")
	eventually(t, "two nodes in the step", func() error {
		if got := f.serving("shares"); got[3] != size/20 || got[2] != size-size/20 {
			return fmt.Errorf("the nodes serve %v", got)
		}
		return nil
	})
	before, begun = f.writes.Load(), time.Now()
	for range 150 {
		for _, n := range f.nodes {
			n.call()
		}
	}
	message := w.rolled(t, h, "RolledBack")
	if want := "revision 3 was rolled back in step 1 of 1: it fails on "; !strings.HasPrefix(message, want) || !strings.Contains(message, "1 failed calls, the first: the guest trapped: unreachable; revision 2 serves") {
		t.Errorf("the message is %q", message)
	}
	w.status(t, h, ready(0), "Ready=False/OtherRevision")
	eventually(t, "all nodes serve the stable revision", func() error {
		if got := f.serving("shares"); got[2] != size {
			return fmt.Errorf("the nodes serve %v", got)
		}
		return nil
	})
	t.Logf("it was rolled back after %s, with %d writes", time.Since(begun).Round(time.Millisecond), f.writes.Load()-before)
	refused := 0
	for _, n := range f.nodes {
		n.mu.Lock()
		refused += n.refused[3]
		n.mu.Unlock()
	}
	if refused != size/20 {
		t.Errorf("%d Pods were refused, want one on each node of the step", refused)
	}
	// It stays so until the spec changes.
	if got := h.Status.Rollout.Failed; got != 3 {
		t.Errorf("failed is %d", got)
	}
	w.change(t, h, func() {
		h.Spec = hookSpec("traps", `"rollout":{"paused":true,"steps":[{"nodeSelector":"pool=first","pause":"1h"}]}`)
	})
	w.rolled(t, h, "Paused")
	w.change(t, h, func() { h.Spec = hookSpec("traps", `"rollout":{"steps":[{"nodeSelector":"pool=first","pause":"1h"}]}`) })
	w.rolled(t, h, "Progressing")
	eventually(t, "the node that the step selects", func() error {
		if got := f.serving("shares"); got[3] != 1 || got[2] != size-1 || f.nodes[0].serves["shares"] != 3 {
			return fmt.Errorf("the nodes serve %v", got)
		}
		return nil
	})
	// Another change in the middle, which cannot be read, and then one that serves.
	w.change(t, h, func() { h.Spec = hookSpec("c", `"rollout":{"steps":[{"nodeSelector":"pool in","pause":"1h"}]}`) })
	w.rolled(t, h, "Invalid")
	w.change(t, h, func() {
		h.Spec = hookSpec("c", `"rollout":{"steps":[{"percent":1,"pause":"0s"}]},"revisionHistoryLimit":1`)
	})
	w.rolled(t, h, "Complete")
	w.status(t, h, ready(size), "Ready=True/Serving")
	revision("4")

	// One field rolls back, at once, to a revision that is in the history.
	eventually(t, "the history", func() error {
		if got := w.revisions(t, h); !slices.Equal(got, []int64{3, 4}) {
			return fmt.Errorf("the revisions are %v", got)
		}
		return nil
	})
	patch := func(spec string) {
		if err := w.admin.Patch(t.Context(), h, client.RawPatch("application/merge-patch+json", []byte(`{"spec":`+spec+`}`))); err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"revision":3}`)
	w.rolled(t, h, "Complete")
	w.status(t, h, ready(size), "Ready=True/Serving")
	patch(`{"revision":2}`)
	if got, want := w.rolled(t, h, "RevisionGone"), "there is no revision 2: the history has 3, 4"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	if got := f.serving("shares"); got[3] != size {
		t.Errorf("the nodes serve %v", got)
	}
	patch(`{"revision":null}`)
	w.rolled(t, h, "Complete")
	w.status(t, h, ready(size), "Ready=True/Serving")
	revision("4")
}

// The first revision of a policy monitors until its rollout ends, and a later one is compared in a
// shadow first. API servers ask by the rules of the stable revision meanwhile.
func rolloutOfAPolicy(t *testing.T, w *world) {
	pods := []*corev1.Pod{w.pod(t, "webhook", "webhook-1", "n"), w.pod(t, "webhook", "webhook-2", "n")}
	const steps = `"rollout":{"steps":[{"mode":"Monitor","pause":"0s"},{"mode":"Shadow","pause":"0s"},{"percent":50,"pause":"0s"}]}`
	p := policy("zone", `{`+steps+`}`)
	w.create(t, p)
	// reports has the replicas serve a revision on a trial, and report on it.
	reports := func(revision, trial int64, failing string) {
		t.Helper()
		for _, pod := range pods {
			s := state(p, "Serving", "")
			s.Revision, s.Trial, s.Failing = revision, trial, failing
			w.report(t, pod, s)
		}
	}
	step := func(number int32, mode string, stable, candidate int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("step %d", number), func() error {
			if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			r := p.Status.Rollout
			if r == nil || r.Step != number || r.Mode != mode || r.Candidate == nil || r.Candidate.Revision != candidate || (r.Stable == nil) != (stable == 0) || r.Stable != nil && r.Stable.Revision != stable {
				return fmt.Errorf("the rollout is %+v", r)
			}
			return nil
		})
	}
	entry := func(failure admissionv1.FailurePolicyType, resource string) {
		t.Helper()
		eventually(t, "the entry", func() error {
			all, _ := w.entries(t)
			if len(all) != 1 || *all[0].FailurePolicy != failure || all[0].Rules[0].Resources[0] != resource {
				return fmt.Errorf("the entries are %+v", all)
			}
			return nil
		})
	}
	step(1, "Monitor", 0, 1)
	reports(1, p.Status.Rollout.Trial, "")
	step(3, "", 0, 1)
	entry(admissionv1.Ignore, "configmaps")
	w.rolled(t, p, "Complete")
	entry(admissionv1.Fail, "configmaps")

	rules := `"match":{"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"]}]}`
	w.change(t, p, func() { p.Spec = spec(`{` + rules + `,` + steps + `}`) })
	step(2, "Shadow", 1, 2)
	entry(admissionv1.Fail, "configmaps")
	reports(1, p.Status.Rollout.Trial, "3 of 10 answers differ in the shadow, most of them allow -> deny")
	if message := w.rolled(t, p, "RolledBack"); !strings.Contains(message, "in step 2 of 3: it fails on 2 of 2 processes, as on webhook-1: 3 of 10 answers differ in the shadow") {
		t.Errorf("the message is %q", message)
	}
	entry(admissionv1.Fail, "configmaps")
	// It is tried again, and serves.
	w.change(t, p, func() {
		p.Spec = spec(`{` + rules + `,` + strings.Replace(steps, `{"steps"`, `{"unavailable":0,"steps"`, 1) + `}`)
	})
	step(2, "Shadow", 1, 2)
	// Who may report in a namespace of agents does not end it.
	elsewhere := pods[0].DeepCopy()
	elsewhere.Namespace, elsewhere.ResourceVersion, elsewhere.UID = "team", "", ""
	w.create(t, elsewhere)
	lie := state(p, "Serving", "")
	lie.Trial, lie.Failing = p.Status.Rollout.Trial, "it fails"
	w.report(t, elsewhere, lie)
	reports(1, p.Status.Rollout.Trial, "")
	step(3, "", 1, 2)
	if err := w.admin.Delete(t.Context(), elsewhere, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	entry(admissionv1.Fail, "configmaps")
	// One replica is of the step, by its name, and it is enough: the names of the next are others.
	reports(2, p.Status.Rollout.Trial, "")
	w.rolled(t, p, "Complete")
	entry(admissionv1.Fail, "secrets")
	w.status(t, p, "2/2", "Ready=True/Serving", "Sent=True/Sent")
	// A policy with a rollout that is wrong is as it was.
	w.change(t, p, func() { p.Spec = spec(`{"rollout":{"steps":[{"nodeSelector":"a=b"}]}}`) })
	if got, want := w.rolled(t, p, "Invalid"), "rollout: steps[0].nodeSelector is for agents"; got != want {
		t.Errorf("the message is %q, want %q", got, want)
	}
	entry(admissionv1.Fail, "secrets")
}
