// Package informers keeps the objects of any resource in memory, in the form in which guests get
// them: as JSON, encoded once for each version, without managedFields.
//
// There is an informer for each resource, or for each of its namespaces. It starts with the first
// use and ends with the last. Resources need not exist: an informer of one that is created later,
// or is created again, lists it then, within half a minute.
//
// Metrics have no watch: they are polled, and an informer has the differences.
package informers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// Scope is the subject of an informer: a resource in a namespace, or in all namespaces if the
// namespace is empty.
type Scope struct {
	Resource  schema.GroupVersionResource
	Namespace string
	// Query is the source of objects that are no objects of the API, the zero value of others.
	Query host.ObjectQuery
}

// Config configures a Cache of objects that are kept as an O.
type Config[O lookup.Object] struct {
	Client dynamic.Interface
	// Keep returns the form in which an object is kept, with its JSON. The JSON may be kept, and no
	// other part of the object but strings.
	Keep func(object *unstructured.Unstructured, raw []byte) O
	// Limit is the number of bytes of JSON that an informer keeps, 0 for no limit. Objects beyond it
	// are kept without their JSON, until they change. As long as there is one, the resource has no
	// answer.
	Limit int64
	// Now returns the time; nil for time.Now.
	Now func() time.Time
	// Get asks the sources of queries; nil if there are none.
	Get Getter
	// Every is the interval at which sources without a watch are polled, 15 seconds if it is 0.
	Every time.Duration
}

// Cache is a set of informers. It is safe for use by several goroutines.
type Cache[O lookup.Object] struct {
	ctx context.Context
	cfg Config[O]

	mu   sync.Mutex
	kept map[Scope]*Resource[O]
}

// New returns a Cache whose informers run until ctx ends at the latest.
func New[O lookup.Object](ctx context.Context, cfg Config[O]) *Cache[O] {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Every == 0 {
		cfg.Every = pollEvery
	}
	return &Cache[O]{ctx: ctx, cfg: cfg, kept: map[Scope]*Resource[O]{}}
}

// Resource is an informer and a sorted list of its objects, by namespace and name. The store of an
// informer has no order.
type Resource[O lookup.Object] struct {
	cache    *Cache[O]
	scope    Scope
	informer cache.SharedIndexInformer
	// polled is set for a source without a watch. It is an answer without objects when it fails.
	polled bool
	// ordered reports whether sorted contains the whole first list.
	ordered func() bool
	// failure is the reason that the API server does not answer a list or watch now, nil if it
	// does.
	failure atomic.Pointer[failure]
	// size is the number of bytes that are kept, and missing the number of objects beyond the limit.
	size, missing atomic.Int64
	// items are those that size counts, for a Cache with a limit. The handler of events uses it alone.
	items map[types.NamespacedName]*item[O]
	// users is the number of uses that are not closed, and stop ends the informer. The mutex of the
	// Cache guards both.
	users int
	stop  context.CancelFunc

	mu     sync.Mutex
	sorted []O
	// lent reports whether sorted was handed out. Changes are then made to a copy.
	lent bool
	// watchers are called after each change.
	watchers []*func(before, after O)
}

// failure is the reason that a resource cannot be listed or watched, with the time since when.
type failure struct {
	err   error
	since time.Time
}

// item is an object in the store of an informer.
type item[O lookup.Object] struct {
	metav1.PartialObjectMetadata
	kept O
	// size is that of its JSON, nil if that is not kept.
	size    *size
	missing bool
}

// size is a number of bytes that a sum contains until they are forgotten: by the event after which
// the object is no longer kept, or with the object itself. Not each object has an event: the list at
// the beginning of a watch is dropped if the watch breaks.
type size struct {
	bytes     int64
	in        *atomic.Int64
	forgotten atomic.Bool
}

// forget removes the bytes from the sum, once. s may be nil.
func (s *size) forget() {
	if s != nil && !s.forgotten.Swap(true) {
		s.in.Add(-s.bytes)
	}
}

// keep converts an object to the form that is kept.
func (r *Resource[O]) keep(from any) (any, error) {
	u, ok := from.(*unstructured.Unstructured)
	if !ok {
		return from, nil
	}
	if known := r.known(u); known != nil {
		return known, nil
	}
	u.SetManagedFields(nil)
	i := &item[O]{}
	i.Name, i.Namespace, i.UID, i.ResourceVersion, i.Labels = u.GetName(), u.GetNamespace(), u.GetUID(), u.GetResourceVersion(), u.GetLabels()
	if limit := r.cache.cfg.Limit; limit > 0 && r.size.Load() >= limit {
		i.missing = true
		i.kept = r.cache.cfg.Keep(u, nil)
		return i, nil
	}
	raw, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	if r.cache.cfg.Limit > 0 {
		i.size = &size{bytes: int64(len(raw)), in: &r.size}
		r.size.Add(i.size.bytes)
		runtime.AddCleanup(i, (*size).forget, i.size)
	}
	i.kept = r.cache.cfg.Keep(u, raw)
	return i, nil
}

