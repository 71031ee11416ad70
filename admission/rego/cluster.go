package rego

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/host"
)

// clusterObjects holds the objects of the kinds that a policy in Rego finds in its data. It keeps
// nothing before its first use.
type clusterObjects struct {
	cluster admission.Cluster

	mu     sync.Mutex
	kinds  []keptKind
	closed bool
}

// keptKind is a kind of objects, in one namespace or, if namespace is empty, in all.
type keptKind struct {
	apiVersion, kind, namespace string
	// resource and objects are set once the cluster has found the kind.
	resource apischema.GroupVersionResource
	objects  host.Objects
}

// newInventory returns the objects of some kinds, nil if there are none.
func newInventory(cluster admission.Cluster, kinds []dialect.Kind) *clusterObjects {
	if cluster == nil || len(kinds) == 0 {
		return nil
	}
	v := &clusterObjects{cluster: cluster}
	for _, k := range kinds {
		namespaces := k.Namespaces
		if namespaces == nil {
			namespaces = []string{""}
		}
		for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
			v.kinds = append(v.kinds, keptKind{apiVersion: k.APIVersion, kind: k.Kind, namespace: namespace})
		}
	}
	return v
}

// keep begins to keep the objects of all kinds, and returns them. Other callers do not wait while
// the cluster looks for a kind.
func (v *clusterObjects) keep(ctx context.Context) ([]keptKind, error) {
	for {
		v.mu.Lock()
		i := slices.IndexFunc(v.kinds, func(k keptKind) bool { return k.objects == nil })
		closed := v.closed
		v.mu.Unlock()
		switch {
		case closed:
			return nil, errors.New("the plugin is closed")
		case i < 0:
			return v.kinds, nil // They no longer change.
		}
		k := &v.kinds[i]
		resource, err := v.cluster.Resource(ctx, apischema.FromAPIVersionAndKind(k.apiVersion, k.kind))
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", k.apiVersion, k.kind, err)
		}
		v.mu.Lock()
		if k.objects == nil && !v.closed {
			k.resource, k.objects = resource, v.cluster.Keep(resource, k.namespace, host.ObjectQuery{})
		}
		v.mu.Unlock()
	}
}

// Snapshot implements source.
func (v *clusterObjects) Snapshot(ctx context.Context) ([]group, error) {
	return dialect.Ask(ctx, "inventory", func() ([]group, error) { return v.snapshot(ctx) })
}

func (v *clusterObjects) snapshot(ctx context.Context) ([]group, error) {
	kinds, err := v.keep(ctx)
	if err != nil {
		return nil, err
	}
	groups := make([]group, len(kinds))
	for i := range kinds {
		k := &kinds[i]
		list, err := k.objects.Snapshot()
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", k.apiVersion, k.kind, err)
		}
		groups[i] = group{APIVersion: k.apiVersion, Kind: k.kind, Resource: k.resource.Resource, Objects: snapshot(list)}
	}
	return groups, nil
}

// objectsWait bounds the time for which Load waits for the objects, so that the first requests do not
// fail. Load does not wait for objects that cannot be read.
const objectsWait = 10 * time.Second

// wait waits for the objects while the plugin is loaded.
func (v *clusterObjects) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, objectsWait)
	defer cancel()
	kinds, err := v.keep(ctx)
	if err != nil {
		return // Each request reports the error.
	}
	for _, k := range kinds {
		if ctx.Err() != nil {
			return
		}
		_ = k.objects.Wait(ctx) // As above.
	}
}

func (v *clusterObjects) close() {
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	for _, k := range v.kinds {
		if k.objects != nil {
			k.objects.Close()
		}
	}
}

// snapshot implements objects.
type snapshot []*host.Object

func (s snapshot) Len() int { return len(s) }

func (s snapshot) At(i int) (ref any, namespace, name string, object []byte) {
	o := s[i]
	return o, o.Namespace, o.Name, o.JSON
}

// Same reports whether the lists are identical: a Cluster never changes a list that it has
// returned.
func (s snapshot) Same(other objects) bool {
	o, ok := other.(snapshot)
	return ok && len(s) == len(o) && (len(s) == 0 || &s[0] == &o[0])
}
