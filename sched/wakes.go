package sched

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
)

// The scheduler has no events about most resources: not about those of the core group beside its
// own, and about custom resources from other informers than those that a guest looks objects up in,
// for which it does not start before they exist. So the plugin itself has Pods tried again after
// events about the objects of its configuration, once look-ups answer with them.

// wakes are the Pods that a guest has refused, and the latest changes of the objects for whose events
// it registers. Each Pod is asked about each change since the cycle began that refused it.
type wakes struct {
	// events are those about named resources, by their places in eventstoregister.
	events []Event
	signal chan struct{}
	// seq is the number of the latest change.
	seq atomic.Uint64

	mu sync.Mutex
	// changes are the latest ones, up to the number seq.
	changes []change
	refused map[types.UID]*refusedPod
	// sweepAt is the number of Pods from which those that are no longer pending are dropped, and fullAt
	// the time when there were last too many.
	sweepAt int
	fullAt  time.Time
}

// change is an event about a named resource.
type change struct {
	resource       string
	action         abi.ActionType
	oldObj, newObj any
}

// refusedPod is a Pod that waits for an event.
type refusedPod struct {
	pod *corev1.Pod
	// checked is the number of the last change that was considered.
	checked uint64
	// cycles is the number of cycles that refused it, the last one at a time.
	cycles int
	at     time.Time
	// woken is set while the Pod is to be tried again, and tried from then on, until a cycle refuses
	// it again.
	woken, tried bool
}

const (
	// maxChanges is the number of changes that are kept for Pods in a cycle. A Pod that was refused
	// by a cycle in which there were more is tried again.
	maxChanges = 128
	// maxRefused is the number of Pods that are remembered. Others come back with other events.
	maxRefused = 100_000
	// sweepRefused is the number of Pods from which some are dropped, and sweepEvery the interval at
	// which they are when there are maxRefused.
	sweepRefused = 1_000
	sweepEvery   = 10 * time.Second
	// leastBackoff and mostBackoff are the limits of the time for which a Pod stays out of the queue
	// after a cycle, as in a scheduler that is not configured.
	leastBackoff = time.Second
	mostBackoff  = 10 * time.Second
)

// backoff returns the time from which a Pod may be tried again.
func (r *refusedPod) backoff() time.Time {
	if r.cycles == 0 {
		return r.at
	}
	return r.at.Add(min(leastBackoff<<min(r.cycles-1, 10), mostBackoff))
}

// watch begins to have Pods tried again, if the guest registers for events about named resources. A
// candidate refuses no Pods.
func (p *Plugin) watch() error {
	w := &wakes{signal: make(chan struct{}, 1), refused: map[types.UID]*refusedPod{}}
	var names []string
	for _, e := range p.EventsToRegister() {
		if e.Resource == abi.EventNamed {
			w.events = append(w.events, e)
			names = append(names, e.Object)
		}
	}
	if len(w.events) == 0 || p.monitored || p.candidate || p.handle == nil {
		return nil
	}
	p.wakes = w
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		i := p.informers[name]
		stop, err := i.Watch(func(oldObj, newObj any) {
			of := objectOf(newObj)
			if of == nil {
				of = objectOf(oldObj)
			}
			if of != nil && (i.namespaces == nil || slices.Contains(i.namespaces, of.GetNamespace())) {
				w.changed(name, oldObj, newObj)
			}
		})
		if err != nil {
			return err
		}
		p.stopLater(stop)
	}
	go p.wake(w)
	return nil
}

// changed records a change.
func (w *wakes) changed(resource string, oldObj, newObj any) {
	c := change{resource, abi.ActionUpdate, oldObj, newObj}
	before, after := objectOf(oldObj), objectOf(newObj)
	switch {
	case before == nil:
		c.action = abi.ActionAdd
	case after == nil:
		c.action = abi.ActionDelete
	case before.GetResourceVersion() == after.GetResourceVersion() && before.GetResourceVersion() != "":
		return // It was listed again.
	}
	if !slices.ContainsFunc(w.events, c.is) {
		return
	}
	w.mu.Lock()
	if len(w.changes) == maxChanges {
		w.changes = append(w.changes[:0], w.changes[1:]...)
	}
	w.changes = append(w.changes, c)
	w.seq.Add(1)
	w.mu.Unlock()
	w.notify()
}

// is reports whether a change is an event for which the guest registers.
func (c *change) is(e Event) bool { return e.Object == c.resource && e.Action&c.action != 0 }

func (w *wakes) notify() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// attempt is the part of a cycle, and of its clones, that decides whether its Pod waits for an event.
type attempt struct {
	// since is the number of the last change before the cycle.
	since   uint64
	refused atomic.Bool
}

// attempt begins one, nil if the guest registers for no event about a named resource.
func (p *Plugin) attempt() *attempt {
	if p.wakes == nil {
		return nil
	}
	return &attempt{since: p.wakes.seq.Load()}
}

// waits reports whether a status makes a Pod wait for an event.
func waits(s *Status) bool {
	switch s.Code() {
	case abi.Unschedulable, abi.UnschedulableAndUnresolvable, abi.Pending:
		return s.Err() == nil
	}
	return false
}

// refuses records that a cycle refuses its Pod if the status does, and returns the status.
func (p *Plugin) refuses(c *Cycle, s *Status) *Status {
	if s == nil || p.wakes == nil || c == nil || c.of == nil || !waits(s) || !c.attempt.refused.CompareAndSwap(false, true) {
		return s
	}
	p.refuse(c.of, c.attempt.since, true)
	return s
}