// known returns the item of the version of an object that is kept already, nil if there is none: a
// resource that is listed again does not count twice for the limit meanwhile.
func (r *Resource[O]) known(u *unstructured.Unstructured) *item[O] {
	if r.informer == nil || u.GetUID() == "" || u.GetResourceVersion() == "" {
		return nil
	}
	found, _, err := r.informer.GetIndexer().GetByKey(cache.MetaObjectToName(u).String())
	if i, ok := found.(*item[O]); ok && err == nil && !i.missing && i.UID == u.GetUID() && i.ResourceVersion == u.GetResourceVersion() {
		return i
	}
	return nil
}

// heard records the answer of the API server to a list or a watch.
func (r *Resource[O]) heard(err error) {
	if err == nil {
		r.failure.Store(nil)
		return
	}
	f := &failure{err, r.cache.cfg.Now()}
	if before := r.failure.Load(); before != nil {
		f.since = before.since
	}
	r.failure.Store(f)
}

// Gone returns the reason that the known objects are no longer an answer, nil if they still are.
// They are no answer if their kind was deleted, or if the right to see them was revoked. If the API
// server was unreachable for a while, they still are.
func (r *Resource[O]) Gone() error {
	if r.missing.Load() > 0 {
		return fmt.Errorf("the objects have more than %d MiB: name the namespaces that are needed", r.cache.cfg.Limit>>20)
	}
	f := r.failure.Load()
	if f == nil || r.polled || !apierrors.IsNotFound(f.err) && !apierrors.IsForbidden(f.err) {
		return nil
	}
	return Refused("list them", f.err)
}

// Failure returns the error of the last list or watch, nil if it succeeded, and for polled sources.
func (r *Resource[O]) Failure() error {
	if f := r.failure.Load(); f != nil && !r.polled {
		return f.err
	}
	return nil
}

// HasSynced reports whether Get knows the first list, and Ordered whether Snapshot does.
func (r *Resource[O]) HasSynced() bool { return r.informer.HasSynced() }

// Ordered is HasSynced for Snapshot.
func (r *Resource[O]) Ordered() bool { return r.ordered() }

// Use returns the resource of a scope, and starts it at its first use. Leave ends the use.
func (c *Cache[O]) Use(s Scope) (*Resource[O], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.kept[s]; ok {
		r.users++
		return r, nil
	}
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	if s.Query != noQuery && c.cfg.Get == nil {
		return nil, errors.New("the program has no client for queries")
	}
	r := &Resource[O]{cache: c, scope: s, users: 1, items: map[types.NamespacedName]*item[O]{}}
	r.informer = cache.NewSharedIndexInformerWithOptions(r.listWatch(), &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, ObjectDescription: s.Resource.String(),
	})
	if err := r.informer.SetTransform(r.keep); err != nil {
		return nil, err
	}
	// listWatch records the error.
	if err := r.informer.SetWatchErrorHandler(func(*cache.Reflector, error) {}); err != nil {
		return nil, err
	}
	registration, err := r.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { r.change(nil, o) },
		UpdateFunc: func(before, after any) { r.change(before, after) },
		DeleteFunc: func(o any) { r.change(o, nil) },
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

// listWatch lists and watches the objects of an informer. The informer factories of client-go bring
// in an informer for each kind of Kubernetes.
func (r *Resource[O]) listWatch() cache.ListerWatcher {
	if polled := r.pollWatch(); polled != nil {
		return polled
	}
	client := r.cache.cfg.Client.Resource(r.scope.Resource).Namespace(r.scope.Namespace)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
			list, err := client.List(ctx, o)
			if ctx.Err() == nil {
				r.heard(err)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			// A watch that fails to send the initial list is followed by a list.
			if ctx.Err() == nil && (err == nil || o.SendInitialEvents == nil) {
				r.heard(err)
			}
			return w, err
		},
	}, r.cache.cfg.Client)
}

// Leave ends one use of a resource.
func (r *Resource[O]) Leave() {
	c := r.cache
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.users--; r.users == 0 {
		r.stop()
		delete(c.kept, r.scope)
	}
}

// itemOf returns the item of an event, nil if there is none.
func itemOf[O lookup.Object](of any) *item[O] {
	if unknown, ok := of.(cache.DeletedFinalStateUnknown); ok {
		of = unknown.Obj
	}
	i, _ := of.(*item[O])
	return i
}

// change inserts an object into the order, or removes it, and tells the watchers.
func (r *Resource[O]) change(oldObj, newObj any) {
	before, after := itemOf[O](oldObj), itemOf[O](newObj)
	if before == nil && after == nil {
		return
	}
	var was, is O
	if before != nil {
		was = before.kept
	}
	if after != nil {
		is = after.kept
	}
	if r.cache.cfg.Limit > 0 {
		r.count(before, after)
	}
	for _, w := range r.order(before, after) {
		(*w)(was, is)
	}
}

