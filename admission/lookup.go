package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/internal/policy"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Objects are the objects of a resource that a [Cluster] keeps, in one namespace or in
// all. It is safe for use by several goroutines.
type Objects interface {
	// Snapshot returns the current objects, sorted by namespace and then by name, or an error with
	// the reason that they are unknown. It does not wait. Neither the Objects nor the caller may
	// change the returned slice and its objects.
	Snapshot() ([]*Object, error)
	// Wait returns nil when Snapshot would have no error. It returns an error for the first reason
	// that the objects cannot be read, or when ctx ends.
	Wait(ctx context.Context) error
	// Close ends the use of the objects.
	Close()
}

// Object is an object that guests look up.
type Object struct {
	Namespace, Name string
	Labels          map[string]string
	// JSON is the whole object, without managedFields.
	JSON []byte
}

// GetNamespace returns o.Namespace.
func (o *Object) GetNamespace() string { return o.Namespace }

// GetName returns o.Name.
func (o *Object) GetName() string { return o.Name }

// GetLabels returns o.Labels.
func (o *Object) GetLabels() map[string]string { return o.Labels }

// kept holds the objects that a plugin may look up.
type kept []keptObjects

type keptObjects struct {
	resource  string
	namespace string // Empty for all.
	objects   Objects
}

// keep makes the cluster keep the granted objects.
func keep(cluster Cluster, grants []host.ObjectGrant) (k kept) {
	for _, g := range grants {
		gvr, err := lookup.ParseResource(g.Resource)
		if err != nil {
			continue // Check has reported it.
		}
		namespaces := g.Namespaces
		if namespaces == nil {
			namespaces = []string{""}
		}
		for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
			k = append(k, keptObjects{g.Resource, namespace, cluster.Keep(gvr, namespace)})
		}
	}
	return k
}

// objectsWait bounds the time for which Load waits for the objects that a plugin may look up, so
// that its first requests do not fail. Load does not wait for objects that cannot be read.
const objectsWait = 10 * time.Second

func (k kept) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, objectsWait)
	defer cancel()
	for _, o := range k {
		if ctx.Err() != nil {
			return
		}
		// The error is reported by look-ups.
		_ = o.objects.Wait(ctx)
	}
}

func (k kept) close() {
	for _, o := range k {
		o.objects.Close()
	}
}

// of returns the index in k of the objects in a namespace, or in all namespaces if it is empty.
func (k kept) of(resource, namespace string) (int, error) {
	named := false
	for i := range k {
		if k[i].resource != resource {
			continue
		}
		if named = true; k[i].namespace == "" || k[i].namespace == namespace {
			return i, nil
		}
	}
	switch {
	case !named:
		return 0, fmt.Errorf("the plugin's configuration does not name the objects %.200q", resource)
	case namespace == "":
		return 0, fmt.Errorf("the plugin's configuration names the objects %q of some namespaces, not of all", resource)
	}
	return 0, fmt.Errorf("the plugin's configuration does not name the objects %q of the namespace %.80q", resource, namespace)
}

// looked holds the objects that a call has looked up. Its answers stay the same until the call
// ends.
type looked struct {
	// snapshots holds the snapshots of the plugin's kept objects that the call has asked about.
	snapshots [][]*Object
	last      lookup.Last
}

// lookups answers look-ups of guests. No answer outlives the call: the same request is decided
// again, by the objects at that time.
type lookups struct{ *Plugin }

var errNoRequest = errors.New("objects are looked up in validate and mutate")

func lookedOf(inst *host.Instance) *looked {
	c := policy.CallOf(inst)
	l, ok := c.Looked.(*looked)
	if !ok {
		l = new(looked)
		c.Looked = l
	}
	return l
}

func (p lookups) Last(inst *host.Instance) *lookup.Last { return &lookedOf(inst).last }

func (p lookups) Encode(o *Object) ([]byte, error) { return o.JSON, nil }

func (p lookups) List(inst *host.Instance, resource, namespace string) ([]*Object, error) {
	if c := policy.CallOf(inst); c.Request == nil || c.Desired != "" {
		return nil, errNoRequest
	}
	i, err := p.kept.of(resource, namespace)
	if err != nil {
		return nil, err
	}
	l := lookedOf(inst)
	if l.snapshots == nil {
		l.snapshots = make([][]*Object, len(p.kept))
	}
	if l.snapshots[i] == nil {
		snapshot, err := dialect.Ask(inst.Context(), "objects "+resource+" "+p.kept[i].namespace, p.kept[i].objects.Snapshot)
		if err != nil {
			return nil, fmt.Errorf("objects %q: %w", resource, err)
		}
		if snapshot == nil {
			snapshot = []*Object{}
		}
		l.snapshots[i] = snapshot
	}
	return l.snapshots[i], nil
}

func (p lookups) Get(inst *host.Instance, resource, namespace, name string) ([]byte, error) {
	list, err := p.List(inst, resource, namespace)
	if err != nil {
		return nil, err
	}
	if i, ok := lookup.Find(list, namespace, name); ok {
		return list[i].JSON, nil
	}
	return nil, nil
}
