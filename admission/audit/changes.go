package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/json"
)

const (
	// maxRepeats is the number of objects of a resource that are read one by one to be asked about
	// again. If there are more, the resource is listed.
	maxRepeats = 100
	// opening bounds the time in which a watch opens.
	opening = 30 * time.Second
	// batch is the number of changes that are reviewed together.
	batch = 100
	// ahead is the number of resources that are watched at a time. Each watch lasts until a
	// bookmark.
	ahead = 8
)

// errList reports that the changes of a resource are not enough.
var errList = errors.New("all objects must be listed")

// changes audits the resources for which the changes since the last run are enough. It returns the
// resources that must be listed.
func (r *run) changes(ctx context.Context, all []*target) (rest []*target) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var watched []*target
	for _, t := range all {
		if r.incremental(t, r.state.resource(t.resource)) {
			watched = append(watched, t)
		} else {
			rest = append(rest, t)
		}
	}
	begun := make([]*watching, len(watched))
	next := 0
	for i, t := range watched {
		for ; next < min(len(watched), i+ahead); next++ {
			begun[next] = r.watch(ctx, watched[next])
		}
		w := begun[i]
		begun[i] = nil
		err := r.change(ctx, t, w)
		w.stop()
		if err != nil {
			r.items = r.items[:0] // They are listed.
			if !errors.Is(err, errList) && !expired(err) {
				r.log(slog.LevelInfo, "list a resource instead of watching it", "resource", t.name(), "err", err)
			}
			rest = append(rest, t)
		}
	}
	return rest
}

// incremental reports whether the results of the objects that have not changed still hold.
func (r *run) incremental(t *target, k *known) bool {
	if !t.watch || k.position == "" || k.plan != r.plan(t) || len(k.repeat) > maxRepeats {
		return false
	}
	return len(r.relabelled) == 0 || !slices.ContainsFunc(t.policies, func(p *asked) bool { return p.SelectsNamespaces })
}

// watching is a resource with a watch for its changes.
type watching struct {
	// now is the version up to which the API server had all changes at the time of the request, and
	// err the reason that it is not known.
	now string
	err error
	// events is nil if there are no changes.
	events chan event
	opened chan struct{}
	stop   func()
}

// watch requests the changes of a resource.
func (r *run) watch(ctx context.Context, t *target) *watching {
	k, path := r.state.resource(t.resource), pathOf(t.resource, "")
	w := &watching{stop: func() {}}
	now, err := r.client.list(ctx, path, metadataOnly, "", 1, "")
	if err != nil {
		w.err = fmt.Errorf("get the version: %w", err)
		return w
	}
	if _, ok := compareVersions(k.position, now.version); !ok {
		w.err = errList
		return w
	}
	if w.now = now.version; w.now == k.position {
		return w
	}
	ctx, w.stop = context.WithCancel(ctx)
	w.events, w.opened = make(chan event, batch), make(chan struct{})
	go r.client.watch(ctx, path, k.position, func() { close(w.opened) }, w.events)
	return w
}

