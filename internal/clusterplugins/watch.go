// Package clusterplugins follows the objects of the cluster that declare plugins, of the group
// kubewasm.dev, and reports on them.
package clusterplugins

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/internal/apiserver"
)

// groupVersion is the path of the API.
const groupVersion = "/apis/kubewasm.dev/v1alpha1"

const (
	// settle is the time for which changes are collected, or applyShare times the duration of the last
	// call of Apply, at most maxSettle.
	settle, applyShare, maxSettle = 50 * time.Millisecond, 3, 10 * time.Second
	// pinWait is the longest time for which a new generation waits until the controller has resolved
	// its module, unless the controller has found out that nobody can load it: then it is refusedWait.
	pinWait, refusedWait = 30 * time.Second, 365 * 24 * time.Hour
	// maxBytes bounds the specs of a resource together, and namespaceBytes those of a namespace: whoever
	// may write objects in one keeps no others from service.
	maxBytes, namespaceBytes = 48 << 20, 4 << 20
	// maxListed bounds the objects of a namespace in a list. The webhook takes fewer.
	maxListed = 1000
)

// ErrTooLarge is the error of an object without Spec.
var ErrTooLarge = fmt.Errorf("the spec is left out: those of a namespace may have %d bytes together, and those of all objects %d", namespaceBytes, maxBytes)

// Resource is a resource whose objects declare plugins.
type Resource struct{ Kind, Plural string }

// The resources.
var (
	ClusterAdmissionPolicies = Resource{"ClusterAdmissionPolicy", "clusteradmissionpolicies"}
	AdmissionPolicies        = Resource{"AdmissionPolicy", "admissionpolicies"}
	NodeHooks                = Resource{"NodeHook", "nodehooks"}
	SchedulerPlugins         = Resource{"SchedulerPlugin", "schedulerplugins"}
)

// Object is an object that declares a plugin.
type Object struct {
	Kind, Namespace, Name, UID string
	Generation                 int64
	// Pinned is the artifact to load in place of module.oci, empty for that one.
	Pinned string
	// Spec is the spec in JSON. It is nil if there is no room for it.
	Spec json.RawMessage `json:",omitempty"`
	// Kept is the spec with the texts of its guestConfigFrom, if none is of a Secret: see
	// [Object.Settings].
	Kept json.RawMessage `json:",omitempty"`

	// The others are of a rollout. Generation is that of the revision then, and Revision its number, 0
	// for an object whose newest spec serves at once.
	Revision int64 `json:",omitempty"`
	// Held reports whether no version is for this process yet. Spec is nil then.
	Held   bool `json:",omitempty"`
	Bounds `json:"Bounds,omitzero"`
	// NodeSelectors select the nodes for which this is the version, those of any if there are none.
	// Else is the version for the others.
	NodeSelectors []string `json:",omitempty"`
	Else          *Object  `json:",omitempty"`

	resolved *resolved
}

// Plugin returns the name of the plugin: that of the object, with its namespace if it has one.
func (o *Object) Plugin() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Config configures a Watch.
type Config struct {
	Client *apiserver.Client
	// Name is the name of the node or of the Pod, by which rollouts choose.
	Name      string
	Resources []Resource
	// Apply receives all objects, in the order of Resources and of their names, when they are first
	// known and whenever one has another generation, pin or text of guestConfigFrom. Calls are not concurrent.
	Apply func(objects []Object)
	// Secrets receives the texts of Secrets that objects name. It may be nil.
	Secrets *Secrets
	Logger  *slog.Logger
}

// Watch follows the objects.
type Watch struct {
	cfg       Config
	followers []*apiserver.Follower
	changed   chan struct{}

	mu    sync.Mutex
	kinds []*kind
	texts map[textKey]*text
}

// kind holds the objects of a resource.
type kind struct {
	Resource
	known   bool
	objects map[string]*entry
	room    room
	failure error
}

// room has the bytes of specs, by namespace, and those of all.
type room struct {
	of  map[string]int
	all int
}

// take adds bytes of a namespace, empty for none, and reports whether there is room. If there is not,
// nothing changes.
func (r *room) take(namespace string, bytes int) bool {
	if bytes > 0 && (r.all+bytes > maxBytes || namespace != "" && r.of[namespace]+bytes > namespaceBytes) {
		return false
	}
	r.add(namespace, bytes)
	return true
}

// add adds bytes, which may be negative, whether there is room or not.
func (r *room) add(namespace string, bytes int) {
	r.all += bytes
	if r.of[namespace] += bytes; r.of[namespace] == 0 {
		delete(r.of, namespace)
	}
}

// entry is an object. serving is the object that was applied last, which differs from newest while
// that waits for its pin, until the time late. wait is the time that it waits then.
type entry struct {
	newest, serving Object
	late            time.Time
	wait            time.Duration
}

