package sched

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// The extension points of the scheduling queue.

// PreEnqueue asks whether a Pod may enter the queue.
func (p *Plugin) PreEnqueue(pod *corev1.Pod) *Status {
	if !p.functions.Has(abi.PreEnqueue) {
		return nil
	}
	var since uint64
	if p.wakes != nil {
		since = p.wakes.seq.Load()
	}
	s := p.onPod(abi.PreEnqueue, pod, nil, nil)
	if p.monitored {
		return p.answer(abi.PreEnqueue, pod, s, nil)
	}
	return p.preEnqueued(pod, since, s)
}

// SignPod returns the signature of a Pod, from the guest if it has the function. For a guest that
// lacks it the host signs if the guest declares the fields on which its results depend, see
// [signature]. A guest adds nothing if no choice of a node depends on it. Any other guest keeps
// Pods from being signed, as a plugin without the method does.
func (p *Plugin) SignPod(pod *corev1.Pod) ([]SignFragment, *Status) {
	switch {
	case p.functions.Has(abi.SignPod):
	case p.offered&choosing == 0 || p.monitored:
		return nil, nil
	case p.signature != nil:
		return p.signature.of(pod), nil
	default:
		return nil, unsigned
	}
	var fragments []SignFragment
	status := p.onPod(abi.SignPod, pod, unschedulable, func(i *instance) *Status {
		fragments = i.call.fragments
		return nil
	})
	if p.monitored {
		return nil, nil // No choice of a node depends on the guest.
	}
	return fragments, status
}

// Less reports whether a comes before b in the queue. It is called under the lock of the queue,
// some dozen times for each Pod. So a guest that fails is not asked again for a second, for twice as
// long whenever it fails soon after that, up to a minute, or until another version serves. The order
// is then that of the scheduler's PrioritySort, as it is if an
// entry has no Pod. Pods that are in the queue when the order changes may leave it in either.
//
// It is a total order if the guest's is transitive: the guest is always asked about two Pods in the
// same order, and if it has no preference, the time and the name decide.
func (p *Plugin) Less(a, b Queued) bool {
	if a.Pod == nil || b.Pod == nil || !p.functions.Has(abi.QueueSort) || !p.sorts() {
		return prioritySort(a, b)
	}
	swapped := comparePods(a.Pod, b.Pod) > 0
	if swapped {
		a, b = b, a
	}
	order, err := p.compare(a, b)
	if err != nil {
		u := p.unsorted.Load().next(p.guest.Digest(), time.Now())
		p.unsorted.Store(u)
		p.logger.Error("the queue is sorted by priority and time for some time", "plugin", p.guest.Name(), "after", u.pause.String(), "err", err)
		if swapped {
			a, b = b, a
		}
		return prioritySort(a, b)
	}
	if p.monitored {
		if swapped {
			a, b = b, a
		}
		return prioritySort(a, b)
	}
	if order == 0 {
		order = a.Timestamp.Compare(b.Timestamp)
	}
	if order == 0 {
		order = -1 // a and b are in the order of their names.
	}
	return (order < 0) != swapped && a.Pod != b.Pod
}

// unsorted is a module whose Less has failed. It is not asked during a pause, which ends at a time, or
// has ended if over is set.
type unsorted struct {
	by    string // Its digest.
	until time.Time
	pause time.Duration
	over  bool
}

// The pauses after failures of Less, in which the queue has the scheduler's own order. A call can also
// fail because the machine is busy, and a plugin that keeps groups of Pods together needs its order.
const (
	minPause = time.Second
	maxPause = time.Minute
)

// next returns the pause after a failure of a module. It is twice the one before, u, if that was of the
// same module and has not been over for longer than it took. u is nil if there was none.
func (u *unsorted) next(by string, now time.Time) *unsorted {
	pause := minPause
	if u != nil && u.by == by && now.Before(u.until.Add(u.pause)) {
		pause = min(2*u.pause, maxPause)
	}
	return &unsorted{by: by, until: now.Add(pause), pause: pause}
}

// sorts reports whether the guest sorts the queue.
func (p *Plugin) sorts() bool {
	u := p.unsorted.Load()
	if u == nil || u.over {
		return true
	}
	if u.by == p.guest.Digest() && time.Now().Before(u.until) {
		return false
	}
	if p.unsorted.CompareAndSwap(u, &unsorted{by: u.by, until: u.until, pause: u.pause, over: true}) {
		p.logger.Info("the guest sorts the queue again", "plugin", p.guest.Name())
	}
	return true
}

// compare asks the guest: a number below 0 if a comes first, above 0 if b does.
func (p *Plugin) compare(a, b Queued) (int, error) {
	p.outside()
	ctx := p.inQueue()
	defer ctx.stop()
	x, y := p.objects.Pod(a.Pod), p.objects.Pod(b.Pod)
	inst, err := p.guest.Acquire(ctx)
	if err != nil {
		return 0, err
	}
	i := inst.State().(*instance)
	defer p.leave(inst, i)
	ctx.run()
	i.call = call{pod: x, other: y}
	order, err := inst.Call(ctx, abi.QueueSort, uint64(x.Ref), uint64(y.Ref), uint64(a.Timestamp.UnixNano()), uint64(b.Timestamp.UnixNano()),
		firstQueued(a), firstQueued(b), uint64(a.Attempts), uint64(b.Attempts))
	return int(int32(uint32(order))), err
}

