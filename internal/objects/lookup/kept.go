package lookup

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/answers"
)

// Cluster keeps objects for look-ups.
type Cluster interface {
	// Keep begins to keep the objects of a resource, of all namespaces if namespace is empty, until
	// the Objects are closed. query is their source if they are the values of a query.
	Keep(resource schema.GroupVersionResource, namespace string, query host.ObjectQuery) host.Objects
}

// Kept holds the objects that a plugin may look up.
type Kept []keptObjects

type keptObjects struct {
	resource  string
	namespace string // Empty for all.
	objects   host.Objects
}

// Keep makes the cluster keep the granted objects.
func Keep(cluster Cluster, grants []host.ObjectGrant) (k Kept) {
	for _, g := range grants {
		gvr, err := ParseResource(g.Resource)
		if err != nil {
			continue // CheckGrants has reported it.
		}
		var query host.ObjectQuery
		if g.Query != nil {
			query = *g.Query
		}
		namespaces := g.Namespaces
		if namespaces == nil {
			namespaces = []string{""}
		}
		for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
			k = append(k, keptObjects{g.Resource, namespace, cluster.Keep(gvr, namespace, query)})
		}
	}
	return k
}

// keptWait bounds the time for which the load of a plugin waits for the objects that it may look up,
// so that its first calls do not fail. It does not wait for objects that cannot be read.
const keptWait = 10 * time.Second

// Wait waits some seconds for the objects.
func (k Kept) Wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, keptWait)
	defer cancel()
	for _, o := range k {
		if ctx.Err() != nil {
			return
		}
		// The error is reported by look-ups.
		_ = o.objects.Wait(ctx)
	}
}

// Close ends the use of the objects.
func (k Kept) Close() {
	for _, o := range k {
		o.objects.Close()
	}
}

// of returns the index in k of the objects in a namespace, or in all namespaces if it is empty.
func (k Kept) of(resource, namespace string) (int, error) {
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

// List returns the objects in a namespace, or in all namespaces if it is empty, in a call that has
// looked up l. The context of the call may have answers for a shadow.
func (k Kept) List(ctx context.Context, l *Looked, resource, namespace string) ([]*host.Object, error) {
	i, err := k.of(resource, namespace)
	if err != nil {
		return nil, err
	}
	if l.snapshots == nil {
		l.snapshots = make([][]*host.Object, len(k))
	}
	if l.snapshots[i] == nil {
		snapshot, err := answers.Ask(ctx, "objects "+resource+" "+k[i].namespace, k[i].objects.Snapshot)
		if err != nil {
			return nil, fmt.Errorf("objects %q: %w", resource, err)
		}
		if snapshot == nil {
			snapshot = []*host.Object{}
		}
		l.snapshots[i] = snapshot
	}
	return l.snapshots[i], nil
}

// Looked holds the objects that a call has looked up. Its answers stay the same until the call
// ends: the zero value begins a call.
type Looked struct {
	// snapshots holds the snapshots of the plugin's kept objects that the call has asked about.
	snapshots [][]*host.Object
	last      Last
}

// Snapshots is a [Source] of kept objects. Its guests get them in JSON.
type Snapshots struct {
	Kept *Kept
	// Looked returns that of the running call, and the reason why it may look nothing up.
	Looked func(inst *host.Instance) (*Looked, error)
}

// Last implements [Source].
func (s Snapshots) Last(inst *host.Instance) *Last {
	l, _ := s.Looked(inst)
	return &l.last
}

// Encode implements [Source].
func (Snapshots) Encode(o *host.Object) ([]byte, error) { return o.JSON, nil }

// List implements [Source].
func (s Snapshots) List(inst *host.Instance, resource, namespace string) ([]*host.Object, error) {
	l, err := s.Looked(inst)
	if err != nil {
		return nil, err
	}
	return s.Kept.List(inst.Context(), l, resource, namespace)
}

// Get implements [Source].
func (s Snapshots) Get(inst *host.Instance, resource, namespace, name string) ([]byte, error) {
	list, err := s.List(inst, resource, namespace)
	return found(list, namespace, name), err
}

func found(list []*host.Object, namespace, name string) []byte {
	if i, ok := Find(list, namespace, name); ok {
		return list[i].JSON
	}
	return nil
}

// Native answers the look-ups of plugins that run in the process of a test. It returns the objects of
// a resource in a namespace, or in all if it is empty, and may return those of others, sorted. It
// panics where the host would end the call.
type Native func(resource, namespace string) []*host.Object

// GetObject implements nativehost.Lookups.
func (n Native) GetObject(question string) []byte {
	parts := strings.Split(question, "\x00")
	return found(n(parts[0], parts[1]), parts[1], parts[2])
}

// ListObjects implements nativehost.Lookups.
func (n Native) ListObjects(question string) []byte {
	free := func(int64) {}
	q, err := ParseList(question, free)
	var b []byte
	if err == nil {
		b, err = Append(nil, q, n(q.Resource, q.Namespace), Snapshots{}.Encode, free, math.MaxInt32)
	}
	if err != nil {
		panic(err)
	}
	return b
}
