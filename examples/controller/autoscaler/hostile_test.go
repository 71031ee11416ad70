package autoscaler_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/scale"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/examples/controller/scaler"
	"github.com/kubewasm/kubewasm/host"
)

const (
	namespaces   = 20
	perNamespace = 10
	maxReplicas  = 100_000
	// humanReplicas is the lowest number that a person gives a workload by hand. No guest
	// comes as far, and none gives a multiple of 10.
	humanReplicas = 50_000
)

// The moods of the guest moody that matter here: all from 0 to 9 that are not named are good
// answers of 10*step + version.
const (
	asItIs   = 3
	traps    = 4
	loops    = 5
	fails    = 6
	negative = 7
	huge     = 8
)

// hostile is the world of 200 policies, and what is right in it. The order of all events is
// that of a counter.
type hostile struct {
	*world
	t        *testing.T
	counter  atomic.Int64
	subjects map[types.NamespacedName]*subject
	// digests are the versions of moody by their digests.
	digests map[string]int

	conflicts, humans, kept, writes atomic.Int64
}

// subject is a policy, its workload, and what they were asked and did.
type subject struct {
	types.NamespacedName
	index int

	mu     sync.Mutex
	random *rand.Rand
	asks   []ask
	// from is the number of asks before the workload was read first, by its UID.
	from map[types.UID]int
	gets int
	// started says since when a version may serve, ended since when it does not.
	started, ended map[int]int64
	// attempts are the writes of the controller that were no conflicts, byHand those of a person, seen the values
	// that the watch saw.
	attempts []attempt
	byHand   map[int32]bool
	seen     []int32
	status   v1alpha1.ScalePolicyStatus
}

// ask is a question to the guest that got as far as to ask for the metric.
type ask struct {
	step, mood int
	at         int64
	// lost says that the controller may have ended before it wrote down the answer.
	lost bool
}

type attempt struct {
	replicas int32
	err      error
}

// manual reports whether a person changes the workload by hand.
func (s *subject) manual() bool { return s.index%10 == 0 }