// firstQueued returns the initial attempt timestamp in nanoseconds since 1970, 0 if there is none.
func firstQueued(q Queued) uint64 {
	if q.InitialAttemptTimestamp == nil {
		return 0
	}
	return uint64(q.InitialAttemptTimestamp.UnixNano())
}

func comparePods(a, b *corev1.Pod) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(a.Name, b.Name); c != 0 {
		return c
	}
	return strings.Compare(string(a.UID), string(b.UID))
}

// prioritySort is the order of the scheduler's own plugin, PrioritySort.
func prioritySort(a, b Queued) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return a.Timestamp.Before(b.Timestamp)
}

// event is a cluster event that a guest registers for.
type event struct {
	resource abi.EventResource
	action   abi.ActionType
	// object is the name of the resource abi.EventNamed.
	object string
}

// hinted are the bits of an action that are none of the framework's.
const hinted = abi.ActionHint | abi.ActionPreHint

// parseEvents reads the argument of result_cluster_events.
func parseEvents(data []byte) ([]event, error) {
	var events []event
	for len(data) > 0 {
		if len(data) < 8 {
			return nil, fmt.Errorf("event %d has %d bytes, less than 8", len(events), len(data))
		}
		e := event{resource: abi.EventResource(le32(data)), action: abi.ActionType(le32(data[4:]))}
		data = data[8:]
		if e.resource == abi.EventNamed {
			if len(data) < 4 || uint64(len(data)-4) < uint64(le32(data)) {
				return nil, fmt.Errorf("the name of event %d is longer than the events", len(events))
			}
			n := int(le32(data))
			e.object, data = string(data[4:4+n]), data[4+n:]
		} else if !e.resource.Known() {
			return nil, fmt.Errorf("event %d has the unknown resource %d", len(events), e.resource)
		}
		if a := e.action &^ hinted; a == 0 || a&^abi.ActionAll != 0 {
			return nil, fmt.Errorf("event %d has the unknown action %#x", len(events), uint32(a))
		}
		events = append(events, e)
	}
	return events, nil
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// probe asks a new version of the guest for the cluster events that it registers
// for.
func (p *Plugin) probe(ctx context.Context, inst *host.Instance) error {
	i := inst.State().(*instance)
	defer func() { i.call, i.peer = call{}, wasmextension.Call{} }()
	var result uint64
	var err error
	switch n := wasmextension.Export(abi.EventsToRegister); {
	case inst.Implements(abi.EventsToRegister):
		result, err = inst.Call(ctx, abi.EventsToRegister)
	case inst.Module().Export(abi.Marker) == "" && inst.Module().Export("enqueue") != "":
		_, err = inst.Dialect().CallExport(ctx, n)
		i.call.events = peerEvents(i.peer.Events)
	default:
		return nil
	}
	if err != nil {
		return err
	}
	if s := status(abi.Code(result), inst); s != nil {
		return fmt.Errorf("eventstoregister returned %s: %w", s.Code(), s.AsError())
	}
	for _, e := range i.call.events {
		if _, ok := p.informers[e.object]; e.resource == abi.EventNamed && !ok && p.handle != nil {
			return fmt.Errorf("the guest registers for events of %.200q, which the objects of the plugin's configuration do not name", e.object)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.registered == nil {
		p.registered = append([]event{}, i.call.events...)
	} else if !slices.Equal(p.registered, i.call.events) {
		return errors.New("the version registers for different cluster events, and the scheduler asks for them only when it starts")
	}
	return nil
}

// EventsToRegister returns the cluster events that the guest registers for. There are none if
// it rejects no Pods.
func (p *Plugin) EventsToRegister() []Event {
	if p.offered&rejecting == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]Event, len(p.registered))
	for n, r := range p.registered {
		list[n] = Event{Resource: r.resource, Object: r.object, Action: r.action &^ hinted}
		if r.action&abi.ActionHint != 0 && p.functions.Has(abi.QueueingHint) {
			list[n].Hint = func(pod *corev1.Pod, oldObj, newObj any) (bool, error) { return p.hint(n, pod, oldObj, newObj) }
		}
		if r.action&abi.ActionPreHint != 0 && p.functions.Has(abi.PreQueueingHint) {
			list[n].PreHint = func(oldObj, newObj any) ([]types.NamespacedName, bool, error) { return p.preHint(n, oldObj, newObj) }
		}
	}
	return list
}

// hint asks the guest whether an event may make a Pod schedulable. If it does not answer the Pod is
// tried, since it would be stuck otherwise.
func (p *Plugin) hint(n int, pod *corev1.Pod, oldObj, newObj any) (queue bool, err error) {
	e := eventCall{pod: p.objects.Pod(pod), of: pod}
	if err := p.addEventObjects(&e, oldObj, newObj); err != nil {
		return true, err
	}
	key, queue, known := p.sharedHint(n, e.pod, e.oldObj, e.newObj)
	if known {
		return queue || p.monitored, nil
	}
	err = p.onEvent(abi.QueueingHint, &e, func(ctx context.Context, inst *host.Instance) error {
		result, err := inst.Call(ctx, abi.QueueingHint, uint64(uint32(n)), uint64(e.pod.Ref), refOf(e.oldObj), refOf(e.newObj))
		if err != nil {
			return err
		}
		answer, code := abi.Unpack[abi.Code](result)
		queue = answer != 0
		if code == abi.Success {
			p.shareHint(key, e.pod, inst, queue)
			return nil
		}
		return status(code, inst).AsError()
	})
	if errors.Is(err, errNotAsked) || p.monitored {
		return true, nil // The framework logs an error for each Pod.
	}
	return queue || err != nil, err
}

// preHint asks the guest for the Pods to which an event may matter. If it does not answer it is
// asked about all.
func (p *Plugin) preHint(n int, oldObj, newObj any) (pods []types.NamespacedName, all bool, err error) {
	p.outside()
	var e eventCall
	if err := p.addEventObjects(&e, oldObj, newObj); err != nil {
		return nil, true, err
	}
	err = p.onEvent(abi.PreQueueingHint, &e, func(ctx context.Context, inst *host.Instance) error {
		result, err := inst.Call(ctx, abi.PreQueueingHint, uint64(uint32(n)), refOf(e.oldObj), refOf(e.newObj))
		if err != nil {
			return err
		}
		pods = inst.State().(*instance).call.hinted
		return status(abi.Code(result), inst).AsError()
	})
	if err != nil || p.monitored {
		pods = nil
	}
	if errors.Is(err, errNotAsked) || p.monitored {
		err = nil
	}
	return pods, pods == nil, err
}

// eventCall is the arguments of a call about an event: the Pod that a hint is about, and the objects
// of the event as the framework and as the guest has them, each nil if there is none.
type eventCall struct {
	pod            *objects.Object
	of             *corev1.Pod
	before, after  metav1.Object
	oldObj, newObj *objects.Object
}

// addEventObjects adds the objects of an event to the arguments of a call.
func (p *Plugin) addEventObjects(e *eventCall, oldObj, newObj any) (err error) {
	e.before, e.after = objectOf(oldObj), objectOf(newObj)
	if e.before != nil {
		if e.oldObj, err = p.objects.Transient(objects.OldEventObject, e.before); err != nil {
			return err
		}
	}
	if e.after != nil {
		e.newObj, err = p.objects.Transient(objects.NewEventObject, e.after)
	}
	return err
}

// errNotAsked is the error of a hint for which the guest is not asked.
var errNotAsked = errors.New("the guest is not asked about the event because it failed")

// slow logs that the guest is not asked for a while.
func (p *Plugin) slow(f abi.Function, paused bool, err error) {
	if paused {
		p.logger.Error("calls that block the scheduling queue keep failing: the guest is not asked for some time", "plugin", p.guest.Name(), "function", f.String(), "after", pause.String(), "err", err)
	}
}

// onEvent calls ask with an instance that has the objects of an event, unless the guest has failed
// on the event before.
func (p *Plugin) onEvent(f abi.Function, e *eventCall, ask func(context.Context, *host.Instance) error) (err error) {
	if !p.queue.asks(e.before, e.after) {
		p.skipped(f)
		return errNotAsked
	}
	var fuel int64
	answered := false
	defer func() {
		failure := err
		if answered {
			failure = nil // The guest has reported an error itself, or the host could not answer.
		}
		p.slow(f, p.queue.asked(fuel, failure), err)
	}()
	ctx := p.inQueue()
	defer ctx.stop()
	inst, err := p.guest.Acquire(ctx)
	if err != nil {
		return err
	}
	i := inst.State().(*instance)
	defer p.leave(inst, i)
	ctx.run()
	i.beginOnEvent(f, e)
	err = ask(ctx, inst)
	fuel = inst.FuelUsed()
	answered = err != nil && (!errors.As(err, new(*host.TrapError)) && ctx.Err() == nil || notSynced(err))
	return err
}

// objectOf returns the object of an event, nil if there is none.
func objectOf(obj any) metav1.Object {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	object, _ := obj.(metav1.Object)
	return object
}

func refOf(o *objects.Object) uint64 {
	if o == nil {
		return 0
	}
	return uint64(o.Ref)
}

// jsonValue is the value of a sign fragment, which the framework marshals.
func jsonValue(text string) (json.RawMessage, error) {
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("%.80q is not JSON", text)
	}
	return json.RawMessage(text), nil
}