// New returns a Watch. It sends no request.
func New(cfg Config) *Watch {
	w := &Watch{cfg: cfg, changed: make(chan struct{}, 1)}
	for _, r := range cfg.Resources {
		k := &kind{Resource: r, objects: map[string]*entry{}, room: room{of: map[string]int{}}}
		w.kinds = append(w.kinds, k)
		w.followers = append(w.followers, &apiserver.Follower{
			Client: cfg.Client, Path: groupVersion + "/" + r.Plural, Keep: keep,
			Set: func(_ context.Context, objects []json.RawMessage) error { return w.set(k, objects) },
			Change: func(_ context.Context, object json.RawMessage, deleted bool) error {
				return w.change(k, object, deleted)
			},
			Failed: func(err error) { w.failed(k, err) },
		})
	}
	return w
}

// Run follows the objects until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	for _, f := range w.followers {
		all.Go(func() { _ = f.Run(ctx) }) // The error is that of ctx.
	}
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	// armed is set from the first change that is not applied: later ones do not put it off, however
	// often somebody changes an object.
	armed, pause := false, settle
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
			if !armed {
				armed = true
				timer.Reset(pause)
			}
		case <-timer.C:
			armed = false
			begun := time.Now()
			objects, next, ok := w.snapshot(begun)
			w.begin(ctx, all.Go)
			if ok {
				w.cfg.Apply(objects)
			}
			pause = min(max(settle, applyShare*time.Since(begun)), maxSettle)
			if next > 0 {
				timer.Reset(next)
			}
		}
	}
}

// StaleMetric and StaleHelp are the name and the description of the gauge of [Watch.Silent].
const (
	StaleMetric = "kubewasm_cluster_objects_stale_seconds"
	StaleHelp   = "Time since the last answer of the API server about the objects that declare plugins, whose last state stays in use; 0 while they are watched."
)

// Silent returns the time for which the API server has not reported on some of the objects, 0 while
// it does.
func (w *Watch) Silent() (silent time.Duration) {
	for _, f := range w.followers {
		silent = max(silent, f.Silent())
	}
	return silent
}

// Err returns the reason that not all objects are known, nil once they are.
func (w *Watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for _, k := range w.kinds {
		if !k.known {
			errs = append(errs, fmt.Errorf("%s: %w", k.Plural, cmp.Or(k.failure, errUnknown)))
		}
	}
	return errors.Join(errs...)
}

var errUnknown = errors.New("they are being listed")

