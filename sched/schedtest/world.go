package schedtest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	adapter "github.com/kubewasm/kubewasm/sched"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec"
	"github.com/kubewasm/kubewasm/codec/schedmsg"
	"github.com/kubewasm/kubewasm/guest/sched"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/nativehost"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Event is an event that a plugin has reported.
type Event struct{ Type, Reason, Action, Note string }

// world is a scheduler for a plugin. A guest calls its handle, through the host; a native plugin
// calls it as a nativehost.Scheduler.
type world struct {
	*framework.Cluster

	mu     sync.Mutex
	events []Event
	// activated are the Pods that a plugin has activated.
	activated []sched.PodName
	// applied is what a plugin has applied, in the form of Plugin.Applied.
	applied []string
	// names and binding are those of the current call of a native plugin.
	names   []byte
	binding bool
	// state is the state that a native plugin shares with itself, and code the result of its call.
	state *nativehost.State
	code  abi.Code
}

var (
	_ nativehost.Scheduler = (*world)(nil)
	_ nativehost.Lookups   = (*world)(nil)
)

// newWorld returns a scheduler that has the objects of manifests.
func newWorld(t testing.TB, manifests string) *world {
	t.Helper()
	objects := &manifest.Objects{}
	var err error
	if manifests != "" {
		if objects, err = manifest.Read([]byte(manifests)); err == nil {
			err = objects.Named()
		}
		if err != nil {
			t.Fatalf("read objects: %v", err)
		}
	}
	cluster, err := framework.NewCluster(objects)
	if err != nil {
		t.Fatalf("read objects: %v", err)
	}
	for _, o := range cluster.Unknown {
		t.Fatalf("read objects: %s %s: a scheduler does not know the kind %s", o.Kind, o.Name, o.GroupVersionKind())
	}
	for _, warning := range cluster.Warnings {
		t.Fatalf("read objects: %s", warning)
	}
	w := &world{Cluster: cluster, state: nativehost.NewState()}
	w.Recorder, w.Activates, w.Applies = w.report, w.activate, w.apply
	return w
}

// enter begins a call. Pods that were allowed or rejected no longer wait.
func (w *world) enter(native, binding bool, names ...string) (leave func()) {
	w.Waiting = slices.DeleteFunc(w.Waiting, func(p *framework.WaitingPod) bool { return p.Result() != "" })
	if !native {
		return func() {}
	}
	done, forget := nativehost.UseScheduler(w), nativehost.UseLookups(w)
	end := nativehost.UseState(w.state)
	w.code = abi.Error // Until the plugin has returned.
	leave = func() {
		switch w.code {
		case abi.Success, abi.Wait, abi.Skip:
			end(true, true)
		case abi.Unschedulable, abi.UnschedulableAndUnresolvable, abi.Pending:
			end(false, true)
		default:
			end(false, false)
		}
		forget()
		done()
	}
	if w.binding = binding; names == nil {
		for _, n := range w.Snapshot {
			names = append(names, n.Node().Name)
		}
	}
	w.names = nil
	for _, name := range names {
		w.names = append(append(w.names, name...), 0)
	}
	return leave
}

// node returns a node by its name, and its number.
func (w *world) node(name string) (*framework.NodeInfo, int) {
	for i, n := range w.Snapshot {
		if n.Node().Name == name {
			return n, i
		}
	}
	return nil, 0
}

func (w *world) record(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// take returns the events since the last take.
func (w *world) take() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.events
	w.events = nil
	return list
}

// report records an event that a guest reports.
func (w *world) report(_, _ runtime.Object, eventType, reason, action, note string) {
	w.record(Event{eventType, reason, action, note})
}

// must panics if err is not nil, which only a mistake in the test can cause.
func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

// world is the host of a native plugin: it answers with the encoders of the real host.

func (w *world) NodeNames() []byte { return w.names }

func (w *world) NodeByName(name string) (abi.Ref, []byte) {
	n, i := w.node(name)
	if n == nil || w.binding {
		return 0, nil
	}
	return abi.MakeRef(1, uint32(i)), must(codec.Encode(n.Node()))
}

func (w *world) of(ref abi.Ref) *framework.NodeInfo { return w.Snapshot[ref.Slot()] }

func (w *world) NodeInfo(ref abi.Ref) []byte { return w.of(ref).Usage().Append(nil) }

func (w *world) NodeImages(ref abi.Ref) []byte {
	return schedmsg.AppendNodeImages(nil, slices.Clone(w.of(ref).Images))
}

func (w *world) NodePods(ref abi.Ref) (pods [][]byte) {
	for _, pod := range w.of(ref).Pods {
		pods = append(pods, must(codec.Encode(pod)))
	}
	return pods
}

