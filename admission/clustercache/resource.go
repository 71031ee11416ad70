package clustercache

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/internal/lookup"
)

// resource is an informer and, beside its store, which has no order, the objects in the
// order of their namespaces and names.
type resource struct {
	informer cache.SharedIndexInformer
	// ordered reports whether all of the first list are in sorted.
	ordered func() bool
	// failed is the last error of its list or watch, nil if there was none.
	failed atomic.Pointer[error]
	// users are those that have not closed it, and stop ends it. Both are the Cluster's.
	users int
	stop  context.CancelFunc

	mu     sync.Mutex
	sorted []*admission.Object
	// lent reports whether sorted was handed out. A change is then made to a copy of it.
	lent bool
}

// use returns the resource of a scope, which it starts at its first use. c.mu is held.
func (c *Cluster) use(s scope) (*resource, error) {
	if r, ok := c.kept[s]; ok {
		r.users++
		return r, nil
	}
	r := &resource{
		informer: cache.NewSharedIndexInformerWithOptions(c.listWatch(s), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
			Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, ObjectDescription: s.resource.String(),
		}),
		users: 1,
	}
	if err := r.informer.SetTransform(keep); err != nil {
		return nil, err
	}
	if err := r.informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
		err = refused("list them", err)
		r.failed.Store(&err)
	}); err != nil {
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
func (c *Cluster) listWatch(s scope) cache.ListerWatcher {
	client := c.client.Resource(s.resource).Namespace(s.namespace)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
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
	case !r.ordered():
		if err := r.failed.Load(); err != nil {
			return nil, *err
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