// wire is an object of the API server.
type wire struct {
	Metadata struct {
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		UID        string `json:"uid"`
		Generation int64  `json:"generation"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec,omitempty"`
	Status struct {
		Pin struct {
			Generation int64  `json:"generation"`
			Reference  string `json:"reference"`
		} `json:"pin"`
		Rollout    *rollout    `json:"rollout,omitempty"`
		Conditions []condition `json:"conditions,omitempty"`
	} `json:"status"`
}

type condition struct {
	Type       string `json:"type"`
	Reason     string `json:"reason"`
	Generation int64  `json:"observedGeneration"`
}

// NotLoadable is the reason of the condition Resolved of a generation whose module nobody can load, as
// the controller has found out.
const NotLoadable = "NotLoadable"

// wait returns the longest time for which a new generation waits for its pin.
func (o *wire) wait() time.Duration {
	if slices.Contains(o.Status.Conditions, condition{"Resolved", NotLoadable, o.Metadata.Generation}) {
		return refusedWait
	}
	return pinWait
}

// keep returns the function that reduces the objects of a list to the members of wire. Of those for
// which there is no room, no spec is kept, and of those that are too many nothing.
func keep() func(json.RawMessage) json.RawMessage {
	left, n := room{of: map[string]int{}}, map[string]int{}
	return func(raw json.RawMessage) json.RawMessage {
		var o wire
		if json.Unmarshal(raw, &o) != nil {
			return nil
		}
		if n[o.Metadata.Namespace]++; o.Metadata.Namespace != "" && n[o.Metadata.Namespace] > maxListed {
			return nil
		}
		if _, _, by := controls(o.Spec); !by {
			o.Status.Rollout = nil
		}
		if !left.take(o.Metadata.Namespace, len(o.Spec)+o.Status.Rollout.size()) {
			o.Spec, o.Status.Rollout = nil, nil
		}
		text, err := json.Marshal(&o)
		if err != nil {
			return nil // There is no error of these types.
		}
		return text
	}
}

// put adds an object, and reports whether anything has changed. mu must be held.
func (w *Watch) put(k *kind, raw json.RawMessage, now time.Time) (bool, error) {
	var o wire
	if err := json.Unmarshal(raw, &o); err != nil {
		return false, fmt.Errorf("read an object: %w", err)
	}
	newest := Object{Kind: k.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID, Generation: o.Metadata.Generation}
	key := newest.Plugin()
	e := k.objects[key]
	same := e != nil && e.newest.UID == newest.UID
	spec, enabled, controlled := controls(o.Spec)
	pin := o.Status.Pin
	if controlled {
		var ok bool
		var before *Object
		if same {
			before = &e.newest
		}
		if newest, ok = w.choose(newest, before, enabled, o.Status.Rollout); !ok && same {
			return false, nil // The controller is about to choose.
		}
	} else {
		newest.Spec = slices.Clone(spec)
		if pin.Generation == newest.Generation && pins(pin.Reference, module(spec)) {
			newest.Pinned = pin.Reference
		}
		if same && e.newest.Revision == 0 && e.newest.Generation == newest.Generation && e.newest.Spec != nil {
			newest.Spec = e.newest.Spec
		}
	}
	if len(newest.Spec) == 0 {
		newest.Spec = nil
	}
	var left error
	if newest.Spec == nil || !k.room.take(newest.Namespace, newest.size()-e.size()) {
		k.room.add(newest.Namespace, -e.size())
		if newest.Spec, newest.Else, newest.NodeSelectors = nil, nil, nil; !newest.Held {
			left = fmt.Errorf("%s: %w", key, ErrTooLarge)
		}
	}
	switch {
	case e == nil:
		k.objects[key] = &entry{newest: newest, serving: newest}
		return true, left
	case e.newest.Same(&newest):
		if e.wait == 0 || e.wait == o.wait() {
			return false, nil
		}
		e.wait = o.wait()
		e.late = now.Add(e.wait)
	case same && !controlled && newest.Pinned == "" && pin.Reference != "" && module(newest.Spec) != "":
		// The controller is about to resolve the module.
		if e.wait != o.wait() {
			e.wait = o.wait()
			e.late = now.Add(e.wait)
		}
		e.newest = newest
	default:
		*e = entry{newest: newest, serving: newest}
	}
	return true, left
}

func (e *entry) size() int {
	if e == nil {
		return 0
	}
	return e.newest.size()
}

// module returns the artifact of a spec, empty if its module is no artifact.
func module(spec json.RawMessage) string {
	var s struct {
		Module struct {
			OCI string `json:"oci"`
		} `json:"module"`
	}
	if json.Unmarshal(spec, &s) != nil {
		return "" // Its mistakes are found when it is applied.
	}
	return s.Module.OCI
}

// set receives all objects of a resource.
func (w *Watch) set(k *kind, objects []json.RawMessage) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	before := k.objects
	k.objects = map[string]*entry{}
	k.room = room{of: map[string]int{}}
	changed := !k.known || len(before) != len(objects)
	for _, raw := range objects {
		var o wire
		if json.Unmarshal(raw, &o) == nil {
			key := (&Object{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}).Plugin()
			if e := before[key]; e != nil {
				k.objects[key] = e
				k.room.add(o.Metadata.Namespace, e.size())
			}
		}
	}
	var errs []error
	for _, raw := range objects {
		is, err := w.put(k, raw, now)
		changed, errs = changed || is, append(errs, err)
	}
	k.known, k.failure = true, nil
	if err := errors.Join(errs...); err != nil {
		w.log(slog.LevelError, "an object is not applied", err)
	}
	if changed {
		w.tell()
	}
	return nil
}

// change receives an object of a resource that has changed.
func (w *Watch) change(k *kind, raw json.RawMessage, deleted bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.failure = nil
	var changed bool
	var err error
	if deleted {
		var o wire
		if err = json.Unmarshal(raw, &o); err == nil {
			key := (&Object{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}).Plugin()
			k.room.add(o.Metadata.Namespace, -k.objects[key].size())
			delete(k.objects, key)
			changed = true
		}
	} else {
		changed, err = w.put(k, raw, time.Now())
	}
	if changed {
		w.tell()
	}
	return err
}

func (w *Watch) failed(k *kind, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	again := k.failure != nil && k.failure.Error() == err.Error()
	k.failure = err
	if !again {
		w.log(slog.LevelWarn, "the API server does not send the objects", fmt.Errorf("%s: %w", k.Plural, err))
	}
}

func (w *Watch) log(level slog.Level, message string, err error) {
	if w.cfg.Logger != nil {
		w.cfg.Logger.Log(context.Background(), level, message, "err", err)
	}
}

func (w *Watch) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// snapshot returns the objects to apply, in their order, and the time until one no longer waits for
// its pin, 0 if none does. It reports false while a resource or a text is unknown.
func (w *Watch) snapshot(now time.Time) (objects []Object, next time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	objects = []Object{} // Not nil, as before they are known.
	for _, k := range w.kinds {
		if !k.known {
			return nil, 0, false
		}
		from := len(objects)
		for _, e := range k.objects {
			if wait := e.late.Sub(now); !e.late.IsZero() && wait > 0 {
				if next == 0 || wait < next {
					next = wait
				}
			} else if !e.late.IsZero() {
				e.serving, e.late, e.wait = e.newest, time.Time{}, 0
			}
			objects = append(objects, e.serving)
		}
		slices.SortFunc(objects[from:], func(a, b Object) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	if wait := w.resolve(objects, now); wait > 0 {
		return nil, wait, false
	}
	return objects, next, true
}
