package sched

import (
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

// hintCache has the answers of hints about the last event by the class of the Pod: the scheduler
// asks about each pending Pod, and those of a Deployment are equal in the fields that guests read.
// Pods are of one class if they are equal in the read set, as Nodes are in a [resultCache].
type hintCache struct {
	disabled bool
	// hits are those of the event.
	hits atomic.Uint64

	// event is the last one, nil before the first.
	event atomic.Pointer[hintEvent]

	mu sync.Mutex
	// classes are found by the result of [objects.ClassOf] for their Pods with these fields.
	fields  *objects.Encoder[corev1.Pod]
	classes map[uint64]*podClass
}

// hintEvent is an event with its number, beginning with 1, its objects, and the version of the guest.
type hintEvent struct {
	number         uint64
	oldObj, newObj *objects.Object
	version        *host.Pin
}

// podClass is the Pods that are equal in a read set, with the answers for them.
type podClass struct {
	fields *objects.Encoder[corev1.Pod]
	// answers are made by answerOf. That of hint n lies at n modulo their number.
	answers [4]atomic.Uint64
}

// hintKey is the key of an answer. class is nil if answers are not shared.
type hintKey struct {
	class *podClass
	event *hintEvent
	hint  int
}

// An answer is the number of its event, that of the hint in hintBits, and a bit that is set if the
// Pod is queued.
const (
	hintBits = 15
	maxHints = 1 << hintBits
)

func (k hintKey) answer(queue bool) uint64 {
	a := k.event.number<<(hintBits+1) | uint64(k.hint)<<1
	if queue {
		a |= 1
	}
	return a
}

func (k hintKey) at() *atomic.Uint64 { return &k.class.answers[k.hint%len(k.class.answers)] }

// sharedHint returns the key of the answer of hint n about an event and a Pod, and that answer if it
// is known.
//
// 0 allocs: TestHintsDoNotAllocate.
func (p *Plugin) sharedHint(n int, pod, oldObj, newObj *objects.Object) (k hintKey, queue, known bool) {
	c, event := &p.hints, p.hints.event.Load()
	if event == nil || event.oldObj != oldObj || event.newObj != newObj || event.version != p.pin().pin {
		event = p.hintEvent(oldObj, newObj)
	}
	// An event without objects cannot be told from the next.
	if c.disabled || oldObj == nil && newObj == nil || n >= maxHints {
		return hintKey{}, false, false
	}
	k = hintKey{p.podClass(pod), event, n}
	if answer := k.at().Load(); answer>>1 == k.answer(false)>>1 {
		queue = answer&1 != 0
		c.hits.Add(1)
		return k, queue, true
	}
	return k, false, false
}

// hintEvent returns the event that has the objects. A swap of the guest begins a new one.
func (p *Plugin) hintEvent(oldObj, newObj *objects.Object) *hintEvent {
	c, version := &p.hints, p.pin().pin
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.event.Load()
	if last != nil && last.oldObj == oldObj && last.newObj == newObj && last.version == version {
		return last
	}
	p.outside() // Once for all Pods: a long queue would outdate objects in use by cycles.
	e := &hintEvent{1, oldObj, newObj, version}
	if last != nil {
		e.number = last.number + 1
	}
	c.event.Store(e)
	if hits := c.hits.Swap(0); hits != 0 && p.observer != nil {
		p.observer.CacheHits(p.label, abi.QueueingHint.String(), hits)
	}
	return e
}

// podClass finds the class of a Pod.
func (p *Plugin) podClass(pod *objects.Object) *podClass {
	fields := p.objects.PodClasses()
	if class, ok := pod.Class.Load().(*podClass); ok && class.fields == fields {
		return class
	}
	c := &p.hints
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fields != fields || len(c.classes) >= maxClasses {
		c.fields, c.classes = fields, map[uint64]*podClass{}
	}
	key := objects.ClassOf(pod, fields)
	class := c.classes[key]
	if class == nil {
		class = &podClass{fields: fields}
		c.classes[key] = class
	}
	pod.Class.Store(class)
	return class
}

// shareHint keeps an answer that the guest gave, unless it is for this Pod alone: the guest used
// more than its arguments, logged, or read the identity of the Pod.
func (p *Plugin) shareHint(k hintKey, pod *objects.Object, inst *host.Instance, queue bool) {
	if k.class == nil || inst.State().(*instance).call.own || inst.Logged() || pod.Identified() || k.class.fields != p.objects.PodClasses() {
		return
	}
	if p.hints.event.Load() == k.event && k.event.version == p.pin().pin {
		k.at().Store(k.answer(queue))
	}
}
