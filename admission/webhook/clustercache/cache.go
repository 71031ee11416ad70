// Package clustercache lets policies and plugins of services look objects up in informers: an
// admission.Cluster, and the Cluster of a service.Config, that answers without calls to the API server.
//
// There is an informer for each resource that a policy may look up. For the objects of a plugin's
// configuration, it starts when the plugin is loaded; for the kinds of a Kubewarden policy, with
// its first question. It ends with the last policy that may look the resource up. The configuration
// names the resources, so it bounds the number of informers. An object is kept as its JSON, encoded
// once for each version, without managedFields.
//
// The server needs the verbs list and watch for each resource, in all namespaces or, if the
// configuration names namespaces, in these namespaces.
package clustercache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/informers"
)

// Cluster implements admission.Cluster. It is safe for use by several goroutines.
type Cluster struct {
	ctx     context.Context
	client  dynamic.Interface
	mapper  Mapper
	now     func() time.Time
	objects *informers.Cache[*host.Object]
	reviews authorization.SubjectAccessReviewInterface

	mu       sync.Mutex
	mappings map[schema.GroupVersionKind]*mapping
	kinds    map[schema.GroupVersionKind]*kind
	// holds counts the holds on each kind.
	holds map[schema.GroupVersionKind]int
}

// resource is an informer.
type resource = informers.Resource[*host.Object]

// kind is a resource with the kind by which Kubewarden policies name it.
type kind struct {
	*resource
	namespaced bool
}

// Mapper finds the resource of a kind. A [meta.RESTMapper] implements it. With a mapper that never
// refreshes, a Cluster does not see kinds that are created later.
type Mapper interface {
	RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error)
}

// New returns a Cluster whose informers run until ctx ends. reviews answers can_i; nil answers
// nothing. It has no values of queries.
func New(ctx context.Context, client dynamic.Interface, mapper Mapper, reviews authorization.SubjectAccessReviewInterface) *Cluster {
	return newCluster(ctx, client, mapper, reviews, nil)
}

func newCluster(ctx context.Context, client dynamic.Interface, mapper Mapper, reviews authorization.SubjectAccessReviewInterface, get informers.Getter) *Cluster {
	c := &Cluster{ctx: ctx, client: client, mapper: mapper, now: time.Now, reviews: reviews, mappings: map[schema.GroupVersionKind]*mapping{}, kinds: map[schema.GroupVersionKind]*kind{}, holds: map[schema.GroupVersionKind]int{}}
	c.objects = informers.New(ctx, informers.Config[*host.Object]{Client: client, Keep: keep, Get: get, Now: func() time.Time { return c.now() }})
	return c
}

// mapping is the resource of a kind, which may still be unknown. The API server may take long to
// answer, and only the callers that need the resource wait.
type mapping struct {
	done chan struct{}
	*meta.RESTMapping
	err error
	// at is the time of the API server's answer.
	at time.Time
	// again is set during another request to the API server.
	again bool
}

const (
	// mappingTTL is the time after which a kind is looked up again: it may have been created again
	// with another scope.
	mappingTTL = 30 * time.Second
	// retryAfter is the time after which a kind is looked up again if it was not found, or if its
	// objects can no longer be listed.
	retryAfter = time.Second
)

// mapping returns the resource of a kind. A known resource is refreshed in the background.
func (c *Cluster) mapping(ctx context.Context, gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	c.mu.Lock()
	m := c.mappings[gvk]
	switch {
	case m == nil || m.isDone() && m.err != nil && c.now().Sub(m.at) >= retryAfter:
		m = &mapping{done: make(chan struct{})}
		c.mappings[gvk] = m
		go c.look(gvk, m)
	case m.isDone() && m.err == nil && !m.again:
		ttl := mappingTTL
		if k := c.kinds[gvk]; k != nil && k.Gone() != nil {
			ttl = retryAfter
		}
		if c.now().Sub(m.at) >= ttl {
			m.again = true
			go c.lookAgain(gvk, m)
		}
	}
	c.mu.Unlock()
	select {
	case <-m.done:
		if m.err != nil {
			return nil, informers.Refused("look for the resource of "+gvk.Kind, m.err)
		}
		return m.RESTMapping, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("look for the resource of %s: %w", gvk.Kind, ctx.Err())
	}
}

func (m *mapping) isDone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// look asks for the resource of an unknown kind.
func (c *Cluster) look(gvk schema.GroupVersionKind, m *mapping) {
	found, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	c.mu.Lock()
	defer c.mu.Unlock()
	m.RESTMapping, m.err, m.at = found, err, c.now()
	close(m.done)
}

// lookAgain asks for the resource of a known kind. If the kind has changed or is gone, it begins
// anew. As long as the API server does not answer, nothing changes.
func (c *Cluster) lookAgain(gvk schema.GroupVersionKind, known *mapping) {
	found, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	c.mu.Lock()
	defer c.mu.Unlock()
	known.again = false
	switch {
	case err != nil && !meta.IsNoMatchError(err):
		known.at = c.now().Add(retryAfter - mappingTTL)
		return
	case err == nil && found.Resource == known.Resource && found.Scope.Name() == known.Scope.Name():
		known.at = c.now()
		return
	}
	m := &mapping{done: make(chan struct{}), RESTMapping: found, err: err, at: c.now()}
	close(m.done)
	c.mappings[gvk] = m
	if k := c.kinds[gvk]; k != nil {
		delete(c.kinds, gvk)
		k.Leave()
	}
}

// Resource returns the resource of a kind.
func (c *Cluster) Resource(ctx context.Context, gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	m, err := c.mapping(ctx, gvk)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return m.Resource, nil
}

