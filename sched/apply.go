package sched

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// GrantApply lets a guest have annotations and the status of objects applied, which the configuration
// names.
const GrantApply = "apply"

// applying are the functions that may have something applied: those that come when the cycle is decided.
var applying = abi.MaskOf(abi.PostFilter, abi.Unreserve, abi.PreBind, abi.PostBind)

const (
	// maxApplies is the number of objects to which a call may apply something.
	maxApplies = 100
	// maxQueued and maxQueuedBytes bound what is still to be applied.
	maxQueued      = 10_000
	maxQueuedBytes = 8 << 20
	// applyEvery is the least time between two requests of a plugin, applyTimeout the time of one, and
	// applyAttempts the number of them for something that an API server fails to take for the moment.
	applyEvery    = 100 * time.Millisecond
	applyTimeout  = 10 * time.Second
	applyAttempts = 5
)

// Applied holds the annotations, or the fields of the status, that a plugin manages in an object.
type Applied struct {
	Resource schema.GroupVersionResource
	// Object is the object as the scheduler knows it.
	Object runtime.Object
	// Namespace and Name are those of the object.
	Namespace, Name string
	// Annotations are nil for the status, a JSON object.
	Annotations map[string]string
	Status      json.RawMessage
}

// applied names a part of an object.
type applied struct {
	resource, namespace, name string
	status                    bool
}

// applies are the changes of objects that guests have asked for. They are made after the calls, one at a
// time, and the latest one of a part of an object alone.
type applies struct {
	mu      sync.Mutex
	wanted  map[applied]queuedApply
	order   []applied
	bytes   int
	running bool
	// full is set from when something was dropped until there is nothing left.
	full bool
}

type queuedApply struct {
	*lookup.Apply
	bytes, attempts int
}

// apply is the host function apply_annotations, or apply_status.
func (p *Plugin) apply(inst *host.Instance, question string, status bool) {
	c := &during(inst, applying).call
	a, err := lookup.ParseApply(question, status)
	if err == nil {
		err = a.Allowed(p.args.Objects)
	}
	if err == nil && len(c.applies) == maxApplies {
		err = fmt.Errorf("the call applies to more than %d objects", maxApplies)
	}
	if err != nil {
		inst.Abort(err)
	}
	inst.Keep(2 * len(question))
	if c.first == nil {
		c.applies = append(c.applies, queuedApply{a, len(question), 0})
	}
}

// applyCalled queues what a call that has returned wants to be applied. A kit for tests takes it at once.
func (p *Plugin) applyCalled(c *call) {
	if len(c.applies) == 0 || p.monitored || p.candidate {
		return
	}
	kit, _ := p.handle.(interface {
		Applying(of Applied) bool
	})
	for _, of := range c.applies {
		if kit == nil || !kit.Applying(of.applied(nil)) {
			p.applies.add(p, of)
		}
	}
}

func (q *queuedApply) applied(object runtime.Object) Applied {
	resource, _ := lookup.ParseResource(q.Resource) // It was one in the configuration.
	return Applied{resource, object, q.Namespace, q.Name, q.Annotations, q.Status}
}

// add queues a change.
func (a *applies) add(p *Plugin, q queuedApply) {
	key := applied{q.Resource, q.Namespace, q.Name, q.Annotations == nil}
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-p.closed:
		return // Nothing is made any more.
	default:
	}
	before, queued := a.wanted[key]
	if q.attempts > 0 && queued {
		return // There is a later one.
	}
	if bytes := a.bytes - before.bytes + q.bytes; bytes > maxQueuedBytes || !queued && len(a.wanted) >= maxQueued {
		if !a.full {
			a.full = true
			p.callLogger.Warn("too many changes of objects are wanted: some are not made", "plugin", p.Name(), "limit", len(a.wanted))
		}
		return
	}
	if a.wanted == nil {
		a.wanted = map[applied]queuedApply{}
	}
	if !queued {
		a.order = append(a.order, key)
	}
	a.bytes += q.bytes - before.bytes
	a.wanted[key] = q
	if !a.running {
		a.running = true
		go a.run(p)
	}
}

// take returns the next change. If there is none, the caller ends.
func (a *applies) take() (q queuedApply, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.order) == 0 {
		a.running, a.full, a.order = false, false, nil
		return q, false
	}
	q = a.wanted[a.order[0]]
	delete(a.wanted, a.order[0])
	a.order = a.order[1:]
	a.bytes -= q.bytes
	return q, true
}

// run makes changes until there are none left, or the plugin is closed: those that are left are not made.
func (a *applies) run(p *Plugin) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-p.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	ticker := time.NewTicker(applyEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.closed:
			if n := a.drop(); n > 0 {
				p.callLogger.Warn("changes of objects are not made: the plugin is closed", "plugin", p.Name(), "dropped", n)
			}
			return
		default:
		}
		q, ok := a.take()
		if !ok {
			return
		}
		if err := p.applyOne(ctx, &q); err != nil {
			if q.attempts++; transient(err) && q.attempts < applyAttempts && ctx.Err() == nil {
				a.add(p, q)
			} else {
				p.callLogger.Warn("a change of an object failed", "plugin", p.Name(), "resource", q.Resource, "namespace", q.Namespace, "name", q.Name, "err", err)
			}
		}
		select {
		case <-p.closed:
		case <-ticker.C:
		}
	}
}

// drop empties the queue, and returns the number of changes.
func (a *applies) drop() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := len(a.wanted)
	a.wanted, a.order, a.bytes, a.running = nil, nil, 0, false
	return n
}

// applyOne makes a change, unless the object is gone.
func (p *Plugin) applyOne(ctx context.Context, q *queuedApply) error {
	key := q.Name
	if q.Namespace != "" {
		key = q.Namespace + "/" + q.Name
	}
	object, err := p.informers[q.Resource].Get(key)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	err = p.handle.Apply(ctx, "kubewasm-"+p.guest.Name(), q.applied(object))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// transient reports whether a request may succeed later.
func transient(err error) bool {
	return apierrors.ReasonForError(err) == "" || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err)
}
