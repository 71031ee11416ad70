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

// resource is an informer and, beside its store, which has no order, the objects in the
// order of their namespaces and names.
type resource struct {
	informer cache.SharedIndexInformer
	// ordered reports whether all of the first list are in sorted.
	ordered func() bool
	// failure is why the API server does not answer its list or watch now, nil if it does.
	failure atomic.Pointer[failure]
	// users are those that have not closed it, and stop ends it. Both are the Cluster's.
	users int
	stop  context.CancelFunc

	mu     sync.Mutex
	sorted []*admission.Object
	// lent reports whether sorted was handed out. A change is then made to a copy of it.
	lent bool
}

// failure is why a resource cannot be listed or watched, and since when.
type failure struct {
	err   error
	since time.Time
}

// heard notes the answer of the API server to a list or a watch.
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

// gone returns why the objects that are known are no answer any more, nil if they are one:
// their kind was deleted, or the right to see them taken away. Those that the API server
// could not be asked about for a while are still an answer.
func (r *resource) gone() error {
	f := r.failure.Load()
	if f == nil || !apierrors.IsNotFound(f.err) && !apierrors.IsForbidden(f.err) {
		return nil
	}
	return refused("list them", f.err)
}

// use returns the resource of a scope, which it starts at its first use. c.mu is held.
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
	// listWatch has noted it.
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

// listWatch lists and watches what an informer has. The informers of client-go come with one of
// each kind of Kubernetes.
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
			// A watch that was to send the list as well is followed by one.
			if ctx.Err() == nil && (err == nil || o.SendInitialEvents == nil) {
				r.heard(err, c.now())
			}
			return w, err
		},
	}, c.client)
}

// leave ends one use of a resource. c.mu is held.
func (c *Cluster) leave(s scope, r *resource) {
	if r.users--; r.users == 0 {
		r.stop()
		delete(c.kept, s)
	}
}

// change puts an object into the order, or takes it out.
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

// Keep begins to keep the objects of a resource, see [admission.Cluster]. An informer that
// is used by several ends with the last of them.
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
	// err is why there is no resource.
	err  error
	once sync.Once
}

// Snapshot returns the objects as the informer has them.
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

// Age is how old the objects of a resource are that a Cluster answers with.
type Age struct {
	// Resource is the resource as in "apps/v1/deployments". Namespace is empty for all.
	Resource, Namespace string
	// Age is how long the API server has not answered a list or a watch of the resource:
	// 0 while it is watched.
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