// Query answers the guest, see moody.wat: each question is another step in a random mood.
func (h *hostile) Query(_ context.Context, namespace, name string, _ map[string]string) ([]float64, error) {
	config := struct{ Policy string }{}
	if err := json.Unmarshal([]byte(name), &config); err != nil {
		return nil, err
	}
	s := h.subjects[types.NamespacedName{Namespace: namespace, Name: config.Policy}]
	if s == nil {
		h.t.Errorf("a guest of %s asks for %s", namespace, name)
		return nil, fmt.Errorf("no policy %s", name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	moods := []int{0, 1, 2, 0, 1, 2, 9, asItIs, traps, loops, fails, negative, huge, fails, negative, traps}
	if s.manual() {
		// What these answer depends on what the person did last.
		moods = []int{0, 1, 2, 9, traps, loops, fails, negative}
	}
	a := ask{step: len(s.asks) + 1, mood: moods[s.random.IntN(len(moods))], at: h.counter.Add(1)}
	s.asks = append(s.asks, a)
	return []float64{float64(10*a.step + a.mood)}, nil
}

func (h *hostile) PodUsage(context.Context, string, labels.Selector) (map[string]scaler.Usage, error) {
	return nil, nil
}

// served reports whether a version may have answered an ask. s.mu is held.
func (s *subject) served(version int, a ask) bool {
	started, ok := s.started[version]
	ended, over := s.ended[version]
	return ok && started < a.at && (!over || a.at <= ended)
}

// check returns an error if the controller must not give the workload a number now: unless the
// guest of this moment says so, or said so the last time that it said something. s.mu is
// held.
func (s *subject) check(replicas int32, uid types.UID) error {
	for i := len(s.asks) - 1; i >= s.from[uid]; i-- {
		a := s.asks[i]
		right := false
		switch a.mood {
		case traps, loops, fails, negative:
			continue // The last answer counts.
		case huge:
			right = replicas == maxReplicas
		case asItIs: // There is nothing to write.
		default:
			right = s.served(int(replicas)-10*a.step, a)
		}
		if right {
			return nil
		}
		if !a.lost {
			return fmt.Errorf("%d replicas after ask %d in mood %d of %d", replicas, a.step, a.mood, len(s.asks))
		}
	}
	return fmt.Errorf("%d replicas without an answer", replicas)
}

// observed sees every read and write of the subresource by the controller, and gets in its
// way between the two.
type observed struct {
	scale.ScalesGetter
	*hostile
}

func (o observed) Scales(namespace string) scale.ScaleInterface {
	return observedScales{o.ScalesGetter.Scales(namespace), o.hostile, namespace}
}

type observedScales struct {
	scale.ScaleInterface
	*hostile
	namespace string
}

func (o observedScales) Get(ctx context.Context, resource schema.GroupResource, name string, opts metav1.GetOptions) (*autoscalingv1.Scale, error) {
	got, err := o.ScaleInterface.Get(ctx, resource, name, opts)
	if err != nil {
		return nil, err
	}
	s := o.subjects[types.NamespacedName{Namespace: o.namespace, Name: name}]
	s.mu.Lock()
	if _, ok := s.from[got.UID]; !ok {
		s.from[got.UID] = len(s.asks)
	}
	s.gets++
	gets := s.gets
	patch := ""
	if gets%7 == 3 {
		patch = fmt.Sprintf(`{"metadata":{"annotations":{"example.com/get":"%d"}}}`, gets)
	}
	if s.manual() && gets%5 == 2 {
		replicas := int32(humanReplicas + 10*gets)
		s.byHand[replicas] = true
		patch = fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
		o.humans.Add(1)
	}
	s.mu.Unlock()
	if patch != "" {
		workload := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}}
		// Also while the controller stops: the person does not.
		ignoreNotFound(o.t, o.admin.Patch(context.WithoutCancel(ctx), workload, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	return got, nil
}

func (o observedScales) Update(ctx context.Context, resource schema.GroupResource, update *autoscalingv1.Scale, opts metav1.UpdateOptions) (*autoscalingv1.Scale, error) {
	s := o.subjects[types.NamespacedName{Namespace: o.namespace, Name: update.Name}]
	s.mu.Lock()
	err := s.check(update.Spec.Replicas, update.UID)
	if n := len(s.asks); n > 0 && s.asks[n-1].mood >= traps && s.asks[n-1].mood <= negative {
		o.kept.Add(1)
	}
	s.mu.Unlock()
	if err != nil {
		o.t.Errorf("%s: the controller writes %v", s, err)
	}
	got, err := o.ScaleInterface.Update(ctx, resource, update, opts)
	o.writes.Add(1)
	if apierrors.IsConflict(err) {
		o.conflicts.Add(1)
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts = append(s.attempts, attempt{update.Spec.Replicas, err})
	return got, err
}

// lagging is a client whose cache is late: a policy has the status that it had when it was read
// before.
type lagging struct {
	client.Client
	mu   sync.Mutex
	last map[types.UID]v1alpha1.ScalePolicyStatus
}

func (l *lagging) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := l.Client.Get(ctx, key, o, opts...); err != nil {
		return err
	}
	if p, ok := o.(*v1alpha1.ScalePolicy); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		now := p.Status
		p.Status = l.last[p.UID]
		l.last[p.UID] = now
	}
	return nil
}

// create makes the namespaces, modules, workloads and policies.
func (h *hostile) create() {
	h.subjects, h.digests = map[types.NamespacedName]*subject{}, map[string]int{}
	for v := byte(1); v <= 3; v++ {
		h.digests[digest(moody(h.t, v))] = int(v)
	}
	var objects []client.Object
	for n := range namespaces {
		namespace := fmt.Sprint("team-", n)
		objects = append(objects,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
			&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "moody"},
				BinaryData: map[string][]byte{"module.wasm": moody(h.t, 1)},
			})
		for i := range perNamespace {
			s := &subject{
				NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint("app-", i)}, index: n*perNamespace + i,
				from: map[types.UID]int{}, started: map[int]int64{1: 0}, ended: map[int]int64{}, byHand: map[int32]bool{},
			}
			s.random = rand.New(rand.NewPCG(1, uint64(s.index)))
			h.subjects[s.NamespacedName] = s
			objects = append(objects, deployment(namespace, s.Name), policy(s))
		}
	}
	for _, o := range objects {
		if err := h.admin.Create(h.t.Context(), o); err != nil {
			h.t.Fatal(err)
		}
	}
}

// policy returns the policy of a subject.
func policy(s *subject) *v1alpha1.ScalePolicy {
	return &v1alpha1.ScalePolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name},
		Spec: v1alpha1.ScalePolicySpec{
			ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: s.Name},
			MaxReplicas:    maxReplicas, IntervalSeconds: 5,
			Guest: v1alpha1.Guest{
				ConfigMap: &v1alpha1.ConfigMapKey{Name: "moody"}, Grants: []string{"metrics"},
				Config: &apiextensionsv1.JSON{Raw: fmt.Appendf(nil, `{"policy":%q}`, s.Name)},
			},
		},
	}
}

