package sched

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/sched/internal/wasmextension"
)

// The extension points of the scheduling queue.

// PreEnqueue implements fwk.PreEnqueuePlugin.
func (e *extensions) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	return e.plugin.onPod(abi.PreEnqueue, pod, nil, nil)
}

// SignPod implements fwk.SignPlugin.
func (e *extensions) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	var fragments []fwk.SignFragment
	status := e.plugin.onPod(abi.SignPod, pod, fwk.NewStatus(fwk.Unschedulable), func(i *instance) *fwk.Status {
		fragments = i.call.fragments
		return nil
	})
	return fragments, status
}

// Less implements fwk.QueueSortPlugin. It is called under the lock of the queue,
// some dozen times for each Pod, so a guest that fails once is not asked again:
// the order is then that of the scheduler's PrioritySort.
//
// It is a total order if the guest's is transitive: the guest is always asked
// about two Pods in the same order, and where it does not mind, the time and the
// name decide.
func (e *extensions) Less(a, b fwk.QueuedEntityInfo) bool {
	p := e.plugin
	first, second := podOf(a), podOf(b)
	if first == nil || second == nil || p.unsorted.Load() {
		return prioritySort(a, b)
	}
	swapped := comparePods(first, second) > 0
	if swapped {
		a, b, first, second = b, a, second, first
	}
	order, err := p.compare(a, b, first, second)
	if err != nil {
		p.unsorted.Store(true)
		p.logger.Error("the queue is sorted by priority and time from now on", "plugin", p.guest.Name(), "err", err)
		if swapped {
			a, b = b, a
		}
		return prioritySort(a, b)
	}
	if order == 0 {
		order = a.GetTimestamp().Compare(b.GetTimestamp())
	}
	if order == 0 {
		order = -1 // first and second are in the order of their names.
	}
	return (order < 0) != swapped && first != second
}

// compare asks the guest: a number below 0 if a comes first, above 0 if b does.
func (p *plugin) compare(a, b fwk.QueuedEntityInfo, first, second *corev1.Pod) (int, error) {
	p.outside()
	x, y := p.objects.Pod(first), p.objects.Pod(second)
	inst, err := p.guest.Acquire(p.ctx)
	if err != nil {
		return 0, err
	}
	i := inst.State().(*instance)
	defer p.leave(inst, i)
	i.call = call{pod: x, other: y}
	order, err := inst.Call(p.ctx, abi.QueueSort, uint64(x.Ref), uint64(y.Ref), uint64(a.GetTimestamp().UnixNano()), uint64(b.GetTimestamp().UnixNano()))
	return int(int32(uint32(order))), err
}

// podOf returns the Pod of an entity in the queue, or the first one of a group;
// nil if there is none.
func podOf(e fwk.QueuedEntityInfo) *corev1.Pod {
	switch e := e.(type) {
	case interface{ GetPodInfo() fwk.PodInfo }:
		return e.GetPodInfo().GetPod()
	case interface{ GetUnscheduledPods() []*corev1.Pod }:
		if pods := e.GetUnscheduledPods(); len(pods) > 0 {
			return pods[0]
		}
	}
	return nil
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
func prioritySort(a, b fwk.QueuedEntityInfo) bool {
	if x, y := a.GetPriority(), b.GetPriority(); x != y {
		return x > y
	}
	return a.GetTimestamp().Before(b.GetTimestamp())
}

// event is a cluster event that a guest registers for.
type event struct {
	resource abi.EventResource
	action   abi.ActionType
}

// parseEvents reads the argument of result_cluster_events.
func parseEvents(data []byte) ([]event, error) {
	if len(data)%8 != 0 {
		return nil, fmt.Errorf("%d bytes are not a number of events of 8 bytes", len(data))
	}
	var events []event
	for ; len(data) > 0; data = data[8:] {
		e := event{abi.EventResource(le32(data)), abi.ActionType(le32(data[4:]))}
		if !e.resource.Known() {
			return nil, fmt.Errorf("event %d is of the unknown resource %d", len(events), e.resource)
		}
		if a := e.action &^ abi.ActionHint; a == 0 || a&^abi.ActionAll != 0 {
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
func (p *plugin) probe(ctx context.Context, inst *host.Instance) error {
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
	if s := status(uint32(result), inst); s != nil {
		return fmt.Errorf("eventstoregister returned %s: %w", s.Code(), s.AsError())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.registered == nil {
		p.registered = append([]event{}, i.call.events...)
	} else if !slices.Equal(p.registered, i.call.events) {
		return errors.New("the version registers for other cluster events than the one before, and the scheduler asks for them only when it starts")
	}
	return nil
}

// EventsToRegister implements fwk.EnqueueExtensions.
func (e *extensions) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	p := e.plugin
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]fwk.ClusterEventWithHint, len(p.registered))
	for n, r := range p.registered {
		list[n].Event = fwk.ClusterEvent{
			Resource: fwk.EventResource(r.resource.String()), ActionType: fwk.ActionType(r.action &^ abi.ActionHint),
		}
		if r.action&abi.ActionHint != 0 && p.functions.Has(abi.QueueingHint) {
			list[n].QueueingHintFn = func(_ klog.Logger, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
				return p.hint(n, pod, oldObj, newObj)
			}
		}
	}
	return list, nil
}

// hint asks the guest whether an event may make a Pod schedulable. If it does not
// answer the Pod is tried: it would be stuck otherwise.
func (p *plugin) hint(n int, pod *corev1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	p.outside()
	object := p.objects.Pod(pod)
	before, err := p.eventObject(objects.OldEventObject, oldObj)
	if err != nil {
		return fwk.Queue, err
	}
	after, err := p.eventObject(objects.NewEventObject, newObj)
	if err != nil {
		return fwk.Queue, err
	}
	inst, err := p.guest.Acquire(p.ctx)
	if err != nil {
		return fwk.Queue, err
	}
	i := inst.State().(*instance)
	defer p.leave(inst, i)
	i.call = call{pod: object, of: pod, other: before, node: after}
	result, err := inst.Call(p.ctx, abi.QueueingHint, uint64(uint32(n)), uint64(object.Ref), refOf(before), refOf(after))
	if err != nil {
		return fwk.Queue, err
	}
	queue, code := abi.Unpack(result)
	if err := status(code, inst).AsError(); err != nil {
		return fwk.Queue, err
	}
	if queue != 0 {
		return fwk.Queue, nil
	}
	return fwk.QueueSkip, nil
}

func refOf(o *objects.Object) uint64 {
	if o == nil {
		return 0
	}
	return uint64(o.Ref)
}

// eventObject encodes an object of a cluster event, nil if there is none.
func (p *plugin) eventObject(side objects.EventSide, obj any) (*objects.Object, error) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	object, ok := obj.(metav1.Object)
	if !ok || object == nil {
		return nil, nil
	}
	return p.objects.Transient(side, object)
}

// jsonValue is the value of a sign fragment, which the framework marshals.
func jsonValue(text string) (json.RawMessage, error) {
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("%.80q is not JSON", text)
	}
	return json.RawMessage(text), nil
}
