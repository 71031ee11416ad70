package sched

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/host"
)

// The scheduling queue keeps a Pod that PreEnqueue refuses until an event of the plugin, and
// reports no reason. A guest registers for events that change its answer. For a Pod without an
// answer there is no such event: the plugin has the queue try it again.

// maxGated is the maximum number of remembered Pods that PreEnqueue refuses.
const maxGated = 10_000

// gate holds the Pods that PreEnqueue has refused.
type gate struct {
	mu sync.Mutex
	// told are the reasons that were reported of Pods.
	told map[types.UID]string
	// retries are the Pods to try again, and retrying is set while a goroutine does.
	retries  map[types.UID]retry
	retrying bool
	// fullAt is the time when there were last too many retries.
	fullAt time.Time
}

// retry is a Pod that is tried again at a time, or once the objects of a resource are there if it is
// set.
type retry struct {
	pod      *corev1.Pod
	at       time.Time
	resource string
}

// retryEvery is the interval at which Pods to try again are checked.
const retryEvery = 100 * time.Millisecond

// passed records that a Pod may enter the queue.
func (g *gate) passed(pod *corev1.Pod) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.told, pod.UID)
	delete(g.retries, pod.UID)
}

// refused reports the reason why PreEnqueue refuses a Pod, unless it was reported before, and has
// the queue try the Pod again if the guest has not answered.
func (p *Plugin) refused(pod *corev1.Pod, s *Status) {
	if p.handle == nil {
		return
	}
	g := &p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.Err() != nil {
		p.retryLater(pod, s.Err())
	}
	reason := s.Message()
	if g.told[pod.UID] == reason {
		return
	}
	if g.told == nil || len(g.told) >= maxGated {
		g.told = map[types.UID]string{}
	}
	g.told[pod.UID] = reason
	p.handle.Refused(pod, fmt.Sprintf("plugin %q keeps the Pod out of the scheduling queue: %s", p.Name(), reason))
}

// retryLater has the queue try a Pod again after a failure. p.gate.mu is held.
func (p *Plugin) retryLater(pod *corev1.Pod, err error) {
	g := &p.gate
	if _, known := g.retries[pod.UID]; !known && len(g.retries) >= maxGated {
		if now := time.Now(); now.Sub(g.fullAt) >= sweepEvery {
			g.fullAt = now
			maps.DeleteFunc(g.retries, func(_ types.UID, r retry) bool { return p.handle.Pending(r.pod) == nil })
		}
		if len(g.retries) >= maxGated {
			return // It comes with the next event of the plugin.
		}
	}
	r := retry{pod: pod, at: time.Now().Add(poisonTime)}
	missing := (*notSyncedError)(nil)
	switch {
	case errors.As(err, &missing):
		r.resource = missing.resource
	case errors.Is(err, host.ErrSaturated):
		r.at = time.Now().Add(pause)
	case errors.Is(err, errPaused):
		r.at = time.Now().Add(pauseAfter * pause)
	}
	if g.retries == nil {
		g.retries = map[types.UID]retry{}
	}
	g.retries[pod.UID] = r
	if !g.retrying {
		g.retrying = true
		go p.retry()
	}
}

// awaits has the queue try the Pod of a cycle again once the objects are there that a call has looked
// up too early. Otherwise it comes after its backoff.
func (p *Plugin) awaits(c *Cycle, err error) {
	if !notSynced(err) || c.of == nil || p.policy == host.Ignore {
		return
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	p.retryLater(c.of, err)
}

// retry has the queue try Pods again until there are none left.
func (p *Plugin) retry() {
	ticker := time.NewTicker(retryEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.closed:
			return
		case <-ticker.C:
		}
		due, left := p.due(time.Now())
		if len(due) != 0 {
			p.handle.Activate(due)
		}
		if !left {
			return
		}
	}
}

// due takes the Pods that are to be tried again now, and reports whether there are others.
func (p *Plugin) due(now time.Time) (due []*corev1.Pod, left bool) {
	synced := map[string]bool{}
	for name, i := range p.informers {
		there, err := i.Synced()
		synced[name] = there && err == nil
	}
	g := &p.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	for uid, r := range g.retries {
		if synced[r.resource] || r.resource == "" && now.After(r.at) {
			due = append(due, r.pod)
			delete(g.retries, uid)
		}
	}
	// The queue asks about them again at once, which may add some.
	g.retrying = len(g.retries) != 0
	return due, g.retrying
}

// notSyncedError ends a call that looks up objects which the scheduler does not know yet. It counts
// as ended by the caller, which is no failure of the guest.
type notSyncedError struct {
	resource string
	// err is the reason why the scheduler cannot know them, nil if they are to come.
	err error
}

func (e *notSyncedError) Error() string {
	if e.err != nil {
		return fmt.Sprintf("look up %q: %v", e.resource, e.err)
	}
	return fmt.Sprintf("look up %q: the scheduler has not listed these objects yet", e.resource)
}

// Is implements errors.Is.
func (e *notSyncedError) Is(target error) bool { return target == context.Canceled }

// notSynced reports whether an error is that of a call that looked up objects too early.
func notSynced(err error) bool { return err != nil && errors.As(err, new(*notSyncedError)) }

const (
	// syncWait is the maximum time that a call waits for the objects that it looks up. A call that
	// holds up the queue does not wait.
	syncWait  = 2 * time.Second
	syncEvery = 10 * time.Millisecond
)

// awaitSync waits until the scheduler knows the objects of a resource, unless it cannot list them.
func awaitSync(inst *host.Instance, i informer, resource string) error {
	there, err := i.Synced()
	if err != nil {
		return &notSyncedError{resource, err}
	}
	if there {
		return nil
	}
	ctx := inst.Context()
	if _, holdsQueue := ctx.(*until); holdsQueue {
		return &notSyncedError{resource, nil}
	}
	deadline := time.NewTimer(min(syncWait, inst.Limits().Timeout/2))
	defer deadline.Stop()
	ticker := time.NewTicker(syncEvery)
	defer ticker.Stop()
	for !there {
		select {
		case <-ticker.C:
		case <-deadline.C:
			return &notSyncedError{resource, nil}
		case <-ctx.Done():
			return ctx.Err()
		}
		if there, err = i.Synced(); err != nil {
			return &notSyncedError{resource, err}
		}
	}
	return nil
}

// preEnqueued records the answer of PreEnqueue to a call that began after the change since.
func (p *Plugin) preEnqueued(pod *corev1.Pod, since uint64, s *Status) *Status {
	if s == nil {
		p.gate.passed(pod)
		return nil
	}
	p.refused(pod, s)
	if p.wakes != nil && waits(s) {
		p.refuse(pod, since, false)
	}
	return s
}