// publish gives some namespaces another module, which is a version of moody unless that is 0.
func (h *hostile) publish(version int, module []byte, where func(s *subject) bool) {
	done := map[string]bool{}
	for _, s := range h.subjects {
		if !where(s) {
			continue
		}
		if version != 0 {
			s.mu.Lock()
			s.started[version] = h.counter.Add(1)
			s.mu.Unlock()
		}
		done[s.Namespace] = true
	}
	for namespace := range done {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "moody"},
			BinaryData: map[string][]byte{"module.wasm": module},
		}
		if err := h.admin.Update(h.t.Context(), object); err != nil {
			h.t.Fatal(err)
		}
	}
}

// watch sees every change of workloads and policies, in the background until the test ends.
func (h *hostile) watch(list client.ObjectList, see func(watch.EventType, runtime.Object)) {
	if err := h.admin.List(h.t.Context(), list); err != nil {
		h.t.Fatal(err)
	}
	w, err := h.admin.Watch(h.t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	if err != nil {
		h.t.Fatal(err)
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, o := range objects {
		see(watch.Added, o)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range w.ResultChan() {
			if event.Type == watch.Error && h.t.Context().Err() == nil {
				h.t.Errorf("watch: %v", event.Object)
			}
			see(event.Type, event.Object)
		}
	}()
	h.t.Cleanup(func() {
		w.Stop()
		<-ended
	})
}

// seeWorkloads returns what keeps the numbers of replicas that the watch sees.
func (h *hostile) seeWorkloads() func(watch.EventType, runtime.Object) {
	last := map[types.NamespacedName]int32{}
	return func(kind watch.EventType, o runtime.Object) {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			return
		}
		name := client.ObjectKeyFromObject(d)
		s := h.subjects[name]
		if before, ok := last[name]; s != nil && ok && kind == watch.Modified && before != *d.Spec.Replicas {
			s.mu.Lock()
			s.seen = append(s.seen, *d.Spec.Replicas)
			s.mu.Unlock()
		}
		last[name] = *d.Spec.Replicas
		if kind == watch.Deleted {
			delete(last, name)
		}
	}
}

// seePolicy checks the status of a policy, and learns from it which version serves.
func (h *hostile) seePolicy(kind watch.EventType, o runtime.Object) {
	p, ok := o.(*v1alpha1.ScalePolicy)
	if !ok || kind == watch.Deleted {
		return
	}
	s := h.subjects[client.ObjectKeyFromObject(p)]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = p.Status
	// The next question goes to the module that serves now, or to one after it.
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ModuleCurrent)
	if c != nil && c.Status == metav1.ConditionTrue {
		for v := 1; v < h.digests[strings.TrimPrefix(c.Message, "module ")]; v++ {
			if _, ok := s.ended[v]; !ok {
				s.ended[v] = h.counter.Add(1)
			}
		}
	}
	d := p.Status.LastDecision
	if d == nil {
		return
	}
	version := h.digests[d.Digest]
	if version == 0 {
		h.t.Errorf("%s: module %s decides", s, d.Digest)
	}
	if len(d.Reason) > 256 || !utf8.ValidString(d.Reason) || strings.ContainsRune(d.Reason, '\n') {
		h.t.Errorf("%s: reason %q", s, d.Reason)
	}
	if d.Reason != "as it is" && d.Replicas < humanReplicas && int(d.Replicas)%10 != version {
		h.t.Errorf("%s: %d replicas are said to be of version %d", s, d.Replicas, version)
	}
	if want, got := min(d.Replicas, maxReplicas), p.Status.DesiredReplicas; got == nil || *got != max(want, 1) {
		h.t.Errorf("%s: %d replicas are wanted, status.desiredReplicas is %d", s, d.Replicas, ptr.Deref(got, -1))
	}
}

// each waits until a condition holds for all subjects that where selects.
func (h *hostile) each(what string, where, condition func(s *subject) bool) {
	h.t.Helper()
	eventually(h.t, func() error {
		missing := 0
		example := ""
		for _, s := range h.subjects {
			s.mu.Lock()
			if where(s) && !condition(s) {
				missing++
				example = fmt.Sprintf("%s: asks %d, %+v", s, len(s.asks), s.status)
			}
			s.mu.Unlock()
		}
		if missing != 0 {
			return fmt.Errorf("%s: %d policies are missing: %s", what, missing, example)
		}
		return nil
	})
}

