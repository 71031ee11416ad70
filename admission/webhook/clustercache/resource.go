package clustercache

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// resource is an informer and a sorted list of its objects, by namespace and name. The store of an
// informer has no order.
type resource struct {
	informer cache.SharedIndexInformer
	// ordered reports whether sorted contains the whole first list.
	ordered func() bool
	// failure is the reason that the API server does not answer a list or watch now, nil if it
	// does.
	failure atomic.Pointer[failure]
	// users is the number of uses that are not closed, and stop ends the informer. The mutex of the
	// Cluster guards both.
	users int
	stop  context.CancelFunc

	mu     sync.Mutex
	sorted []*admission.Object
	// lent reports whether sorted was handed out. Changes are then made to a copy.
	lent bool
}

// failure is the reason that a resource cannot be listed or watched, with the time since when.
type failure struct {
	err   error
	since time.Time
}

// heard records the answer of the API server to a list or a watch.
func (r *resource) heard(err error, now time.Time) {
	if err == nil {
		r.failure.Store(nil)
		return
	}
	f := &failure{err, now}
	if before := r.failure.Load(); before != nil {
		f.since = before.since
	}
	r.failure.Store(f)
}

// gone returns the reason that the known objects are no longer an answer, nil if they still are.
// They are no answer if their kind was deleted, or if the right to see them was revoked. If the API
// server was unreachable for a while, they still are.
func (r *resource) gone() error {
	f := r.failure.Load()
	if f == nil || !apierrors.IsNotFound(f.err) && !apierrors.IsForbidden(f.err) {
		return nil
	}
	return refused("list them", f.err)
}

// use returns the resource of a scope, and starts it at its first use. c.mu must be held.
func (c *Cluster) use(s scope) (*resource, error) {
	if r, ok := c.kept[s]; ok {
		r.users++
		return r, nil
	}
	r := &resource{users: 1}
	r.informer = cache.NewSharedIndexInformerWithOptions(c.listWatch(s, r), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, ObjectDescription: s.resource.String(),
	})
	if err := r.informer.SetTransform(keep); err != nil {
		return nil, err
	}
	// listWatch records the error.
	if err := r.informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	registration, err := r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.change(o, true) },
		UpdateFunc: func(_, o any) { r.change(o, true) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			r.change(o, false)
		},
	})
	if err != nil {
		return nil, err
	}
	r.ordered = registration.HasSynced
	ctx, stop := context.WithCancel(c.ctx)
	r.stop = stop
	c.kept[s] = r
	go r.informer.RunWithContext(ctx)
	return r, nil
}

// listWatch lists and watches the objects of an informer. The informer
// factories of client-go bring in an informer for each kind of Kubernetes.
func (c *Cluster) listWatch(s scope, r *resource) cache.ListerWatcher {
	client := c.client.Resource(s.resource).Namespace(s.namespace)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, o)
			if ctx.Err() == nil {
				r.heard(err, c.now())
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			// A watch that fails to send the initial list is followed by a list.
			if ctx.Err() == nil && (err == nil || o.SendInitialEvents == nil) {
				r.heard(err, c.now())
			}
			return w, err
		},
	}, c.client)
}

// leave ends one use of a resource. c.mu must be held.
func (c *Cluster) leave(s scope, r *resource) {
	if r.users--; r.users == 0 {
		r.stop()
		delete(c.kept, s)
	}
}

// change inserts an object into the order, or removes it.
func (r *resource) change(changed any, there bool) {
	o, ok := changed.(*object)
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lent {
		r.sorted, r.lent = slices.Clone(r.sorted), false
	}
	i, found := lookup.Find(r.sorted, o.Namespace, o.Name)
	switch {
	case found && there:
		r.sorted[i] = &o.kept
	case there:
		r.sorted = slices.Insert(r.sorted, i, &o.kept)
	case found:
		r.sorted = slices.Delete(r.sorted, i, i+1)
	}
}

// Keep begins to keep the objects of a resource, see [admission.Cluster]. A shared informer ends
// with its last user.
func (c *Cluster) Keep(of schema.GroupVersionResource, namespace string) admission.Objects {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := &use{cluster: c, scope: scope{of, namespace}}
	u.resource, u.err = c.use(u.scope)
	return u
}

// use implements admission.Objects for one of the users of a resource.
type use struct {
	cluster  *Cluster
	scope    scope
	resource *resource
	// err is the reason that there is no resource.
	err  error
	once sync.Once
}

// Snapshot returns the objects in the informer.
func (u *use) Snapshot() ([]*admission.Object, error) {
	r := u.resource
	switch {
	case u.err != nil:
		return nil, u.err
	case r.gone() != nil:
		return nil, r.gone()
	case !r.ordered():
		if f := r.failure.Load(); f != nil {
			return nil, refused("list them", f.err)
		}
		return nil, errNotFilled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = true
	return r.sorted, nil
}

// Wait waits for the first list.
func (u *use) Wait(ctx context.Context) error {
	if u.err != nil {
		return u.err
	}
	return u.cluster.wait(ctx, u.resource, u.resource.ordered)
}

// Close ends the use. It may be called several times.
func (u *use) Close() {
	u.once.Do(func() {
		if u.err != nil {
			return
		}
		u.cluster.mu.Lock()
		defer u.cluster.mu.Unlock()
		u.cluster.leave(u.scope, u.resource)
	})
}

// Age is the age of the objects of a resource in the answers of a Cluster.
type Age struct {
	// Resource is the resource as in "apps/v1/deployments". Namespace is empty for all.
	Resource, Namespace string
	// Age is the time since which the API server has not answered a list or a watch of the
	// resource. It is 0 while the resource is watched.
	Age time.Duration
}

// Ages returns the age of each resource that the Cluster keeps.
func (c *Cluster) Ages() []Age {
	c.mu.Lock()
	defer c.mu.Unlock()
	ages := make([]Age, 0, len(c.kept))
	for s, r := range c.kept {
		age := Age{Resource: strings.TrimPrefix(s.resource.GroupVersion().String()+"/"+s.resource.Resource, "/"), Namespace: s.namespace}
		if f := r.failure.Load(); f != nil {
			age.Age = max(c.now().Sub(f.since), time.Nanosecond)
		}
		ages = append(ages, age)
	}
	slices.SortFunc(ages, func(a, b Age) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace))
	})
	return ages
}