// refuse has a refused Pod tried again after an event since a change.
func (p *Plugin) refuse(pod *corev1.Pod, since uint64, inCycle bool) {
	w := p.wakes
	defer w.notify()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.refused[pod.UID]
	if r == nil {
		now, full := time.Now(), false
		if len(w.refused) >= maxRefused && now.Sub(w.fullAt) >= sweepEvery {
			w.fullAt, full = now, true
		}
		if full || len(w.refused) >= max(w.sweepAt, sweepRefused) {
			for uid, r := range w.refused {
				if p.handle.Pending(r.pod) == nil {
					delete(w.refused, uid)
				}
			}
			w.sweepAt = 2 * len(w.refused)
		}
		if len(w.refused) >= maxRefused {
			if !full {
				return
			}
			p.logger.Warn("too many Pods wait for events: some are not tried again before another event, or the scheduler's flush", "plugin", p.Name(), "pods", len(w.refused))
			return
		}
		r = &refusedPod{}
		w.refused[pod.UID] = r
	}
	r.pod, r.checked, r.at, r.woken, r.tried = pod, since, time.Now(), false, false
	if inCycle {
		r.cycles++
	}
}

// wake has Pods tried again until the plugin is closed.
func (p *Plugin) wake(w *wakes) {
	timer := time.NewTimer(mostBackoff)
	defer timer.Stop()
	for {
		select {
		case <-p.closed:
			return
		case <-w.signal:
		case <-timer.C:
		}
		p.considerChanges(w)
		due, next := w.due(time.Now(), p.handle.Pending)
		if len(due) != 0 {
			p.handle.Activate(due)
		}
		timer.Reset(next)
	}
}

// asked is a refused Pod with the changes about which it is asked.
type asked struct {
	*refusedPod
	pod     *corev1.Pod
	checked uint64
	woken   bool
}

// considerChanges asks the guest about the changes that came since Pods were refused.
func (p *Plugin) considerChanges(w *wakes) {
	w.mu.Lock()
	seq, changes := w.seq.Load(), slices.Clone(w.changes)
	var list []*asked
	for _, r := range w.refused {
		if !r.woken && !r.tried && r.checked < seq {
			list = append(list, &asked{r, r.pod, r.checked, false})
		}
	}
	w.mu.Unlock()
	if len(list) == 0 {
		return
	}
	slices.SortFunc(list, func(a, b *asked) int { return a.at.Compare(b.at) })
	first := seq - uint64(len(changes)) + 1
	for _, a := range list {
		a.woken = a.checked+1 < first // Some of them are gone.
		if pod := p.handle.Pending(a.pod); pod != nil {
			a.pod = pod
		}
	}
	for i := range changes {
		for _, e := range w.events {
			if changes[i].is(e) {
				p.ask(e, &changes[i], first+uint64(i), list)
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range list {
		if r := a.refusedPod; r.checked == a.checked { // Otherwise another cycle has refused it.
			r.checked, r.woken = seq, r.woken || a.woken
		}
	}
}

// ask asks the guest which Pods an event may help.
func (p *Plugin) ask(e Event, c *change, number uint64, list []*asked) {
	open := func(a *asked) bool { return !a.woken && a.checked < number }
	if !slices.ContainsFunc(list, open) {
		return
	}
	var pods map[types.NamespacedName]bool
	if e.PreHint != nil {
		names, all, err := e.PreHint(c.oldObj, c.newObj)
		if err == nil && !all {
			pods = make(map[types.NamespacedName]bool, len(names))
			for _, name := range names {
				pods[name] = true
			}
		}
	}
	for _, a := range list {
		switch {
		case !open(a):
		case pods != nil && !pods[types.NamespacedName{Namespace: a.pod.Namespace, Name: a.pod.Name}]:
		case e.Hint == nil:
			a.woken = true
		default:
			queue, err := e.Hint(a.pod, c.oldObj, c.newObj)
			a.woken = queue || err != nil
		}
	}
}

// due takes the woken Pods whose backoff is over, and returns the time until that of the next is.
// pending returns a Pod as it is now, nil if it is not pending.
func (w *wakes) due(now time.Time, pending func(*corev1.Pod) *corev1.Pod) (due []*corev1.Pod, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next = mostBackoff
	for uid, r := range w.refused {
		if !r.woken {
			continue
		}
		pod := pending(r.pod)
		if pod == nil {
			delete(w.refused, uid)
			continue
		}
		if wait := r.backoff().Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		r.woken, r.tried = false, true
		due = append(due, pod)
	}
	// In the order in which a person would look for them.
	slices.SortFunc(due, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return due, next
}

// closeObjects ends the use of the informers.
func (p *Plugin) closeObjects() {
	p.closeInformers.Do(func() {
		p.stopsMu.Lock()
		stops := p.stops
		p.stops, p.stopped = nil, true
		p.stopsMu.Unlock()
		for _, stop := range stops {
			stop()
		}
		for _, i := range p.informers {
			i.Close()
		}
	})
}

// stopLater has a watch stopped when the plugin is closed, which it may be already.
func (p *Plugin) stopLater(stop func()) {
	p.stopsMu.Lock()
	stopped := p.stopped
	if !stopped {
		p.stops = append(p.stops, stop)
	}
	p.stopsMu.Unlock()
	if stopped {
		stop()
	}
}