// count keeps the size of the objects and the number of those without their JSON. The object of an
// event of a deletion is another item than the one that was kept.
func (r *Resource[O]) count(before, after *item[O]) {
	of := cmp.Or(after, before)
	name := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
	forget := func(i *item[O]) {
		i.size.forget()
		if i.missing && r.items[name] == i {
			r.missing.Add(-1)
		}
	}
	last := r.items[name]
	if last != nil && last == after {
		return // It was listed again.
	}
	if last != nil {
		forget(last)
	}
	if after == nil {
		if before != last {
			forget(before)
		}
		delete(r.items, name)
		return
	}
	if r.items[name] = after; after.missing {
		r.missing.Add(1)
	}
}

// order changes the sorted list, and returns the watchers.
func (r *Resource[O]) order(before, after *item[O]) []*func(before, after O) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lent {
		r.sorted, r.lent = slices.Clone(r.sorted), false
	}
	of := cmp.Or(after, before)
	i, found := lookup.Find(r.sorted, of.Namespace, of.Name)
	switch {
	case found && after != nil:
		r.sorted[i] = after.kept
	case after != nil:
		r.sorted = slices.Insert(r.sorted, i, after.kept)
	case found:
		r.sorted = slices.Delete(r.sorted, i, i+1)
	}
	return slices.Clone(r.watchers)
}

// Watch calls changed after each change with the object before and after it, the zero value if there
// is none, until stop is called. The answers of the resource are those after the change by then.
// Calls come one after the other, and hold up all other watchers.
func (r *Resource[O]) Watch(changed func(before, after O)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, &changed)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watchers = slices.DeleteFunc(r.watchers, func(w *func(before, after O)) bool { return w == &changed })
	}
}

// Get returns an object.
func (r *Resource[O]) Get(namespace, name string) (o O, ok bool, err error) {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	found, ok, err := r.informer.GetIndexer().GetByKey(key)
	if err != nil || !ok {
		return o, false, err
	}
	return found.(*item[O]).kept, true, nil
}

// List calls each with the objects that are selected, in no order. An empty namespace is all of them.
func (r *Resource[O]) List(namespace string, selector labels.Selector, each func(O)) error {
	return cache.ListAllByNamespace(r.informer.GetIndexer(), namespace, selector, func(found any) { each(found.(*item[O]).kept) })
}

// Snapshot returns the objects of the resource in their order.
func (r *Resource[O]) Snapshot() ([]O, error) {
	switch {
	case r.Gone() != nil:
		return nil, r.Gone()
	case !r.ordered():
		if err := r.Failure(); err != nil {
			return nil, Refused("list them", err)
		}
		return nil, ErrNotFilled
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lent = true
	return r.sorted, nil
}

// ErrNotFilled is the error of a question before the first list.
var ErrNotFilled = errors.New("the cache is not filled yet")

// poll is the interval between checks of an informer that has not synced yet.
const poll = 10 * time.Millisecond

// Wait waits until synced, HasSynced or Ordered, holds. If the informer cannot list, or may not, the
// error comes at once, since waiting would take all the time of the request.
func (r *Resource[O]) Wait(ctx context.Context, synced func() bool) error {
	for !synced() {
		if err := r.Failure(); err != nil {
			return Refused("list", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNotFilled, ctx.Err())
		case <-r.cache.ctx.Done():
			return r.cache.ctx.Err()
		case <-time.After(poll):
		}
	}
	return nil
}

// Age is the age of the objects of a resource.
type Age struct {
	// Resource is the resource as in "apps/v1/deployments". Namespace is empty for all.
	Resource, Namespace string
	// Age is the time since which the API server has not answered a list or a watch of the
	// resource. It is 0 while the resource is watched.
	Age time.Duration
}

// Ages returns the age of each resource that is kept.
func (c *Cache[O]) Ages() []Age {
	c.mu.Lock()
	defer c.mu.Unlock()
	ages := make([]Age, 0, len(c.kept))
	for s, r := range c.kept {
		age := Age{Resource: strings.TrimPrefix(s.Resource.GroupVersion().String()+"/"+s.Resource.Resource, "/"), Namespace: s.Namespace}
		if f := r.failure.Load(); f != nil {
			age.Age = max(c.cfg.Now().Sub(f.since), time.Nanosecond)
		}
		ages = append(ages, age)
	}
	slices.SortFunc(ages, func(a, b Age) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Namespace, b.Namespace))
	})
	return ages
}

// Refused returns an error of the API server in words for guests and users, without the server's
// address and the identity of the caller.
func Refused(what string, err error) error {
	words := publicerr.Network(err)
	switch {
	case meta.IsNoMatchError(err):
		words = "the cluster has no such kind"
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		words = "the server's RBAC does not allow it"
	case apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err):
		words = "the API server is busy"
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		words = "the API server answered " + string(apierrors.ReasonForError(err))
	case words == "":
		words = "the API server could not be asked"
	}
	return publicerr.Wrap(what+": "+words, fmt.Errorf("%s: %w", what, err))
}