func (w *world) NominatedPods(node string) (pods [][]byte) {
	for _, pod := range w.Nominated(node) {
		pods = append(pods, must(codec.Encode(pod)))
	}
	return pods
}

// trial puts n in the place of the node of its name until end is called.
func (w *world) trial(n *framework.NodeInfo) (end func()) {
	_, i := w.node(n.Node().Name)
	before := w.Snapshot[i]
	w.Snapshot[i] = n
	return func() { w.Snapshot[i] = before }
}

func (w *world) Event(message []byte) {
	e, err := schedmsg.ParseEvent(message)
	if err != nil {
		panic(err)
	}
	w.record(Event{e.Type, e.Reason, e.Action, e.Note})
}

// activate records Pods that a plugin activates.
func (w *world) activate(pods []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		w.activated = append(w.activated, sched.PodName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

func (w *world) Activate(pods []byte) {
	parts := strings.Split(string(pods), "\x00")
	for pair := range slices.Chunk(parts[:len(parts)-1], 2) {
		w.activate([]types.NamespacedName{{Namespace: pair[0], Name: pair[1]}})
	}
}

// apply records what a plugin applies.
func (w *world) apply(of adapter.Applied) {
	gvr, what := of.Resource, "status "+string(of.Status)
	if of.Annotations != nil {
		what = "annotations " + string(must(json.Marshal(of.Annotations)))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.applied = append(w.applied, strings.TrimPrefix(gvr.GroupVersion().String()+"/"+gvr.Resource, "/")+" "+strings.TrimPrefix(of.Namespace+"/"+of.Name, "/")+" "+what)
}

func (w *world) Apply(question []byte, status bool) {
	a, err := lookup.ParseApply(string(question), status)
	if err == nil {
		err = a.Allowed(lookup.TestGrants(w.Resources...))
	}
	if err != nil {
		panic(err)
	}
	gvr, err := lookup.ParseResource(a.Resource)
	if err != nil {
		panic(err)
	}
	w.apply(adapter.Applied{Resource: gvr, Namespace: a.Namespace, Name: a.Name, Annotations: a.Annotations, Status: a.Status})
}

func (w *world) AwaitObject(question []byte, _ uint32) {
	resource, _, _ := strings.Cut(string(question), "\x00")
	w.lister(resource)
}

func (w *world) WaitingPods() (b []byte) {
	for _, p := range w.Waiting {
		b = schedmsg.AppendWaitingPod(b, p.Pod, p.Pending)
	}
	return b
}

func (w *world) WaitingPod(uid string) []byte {
	if p := w.Cluster.WaitingPod(types.UID(uid)); p != nil {
		return must(codec.Encode(p.GetPod()))
	}
	return nil
}

func (w *world) AllowWaitingPod(uid string) bool {
	p := w.Cluster.WaitingPod(types.UID(uid))
	if p == nil {
		return false
	}
	p.Allow(nativeName)
	return true
}

func (w *world) RejectWaitingPod(request string) bool {
	uid, reason, _ := strings.Cut(request, "\x00")
	p := w.Cluster.WaitingPod(types.UID(uid))
	return p != nil && p.Reject(nativeName, reason)
}

// lister returns the lister of the objects of a resource.
func (w *world) lister(resource string) cache.GenericLister {
	if !slices.Contains(w.Resources, resource) {
		panic(fmt.Sprintf("there is no resource %q that a scheduler knows", resource))
	}
	parts := strings.Split("/"+resource, "/")
	parts = parts[len(parts)-3:]
	lister, err := w.Informers.Lister(schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]})
	if err != nil {
		panic(err)
	}
	return lister
}

func (w *world) GetObject(request string) []byte {
	parts := strings.Split(request, "\x00")
	object, err := w.lister(parts[0]).Get(strings.TrimPrefix(parts[1]+"/"+parts[2], "/"))
	if err != nil {
		return nil
	}
	return must(codec.Encode(object.(metav1.Object)))
}

func (w *world) ListObjects(question string) []byte {
	q, err := lookup.ParseList(question, free)
	if err != nil {
		panic(err)
	}
	found, err := w.lister(q.Resource).List(labels.Everything())
	if err != nil {
		panic(err)
	}
	list := make([]metav1.Object, len(found))
	for i, object := range found {
		if list[i], err = meta.Accessor(object); err != nil {
			panic(err)
		}
	}
	slices.SortFunc(list, lookup.Compare[metav1.Object])
	return must(lookup.Append(nil, q, list, objects.Encode, free, math.MaxInt32))
}

// free is the price of a native plugin's questions.
func free(int64) {}

// identify gives a Pod a UID, by which it is known while it waits.
func identify(pod *corev1.Pod) {
	if pod.UID == "" {
		pod.UID = types.UID(pod.Namespace + "/" + pod.Name)
	}
}
