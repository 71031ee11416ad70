package informers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// maxKeptBytes is the number of bytes that a Lister keeps of a resource, or of one of its namespaces.
const maxKeptBytes = 256 << 20

// caches are those of the configurations of clients: all plugins of a program share informers.
var caches struct {
	sync.Mutex
	of map[*rest.Config]*Cache[*objects.Kept]
}

// cacheOf returns the Cache of a configuration.
func cacheOf(config *rest.Config) (*Cache[*objects.Kept], error) {
	if config == nil {
		return nil, errors.New("the scheduler has no configuration of a client")
	}
	caches.Lock()
	defer caches.Unlock()
	if c, ok := caches.of[config]; ok {
		return c, nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	if caches.of == nil {
		caches.of = map[*rest.Config]*Cache[*objects.Kept]{}
	}
	get, err := GetterOf(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	c := New(context.Background(), Config[*objects.Kept]{Client: client, Keep: objects.Keep, Limit: maxKeptBytes, Get: get})
	caches.of[config] = c
	return c, nil
}

// Lister lists the objects of a resource in some namespaces, or in all. Its objects are of the type
// [objects.Kept].
type Lister struct {
	resource schema.GroupResource
	of       []*Resource[*objects.Kept]
	close    sync.Once
}

// ListerOf returns a Lister of the objects of a grant. Its informers, which all with the same
// configuration share, run until it is closed.
func ListerOf(config *rest.Config, grant host.ObjectGrant) (*Lister, error) {
	c, err := cacheOf(config)
	if err != nil {
		return nil, err
	}
	resource, err := lookup.ParseResource(grant.Resource)
	if err != nil {
		return nil, err
	}
	query, namespaces := host.ObjectQuery{}, grant.Namespaces
	if grant.Query != nil {
		query = *grant.Query
	}
	if namespaces == nil {
		namespaces = []string{""}
	}
	namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces))) // No object is there twice.
	l := &Lister{resource: resource.GroupResource()}
	for _, namespace := range namespaces {
		r, err := c.Use(Scope{resource, namespace, query})
		if err != nil {
			l.Close()
			return nil, err
		}
		l.of = append(l.of, r)
	}
	return l, nil
}

// Close ends the use of the informers. It may be called several times.
func (l *Lister) Close() {
	l.close.Do(func() {
		for _, r := range l.of {
			r.Leave()
		}
	})
}

// Synced reports whether the Lister has all objects. The error is the reason why its objects are no
// answer, or cannot be listed at first.
func (l *Lister) Synced() (bool, error) {
	synced := true
	for _, r := range l.of {
		if err := r.Gone(); err != nil {
			return false, err
		}
		if r.HasSynced() && r.Ordered() {
			continue
		}
		synced = false
		if err := r.Failure(); err != nil {
			return false, Refused("list them", err)
		}
	}
	return synced, nil
}

// Watch calls changed after each change with the object before and after it, nil if there is none,
// until stop is called. The calls about one namespace come one after the other.
func (l *Lister) Watch(changed func(oldObj, newObj any)) (stop func(), _ error) {
	var stops []func()
	for _, r := range l.of {
		stops = append(stops, r.Watch(func(before, after *objects.Kept) {
			switch {
			case before == nil:
				changed(nil, after)
			case after == nil:
				changed(before, nil)
			default:
				changed(before, after)
			}
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}, nil
}

// List implements cache.GenericLister.
func (l *Lister) List(selector labels.Selector) (list []runtime.Object, err error) {
	for _, r := range l.of {
		if err := r.List("", selector, func(o *objects.Kept) { list = append(list, o) }); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Get implements cache.GenericLister.
func (l *Lister) Get(key string) (runtime.Object, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return nil, err
	}
	for _, r := range l.of {
		if o, ok, err := r.Get(namespace, name); ok || err != nil {
			return o, err
		}
	}
	return nil, apierrors.NewNotFound(l.resource, key)
}

// ByNamespace implements cache.GenericLister.
func (l *Lister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return namespaced{l, namespace}
}

type namespaced struct {
	lister    *Lister
	namespace string
}

func (n namespaced) List(selector labels.Selector) (list []runtime.Object, err error) {
	for _, r := range n.lister.of {
		if err := r.List(n.namespace, selector, func(o *objects.Kept) { list = append(list, o) }); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (n namespaced) Get(name string) (runtime.Object, error) {
	return n.lister.Get(n.namespace + "/" + name)
}