// change reviews the objects that have changed, and those that are asked about again in any case.
func (r *run) change(ctx context.Context, t *target, w *watching) error {
	if w.err != nil {
		return w.err
	}
	k := r.state.resource(t.resource)
	repeats := slices.Collect(maps.Keys(k.repeat))
	if w.events != nil {
		if err := r.follow(ctx, t, k, w); err != nil {
			return err
		}
	}
	for _, key := range repeats {
		if o := k.objects[key]; o == nil || o.run == r.number {
			continue // Gone, or asked about already.
		}
		raw, err := r.client.get(ctx, pathOf(t.resource, key.namespace)+"/"+key.name)
		if err != nil {
			return fmt.Errorf("get %s: %w", key.name, err)
		}
		if raw == nil {
			k.remove(key)
			r.journal.gone(t.resource, key)
			continue
		}
		r.add(t, raw)
		r.review(ctx, t)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if !r.complete(t) {
		k.position = ""
	}
	r.journal.position(t.resource, k)
	r.journal.flush()
	return nil
}

// follow processes the changes between the position and now. A watch without events does not prove
// that there were no changes. It is complete with an event or a bookmark that is as late as now. An
// API server sends a bookmark before it ends a watch; without one, all objects are listed.
func (r *run) follow(ctx context.Context, t *target, k *known, w *watching) error {
	opened, timer := w.opened, time.NewTimer(opening)
	defer timer.Stop()
	position := k.position
	taken := func() error {
		r.review(ctx, t)
		if err := ctx.Err(); err != nil {
			return err
		}
		k.position = position
		return nil
	}
	for {
		select {
		case <-opened:
			opened = nil
			timer.Reset(opening + watchSeconds*time.Second)
			continue
		case <-timer.C:
			return fmt.Errorf("watch: no response in time: %w", errList)
		case e, ok := <-w.events:
			switch {
			case !ok:
				return cmp.Or(ctx.Err(), errList)
			case e.err != nil:
				return fmt.Errorf("watch: %w", e.err)
			}
			version := r.take(t, k, e)
			if version == "" {
				return fmt.Errorf("watch: an event of the type %s has no version: %w", e.kind, errList)
			}
			position = version
			order, comparable := compareVersions(position, w.now)
			last := comparable && order >= 0
			if last || len(r.items) == batch {
				if err := taken(); err != nil || last {
					return err
				}
			}
		}
	}
}

// take processes an event and returns its version.
func (r *run) take(t *target, k *known, e event) (version string) {
	var o object
	for m := json.Object(e.object); m.Next(); {
		if m.Key() == "metadata" {
			o.readMetadata(nil, m.Value())
		}
	}
	if e.kind == "BOOKMARK" || o.version == "" {
		return o.version
	}
	key := objectKey{o.namespace, o.name}
	// An object that is in the page twice is reviewed in its latest version.
	r.items = slices.DeleteFunc(r.items, func(i item) bool { return i.key == key })
	if e.kind == "DELETED" {
		if _, ok := k.objects[key]; ok {
			k.remove(key)
			r.journal.gone(t.resource, key)
		}
		return o.version
	}
	r.add(t, e.object)
	return o.version
}

// listNamespaces lists the namespaces if policies select them, or if Config.Namespaces needs them.
func (r *run) listNamespaces(ctx context.Context) error {
	selected := slices.ContainsFunc(r.policies, func(p *asked) bool { return p.SelectsNamespaces })
	if r.cfg.Namespaces == nil && !selected {
		return nil
	}
	namespaces := r.cfg.Namespaces
	if namespaces == nil {
		namespaces = new(Namespaces)
	}
	var err error
	if r.namespaces, err = namespaces.refresh(ctx, r.client); err != nil {
		if !selected {
			r.log(slog.LevelWarn, "list namespaces, which no policy selects", "err", err)
			return ctx.Err()
		}
		return err
	}
	r.relabelled = map[string]bool{}
	for name, n := range r.namespaces {
		if before, ok := r.state.namespaces[name]; ok && before != n.sum() {
			r.relabelled[name] = true
		}
	}
	return nil
}

// keepNamespaces records the labels of namespaces. Changed labels are recorded only if the run is
// complete; otherwise the next run must ask again.
func (r *run) keepNamespaces(complete bool) {
	for name, n := range r.namespaces {
		sum := n.sum()
		if before, ok := r.state.namespaces[name]; !ok || before != sum && complete {
			r.state.namespaces[name] = sum
			r.journal.namespace(name, sum)
		}
	}
	r.journal.flush()
}

// forget drops the state of resources that are no longer audited.
func (r *run) forget(all []*target) {
	for gvr, k := range r.state.resources {
		if slices.ContainsFunc(all, func(t *target) bool { return t.resource == gvr }) {
			continue
		}
		for key := range k.objects {
			r.journal.gone(gvr, key)
		}
		r.journal.position(gvr, new(known))
		delete(r.state.resources, gvr)
	}
}

// shorten cuts a message to the length allowed in a report.
func shorten(message string) string {
	const most = 1 << 10
	return cut.Marked(message, most)
}