// NewForConfig returns a Cluster of the API server of config. RBAC and contextAwareResources limit
// the objects that policies may see.
func NewForConfig(ctx context.Context, config *rest.Config) (*Cluster, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	reviews, err := authorization.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	get, err := informers.GetterOf(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return newCluster(ctx, objects, discovered{client}, reviews.SubjectAccessReviews(), get), nil
}

// discovered finds resources by asking the API server each time about the group and version of a
// kind. So groups that do not answer affect only their own kinds.
type discovered struct {
	client discovery.ServerResourcesInterface
}

// RESTMapping implements Mapper.
func (d discovered) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	for _, version := range versions {
		gv := schema.GroupVersion{Group: kind.Group, Version: version}
		list, err := d.client.ServerResourcesForGroupVersion(gv.String())
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if r.Kind != kind.Kind || strings.Contains(r.Name, "/") {
				continue
			}
			scope := meta.RESTScopeRoot
			if r.Namespaced {
				scope = meta.RESTScopeNamespace
			}
			return &meta.RESTMapping{Resource: gv.WithResource(r.Name), GroupVersionKind: gv.WithKind(kind.Kind), Scope: scope}, nil
		}
	}
	return nil, &meta.NoKindMatchError{GroupKind: kind, SearchedVersions: versions}
}

// keep converts an object to the form that is kept.
func keep(u *unstructured.Unstructured, raw []byte) *host.Object {
	return &host.Object{Namespace: u.GetNamespace(), Name: u.GetName(), Labels: u.GetLabels(), JSON: raw}
}

// of returns the informer of a kind after it has synced. If the informer cannot list, or may not,
// the error comes at once, since waiting would take all the time of the request.
func (c *Cluster) of(ctx context.Context, gvk schema.GroupVersionKind) (*kind, error) {
	k, err := c.start(ctx, gvk)
	if err != nil {
		return nil, err
	}
	if err := k.Wait(ctx, k.HasSynced); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	if err := k.Gone(); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	return k, nil
}

func (c *Cluster) start(ctx context.Context, gvk schema.GroupVersionKind) (*kind, error) {
	mapping, err := c.mapping(ctx, gvk)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kinds[gvk]; ok {
		return k, nil
	}
	if m := c.mappings[gvk]; m.isDone() && m.err == nil {
		mapping = m.RESTMapping // It may have changed.
	}
	r, err := c.objects.Use(informers.Scope{Resource: mapping.Resource})
	if err != nil {
		return nil, err
	}
	k := &kind{r, mapping.Scope.Name() == meta.RESTScopeNameNamespace}
	c.kinds[gvk] = k
	return k, nil
}

// Hold keeps the caches that Get and List of a kind have started to use, see [admission.Cluster].
func (c *Cluster) Hold(gvk schema.GroupVersionKind) (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holds[gvk]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.holds[gvk]--; c.holds[gvk] > 0 {
			return
		}
		delete(c.holds, gvk)
		if k := c.kinds[gvk]; k != nil {
			delete(c.kinds, gvk)
			k.Leave()
		}
	})
}

// Get returns an object in JSON, nil if there is none. If fresh is set, it asks the API server,
// which needs the verb get.
func (c *Cluster) Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string, fresh bool) ([]byte, error) {
	if fresh {
		return c.fetch(ctx, gvk, namespace, name)
	}
	k, err := c.of(ctx, gvk)
	if err != nil {
		return nil, err
	}
	if k.namespaced != (namespace != "") {
		return nil, fmt.Errorf("get %s: namespace is %q", gvk.Kind, namespace)
	}
	found, exists, err := k.resource.Get(namespace, name)
	if err != nil || !exists {
		return nil, err
	}
	return found.JSON, nil
}

// fetch returns an object from the API server.
func (c *Cluster) fetch(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) ([]byte, error) {
	mapping, err := c.mapping(ctx, gvk)
	if err != nil {
		return nil, err
	}
	if (mapping.Scope.Name() == meta.RESTScopeNameNamespace) != (namespace != "") {
		return nil, fmt.Errorf("get %s: namespace is %q", gvk.Kind, namespace)
	}
	u, err := c.client.Resource(mapping.Resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, informers.Refused("get "+gvk.Kind, err)
	}
	u.SetManagedFields(nil)
	return json.Marshal(u)
}

// List returns the selected objects in JSON. Field selectors may use metadata.name and
// metadata.namespace.
func (c *Cluster) List(ctx context.Context, gvk schema.GroupVersionKind, namespace string, l labels.Selector, f fields.Selector) ([][]byte, error) {
	for _, r := range f.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return nil, fmt.Errorf("list %s: the cache does not select by the field %s", gvk.Kind, r.Field)
		}
	}
	k, err := c.of(ctx, gvk)
	if err != nil {
		return nil, err
	}
	if namespace != "" && !k.namespaced {
		return nil, fmt.Errorf("list %s: it has no namespaces", gvk.Kind)
	}
	var list [][]byte
	err = k.resource.List(namespace, l, func(o *host.Object) {
		if f.Matches(fields.Set{"metadata.name": o.Name, "metadata.namespace": o.Namespace}) {
			list = append(list, o.JSON)
		}
	})
	return list, err
}

// Review asks the API server.
func (c *Cluster) Review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	if c.reviews == nil {
		return authorizationv1.SubjectAccessReviewStatus{}, errors.New("the server cannot ask for access reviews")
	}
	review, err := c.reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, informers.Refused("review access", err)
	}
	return review.Status, nil
}
