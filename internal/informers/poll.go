package informers

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// The bounds of polled sources.
const (
	// pollEvery is the interval at which a source is listed, and pollTimeout the time for an answer.
	pollEvery   = 15 * time.Second
	pollTimeout = 10 * time.Second
	// maxPolledAge is the age from which the last answer of a source that fails is dropped.
	maxPolledAge = 5 * time.Minute
	// maxPolled is the number of objects in an answer.
	maxPolled = 100_000
)

// polledGroup reports whether the resources of a group are polled: its API server offers no watch.
func polledGroup(group string) bool { return group == "metrics.k8s.io" }

// poller has the objects of a source that cannot be watched. It lists them at an interval, one request
// at a time, and its watch has the differences. A source that fails keeps its objects for
// maxPolledAge, and then has none.
type poller struct {
	list func(ctx context.Context) ([]unstructured.Unstructured, error)
	// heard is told the result of each list, and now returns the time.
	heard func(error)
	now   func() time.Time
	every time.Duration

	// One goroutine uses these: a reflector lists before it watches.
	known    map[types.NamespacedName]*unstructured.Unstructured
	answered time.Time
}

// poll returns the present objects by their names, and false if those that are known stand.
func (p *poller) poll(ctx context.Context) (map[types.NamespacedName]*unstructured.Unstructured, bool) {
	limited, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	list, err := p.list(limited)
	objects := make(map[types.NamespacedName]*unstructured.Unstructured, len(list))
	if err == nil && len(list) > maxPolled {
		err = fmt.Errorf("%d objects are more than %d", len(list), maxPolled)
	}
	for i := 0; i < len(list) && err == nil; i++ {
		name := types.NamespacedName{Namespace: list[i].GetNamespace(), Name: list[i].GetName()}
		if objects[name] != nil {
			err = fmt.Errorf("there are two values of %q", name)
		}
		objects[name] = &list[i]
	}
	if ctx.Err() != nil {
		return nil, false
	}
	p.heard(err)
	switch {
	case err == nil:
		p.answered = p.now()
		return objects, true
	case p.now().Sub(p.answered) < maxPolledAge:
		return nil, false
	}
	return nil, true
}

// lists returns the objects for an informer. A source that does not answer has none.
func (p *poller) lists(ctx context.Context, _ metav1.ListOptions) (kruntime.Object, error) {
	if objects, changed := p.poll(ctx); changed {
		p.known = objects
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("v1")
	list.SetKind("List")
	for _, o := range p.known {
		list.Items = append(list.Items, *o.DeepCopy()) // The informer changes its objects.
	}
	return list, ctx.Err()
}

// watches returns the changes for an informer.
func (p *poller) watches(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	go func() {
		ticker := time.NewTicker(p.every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.StopChan():
				return
			case <-ticker.C:
			}
			for _, e := range p.changes(ctx) {
				select {
				case events <- e:
				case <-ctx.Done():
					return
				case <-w.StopChan():
					return
				}
			}
		}
	}()
	return w, nil
}

// changes polls, and returns the differences to the objects that were known.
func (p *poller) changes(ctx context.Context) (events []watch.Event) {
	objects, changed := p.poll(ctx)
	if !changed {
		return nil
	}
	for name, o := range p.known {
		if objects[name] == nil {
			events = append(events, watch.Event{Type: watch.Deleted, Object: o})
		}
	}
	for name, o := range objects {
		switch before := p.known[name]; {
		case before == nil:
			events = append(events, watch.Event{Type: watch.Added, Object: o.DeepCopy()})
		case !reflect.DeepEqual(before.Object, o.Object):
			events = append(events, watch.Event{Type: watch.Modified, Object: o.DeepCopy()})
		}
	}
	p.known = objects
	return events
}

// noWatchList reports to a reflector that the list at the beginning of a watch is not supported.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// pollWatch returns the lists and the watches of a polled source, nil if the resource can be watched.
func (r *Resource[O]) pollWatch() cache.ListerWatcher {
	cfg, s := &r.cache.cfg, r.scope
	p := &poller{now: cfg.Now, every: cfg.Every, heard: func(err error) {
		if before := r.failure.Load(); before == nil && err != nil {
			klog.Background().Error(err, "A source of metrics does not answer", "resource", s.Resource, "namespace", s.Namespace)
		}
		r.heard(err)
	}}
	switch {
	case s.Query != noQuery:
		p.list = func(ctx context.Context) ([]unstructured.Unstructured, error) { return runQuery(ctx, cfg.Get, s) }
	case polledGroup(s.Resource.Group):
		p.list = func(ctx context.Context) ([]unstructured.Unstructured, error) {
			list, err := cfg.Client.Resource(s.Resource).Namespace(s.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			return list.Items, nil
		}
	default:
		return nil
	}
	r.polled = true
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: p.lists, WatchFuncWithContext: p.watches}, noWatchList{})
}