// asked waits until the guests of all subjects that where selects were asked n times more.
func (h *hostile) asked(n int, where func(s *subject) bool) {
	h.t.Helper()
	before := map[*subject]int{}
	for _, s := range h.subjects {
		s.mu.Lock()
		before[s] = len(s.asks)
		s.mu.Unlock()
	}
	h.each(fmt.Sprint("asked ", n, " times"), where, func(s *subject) bool { return len(s.asks) >= before[s]+n })
}

// restart stops a controller in the middle, and starts another.
func (h *hostile) restart(r *running) *running {
	h.t.Helper()
	r.stop()
	for _, s := range h.subjects {
		s.mu.Lock()
		if n := len(s.asks); n > 0 {
			s.asks[n-1].lost = true
		}
		s.mu.Unlock()
	}
	return h.start()
}

func (h *hostile) start() *running {
	return h.run(h.t, setup{
		metrics: h, limits: host.Limits{Fuel: 2_000_000, MemoryBytes: 1 << 20},
		scales: func(of scale.ScalesGetter) scale.ScalesGetter { return observed{of, h} },
		client: func(of client.Client) client.Client {
			return &lagging{Client: of, last: map[types.UID]v1alpha1.ScalePolicyStatus{}}
		},
	})
}

// TestHostileGuests has 200 policies with guests that trap, loop and talk nonsense, whose
// modules change, with good and with broken ones, while workloads are changed by others,
// deleted and made anew, and controllers end in the middle. Every update of every scale must
// be what the guest of that moment says, in the old or the new version, or said last.
func TestHostileGuests(t *testing.T) {
	h := &hostile{world: newWorld(t), t: t}
	h.create()
	h.watch(&appsv1.DeploymentList{}, h.seeWorkloads())
	h.watch(&v1alpha1.ScalePolicyList{}, h.seePolicy)
	all := func(*subject) bool { return true }
	even := func(s *subject) bool { return s.index/perNamespace%2 == 0 }
	odd := func(s *subject) bool { return !even(s) }
	ended := func(version int) func(s *subject) bool {
		return func(s *subject) bool { _, ok := s.ended[version]; return ok }
	}
	refused := func(s *subject) bool {
		return condition(&v1alpha1.ScalePolicy{Status: s.status}, v1alpha1.ModuleCurrent) == "False Refused"
	}

	r := h.start()
	h.asked(2, all)
	if n := len(r.runtime.Plugins()); n != len(h.subjects) {
		t.Errorf("%d plugins are open for %d configurations", n, len(h.subjects))
	}

	// A module that is none leaves the old one in service.
	h.publish(0, []byte("\x00asm broken"), even)
	h.publish(2, moody(t, 2), odd)
	h.each("refused", even, refused)
	h.each("version 2", odd, ended(1))
	h.asked(2, all)

	// A controller that starts anew has no module there, and keeps the last answers.
	r = h.restart(r)
	h.each("without a module", even, func(s *subject) bool {
		return refused(s) && condition(&v1alpha1.ScalePolicy{Status: s.status}, v1alpha1.GuestAnswers) == "Unknown NoModule"
	})
	h.asked(2, odd)

	// Nor does a module of another service replace it.
	other := bytes.Replace(moody(t, 9), []byte("v1.Scaler\x00"), []byte("v1.Kraken\x00"), 1)
	h.publish(2, moody(t, 2), even)
	h.publish(0, other, odd)
	h.each("version 2", even, ended(1))
	h.each("refused", odd, refused)
	h.asked(1, odd)

	// In the middle of everything: no wait before and after.
	h.publish(3, moody(t, 3), all)
	r = h.restart(r)

	// Workloads go, and some come again with the same name.
	gone := func(s *subject) bool { return s.index%20 == 5 }
	again := func(s *subject) bool { return s.index%40 == 5 }
	for _, s := range h.subjects {
		if !gone(s) {
			continue
		}
		if err := h.admin.Delete(t.Context(), deployment(s.Namespace, s.Name)); err != nil {
			t.Fatal(err)
		}
		if again(s) {
			if err := h.admin.Create(t.Context(), deployment(s.Namespace, s.Name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	stays := func(s *subject) bool { return !gone(s) || again(s) }
	h.each("version 3", stays, ended(2))
	h.each("without a workload", func(s *subject) bool { return !stays(s) }, func(s *subject) bool {
		return condition(&v1alpha1.ScalePolicy{Status: s.status}, v1alpha1.Ready) == "False WorkloadNotFound"
	})
	h.asked(3, stays)

	// Policies go, and their plugins with them.
	first := func(s *subject) bool { return s.Namespace == "team-0" }
	for _, s := range h.subjects {
		if first(s) {
			if err := h.admin.Delete(t.Context(), policy(s)); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, func() error {
		if n := len(r.runtime.Plugins()); n != len(h.subjects)-perNamespace {
			return fmt.Errorf("%d plugins are open", n)
		}
		return nil
	})
	h.asked(1, func(s *subject) bool { return stays(s) && !first(s) })
	r.stop()
	h.compare()
}

// explains reports whether writes give the values that the watch saw, in their order. A write
// that the controller did not wait for may have been done, or not.
func explains(writes []attempt, seen []int32) bool {
	if len(writes) == 0 {
		return len(seen) == 0
	}
	first, rest := writes[0], writes[1:]
	return len(seen) > 0 && seen[0] == first.replicas && explains(rest, seen[1:]) || first.err != nil && explains(rest, seen)
}

// TestExplains has a controller that ends in the middle of a write.
func TestExplains(t *testing.T) {
	canceled := context.Canceled
	for name, test := range map[string]struct {
		writes []attempt
		seen   []int32
		want   bool
	}{
		"nothing":                            {nil, nil, true},
		"in order":                           {[]attempt{{12, nil}, {22, nil}}, []int32{12, 22}, true},
		"out of order":                       {[]attempt{{12, nil}, {22, nil}}, []int32{22, 12}, false},
		"a write is missing":                 {[]attempt{{12, nil}, {22, nil}, {32, nil}}, []int32{12, 32}, false},
		"the last write is missing":          {[]attempt{{12, nil}, {22, nil}}, []int32{12}, false},
		"nothing has written":                {[]attempt{{12, nil}}, []int32{12, 22}, false},
		"not done, done by the next":         {[]attempt{{12, canceled}, {12, nil}, {22, nil}}, []int32{12, 22}, true},
		"done, changed by hand, done again":  {[]attempt{{12, canceled}, {12, nil}, {22, nil}}, []int32{12, 12, 22}, true},
		"not done, and the next says else":   {[]attempt{{12, canceled}, {22, nil}}, []int32{22}, true},
		"done twice, which nothing explains": {[]attempt{{12, canceled}, {12, nil}}, []int32{12, 12, 12}, false},
	} {
		if got := explains(test.writes, test.seen); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// compare holds all that the watch saw against what was written.
func (h *hostile) compare() {
	// The watch sees changes in their order, and this is the last one.
	const last = humanReplicas + 9_990
	final := h.subjects[types.NamespacedName{Namespace: "team-1", Name: "app-1"}]
	final.mu.Lock()
	final.byHand[last] = true
	final.mu.Unlock()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, last))
	if err := h.admin.Patch(h.t.Context(), deployment(final.Namespace, final.Name), patch); err != nil {
		h.t.Fatal(err)
	}
	h.each("the watch", func(s *subject) bool { return s == final }, func(s *subject) bool { return slices.Contains(s.seen, last) })
	changes, moods := 0, map[int]int{}
	for _, s := range h.subjects {
		s.mu.Lock()
		for _, a := range s.asks {
			moods[a.mood]++
		}
		changes += len(s.seen)
		seen := slices.DeleteFunc(slices.Clone(s.seen), func(replicas int32) bool { return s.byHand[replicas] })
		if !explains(s.attempts, seen) {
			h.t.Errorf("%s: the watch has seen %d, of %d, after the writes %v", s, seen, s.seen, s.attempts)
		}
		s.mu.Unlock()
	}
	for mood := range 10 {
		if moods[mood] == 0 {
			h.t.Errorf("no guest was in mood %d", mood)
		}
	}
	h.t.Logf("%d changes, %d writes of the controller, %d of them refused as conflicts, %d of last answers, %d by hand; moods %v",
		changes, h.writes.Load(), h.conflicts.Load(), h.kept.Load(), h.humans.Load(), moods)
	if changes < len(h.subjects) || h.conflicts.Load() < 50 || h.kept.Load() < 5 || h.humans.Load() < 20 {
		h.t.Error("the test did not do what it is for")
	}
}
