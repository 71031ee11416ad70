package sched

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

const (
	// maxAwaited is the number of objects for which a call may wait, and maxAwait the longest time.
	maxAwaited = 16
	maxAwait   = 10 * time.Minute
	// leastAwait is the least time between two calls of a function that waits.
	leastAwait = 100 * time.Millisecond
)

// awaitedObject is an object for whose change PreBind waits.
type awaitedObject struct{ resource, namespace, name string }

// awaiting are the calls of PreBind that wait, by the objects for which they do. A change sends them a
// signal.
type awaiting struct {
	// joining is held while watches begin: a call that joins later finds them.
	joining sync.Mutex
	mu      sync.Mutex
	// watched are the resources whose changes are told.
	watched map[string]bool
	waits   map[awaitedObject][]chan struct{}
}

// await is the host function await_object.
func (p *Plugin) await(inst *host.Instance, question string, milliseconds uint32) {
	c := &during(inst, abi.MaskOf(abi.PreBind)).call
	parts := strings.Split(question, "\x00")
	if len(parts) != 3 {
		inst.Abort(fmt.Errorf("%.80q is not a resource, a namespace and a name", question))
	}
	if _, err := (lookups{p}).lister(inst, parts[0], parts[1]); err != nil {
		inst.Abort(err)
	}
	if len(c.awaited) == maxAwaited {
		inst.Abort(fmt.Errorf("the call waits for more than %d objects", maxAwaited))
	}
	inst.Keep(len(question))
	c.awaited = append(c.awaited, awaitedObject{parts[0], parts[1], parts[2]})
	c.awaitFor = min(time.Duration(milliseconds)*time.Millisecond, maxAwait)
}

// awaitChanges calls prebind again whenever an object has changed for which it waits. Between two calls it
// holds no instance.
func (p *Plugin) awaitChanges(ctx context.Context, prebind func() (*Status, []awaitedObject, time.Duration)) *Status {
	began := time.Now()
	var signal chan struct{}
	var waits []awaitedObject
	defer func() { p.awaiting.leave(waits, signal) }()
	for {
		s, objects, most := prebind()
		if s.Code() != abi.Wait {
			return s
		}
		if len(objects) == 0 || ctx.Err() != nil {
			return s // The framework has no such answer. Kits for tests do not wait.
		}
		if p.monitored || p.candidate {
			return nil
		}
		refusal := func() *Status {
			return NewStatus(abi.Unschedulable, fmt.Sprintf("plugin %q has waited %s for %s %s/%s", p.Name(), most, objects[0].resource, objects[0].namespace, objects[0].name))
		}
		if !slices.Equal(objects, waits) {
			if waits != nil { // A guest that names other objects each time would never wait.
				if time.Since(began) >= most {
					return refusal()
				}
				if p.pauseAwait(ctx); ctx.Err() != nil {
					return s
				}
			}
			// What has changed before the signal was there is seen by another call.
			p.awaiting.leave(waits, signal)
			signal, waits = make(chan struct{}, 1), objects
			if err := p.awaiting.join(p, waits, signal); err != nil {
				return NewStatus(abi.Error, err.Error())
			}
			continue
		}
		timer := time.NewTimer(most - time.Since(began))
		select {
		case <-signal:
			timer.Stop()
			if p.pauseAwait(ctx); ctx.Err() != nil {
				return s
			}
		case <-timer.C:
			return refusal()
		case <-ctx.Done():
			timer.Stop()
			return s
		case <-p.closed:
			timer.Stop()
			return NewStatus(abi.Error, fmt.Sprintf("plugin %q is closed", p.Name()))
		}
	}
}

// pauseAwait keeps an object that changes all the time from calling the guest all the time.
func (p *Plugin) pauseAwait(ctx context.Context) {
	timer := time.NewTimer(leastAwait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.closed:
	case <-ctx.Done():
	}
}

// join has a signal sent after changes of objects. If that fails, the next call tries again.
func (a *awaiting) join(p *Plugin, objects []awaitedObject, signal chan struct{}) error {
	a.joining.Lock()
	defer a.joining.Unlock()
	a.mu.Lock()
	if a.waits == nil {
		a.waits, a.watched = map[awaitedObject][]chan struct{}{}, map[string]bool{}
	}
	var watch []string
	for _, o := range objects {
		if a.waits[o] = append(a.waits[o], signal); !a.watched[o.resource] && !slices.Contains(watch, o.resource) {
			watch = append(watch, o.resource)
		}
	}
	a.mu.Unlock()
	for _, resource := range watch {
		stop, err := p.informers[resource].Watch(func(oldObj, newObj any) {
			of := objectOf(newObj)
			if of == nil {
				of = objectOf(oldObj)
			}
			if of != nil {
				a.changed(awaitedObject{resource, of.GetNamespace(), of.GetName()})
			}
		})
		if err != nil {
			return err
		}
		p.stopLater(stop)
		a.mu.Lock()
		a.watched[resource] = true
		a.mu.Unlock()
	}
	return nil
}

// leave ends what join began.
func (a *awaiting) leave(objects []awaitedObject, signal chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range objects {
		list := slices.DeleteFunc(a.waits[o], func(c chan struct{}) bool { return c == signal })
		if len(list) == 0 {
			delete(a.waits, o)
		} else {
			a.waits[o] = list
		}
	}
}

// changed sends the signals about an object.
func (a *awaiting) changed(o awaitedObject) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, signal := range a.waits[o] {
		select {
		case signal <- struct{}{}:
		default:
		}
	}
}
