// Package clustercache lets policies look objects up in informers: an
// admission.Cluster whose answers cost no call of the API server.
//
// There is an informer for each resource that a policy may look up: of the objects of a
// plugin's configuration from when it is loaded, and of the kinds of a Kubewarden policy
// from its first question. It ends with the last policy that may look the resource up. Which
// those are is for the configuration to say, so their number is bounded by it. An object is kept as its JSON, encoded once for each version,
// without managedFields.
//
// The server needs the verbs list and watch for each resource, in all namespaces or, if
// the configuration names namespaces, in those.
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
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// Cluster implements admission.Cluster. It is safe for use by several goroutines.
type Cluster struct {
	ctx     context.Context
	client  dynamic.Interface
	mapper  Mapper
	now     func() time.Time
	reviews authorization.SubjectAccessReviewInterface

	mu       sync.Mutex
	mappings map[schema.GroupVersionKind]*mapping
	kinds    map[schema.GroupVersionKind]*kind
	// holds is how many hold a kind.
	holds map[schema.GroupVersionKind]int
	kept  map[scope]*resource
}

// scope is what an informer watches: a resource in a namespace, or in all if that is
// empty.
type scope struct {
	resource  schema.GroupVersionResource
	namespace string
}

// kind is a resource as Kubewarden policies know it.
type kind struct {
	*resource
	scope      scope
	namespaced bool
}

// Mapper finds the resource of a kind. A [meta.RESTMapper] is one; one that knows only what
// the cluster had once keeps a Cluster from seeing kinds that come later.
type Mapper interface {
	RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error)
}

// New returns a Cluster whose informers run until ctx ends. reviews answer
// can_i; nil answers none.
func New(ctx context.Context, client dynamic.Interface, mapper Mapper, reviews authorization.SubjectAccessReviewInterface) *Cluster {
	return &Cluster{ctx: ctx, client: client, mapper: mapper, now: time.Now, reviews: reviews, mappings: map[schema.GroupVersionKind]*mapping{}, kinds: map[schema.GroupVersionKind]*kind{}, holds: map[schema.GroupVersionKind]int{}, kept: map[scope]*resource{}}
}

// mapping is the resource of a kind, or on the way to be: the API server may take long to
// say it, and nothing but the callers that need it waits.
type mapping struct {
	done chan struct{}
	*meta.RESTMapping
	err error
	// at is when the API server has said so.
	at time.Time
	// again is set while the API server is asked once more.
	again bool
}

const (
	// mappingTTL is the time after which a kind is looked for again: it may have been made
	// again with another scope.
	mappingTTL = 30 * time.Second
	// retryAfter is the time after which a kind is looked for again that was not found, or
	// whose objects cannot be listed any more.
	retryAfter = time.Second
)

// mapping returns the resource of a kind. One that is known is looked for again beside the
// calls that need it.
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
		if k := c.kinds[gvk]; k != nil && k.gone() != nil {
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
			return nil, refused("look for the resource of "+gvk.Kind, m.err)
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

// look asks for the resource of a kind that is not known.
func (c *Cluster) look(gvk schema.GroupVersionKind, m *mapping) {
	found, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	c.mu.Lock()
	defer c.mu.Unlock()
	m.RESTMapping, m.err, m.at = found, err, c.now()
	close(m.done)
}

// lookAgain asks for the resource of a kind that was known. A kind that is another one now,
// or none, begins anew. As long as the API server does not answer, nothing changes.
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
		c.leave(k.scope, k.resource)
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

// NewForConfig returns a Cluster of the API server that config is for. What policies may see is
// for RBAC to say, and for their contextAwareResources.
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
	return New(ctx, objects, discovered{client}, reviews.SubjectAccessReviews()), nil
}

// discovered finds resources by asking the API server about the group and version of a kind,
// each time: groups that do not answer are in the way of none but their own kinds.
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

// object is what is kept of an object.
type object struct {
	metav1.PartialObjectMetadata
	kept admission.Object
}

// keep makes an object what is kept of it.
func keep(from any) (any, error) {
	u, ok := from.(*unstructured.Unstructured)
	if !ok {
		return from, nil
	}
	u.SetManagedFields(nil)
	raw, err := json.Marshal(u)
	if err != nil {
		return nil, err
	}
	o := &object{}
	o.Name, o.Namespace, o.UID, o.ResourceVersion, o.Labels = u.GetName(), u.GetNamespace(), u.GetUID(), u.GetResourceVersion(), u.GetLabels()
	o.kept = admission.Object{Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, JSON: raw}
	return o, nil
}

// syncPoll is how often an informer that has not synced yet is looked at.
const syncPoll = 10 * time.Millisecond

// of returns the informer of a kind after it has synced. One that may not list,
// or cannot, is an error at once: to wait would take all the time of the request.
func (c *Cluster) of(ctx context.Context, gvk schema.GroupVersionKind) (*kind, error) {
	k, err := c.start(ctx, gvk)
	if err != nil {
		return nil, err
	}
	if err := c.wait(ctx, k.resource, k.informer.HasSynced); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	if err := k.gone(); err != nil {
		return nil, fmt.Errorf("list %s: %w", gvk.Kind, err)
	}
	return k, nil
}

var errNotFilled = errors.New("the cache is not filled yet")

// wait waits until a resource is synced, and no longer than until its list has failed.
func (c *Cluster) wait(ctx context.Context, r *resource, synced func() bool) error {
	for !synced() {
		if f := r.failure.Load(); f != nil {
			return refused("list", f.err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNotFilled, ctx.Err())
		case <-c.ctx.Done():
			return c.ctx.Err()
		case <-time.After(syncPoll):
		}
	}
	return nil
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
		mapping = m.RESTMapping // It may be another one by now.
	}
	if err := c.ctx.Err(); err != nil {
		return nil, err
	}
	s := scope{resource: mapping.Resource}
	r, err := c.use(s)
	if err != nil {
		return nil, err
	}
	k := &kind{r, s, mapping.Scope.Name() == meta.RESTScopeNameNamespace}
	c.kinds[gvk] = k
	return k, nil
}

// Hold keeps what Get and List of a kind need once they have begun, see [admission.Cluster].
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
			c.leave(k.scope, k.resource)
		}
	})
}

// Get returns an object in JSON, nil if there is none. A fresh one is asked of the API server,
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
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	found, exists, err := k.informer.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return nil, err
	}
	return found.(*object).kept.JSON, nil
}

// fetch returns an object as the API server has it.
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
		return nil, refused("get "+gvk.Kind, err)
	}
	u.SetManagedFields(nil)
	return json.Marshal(u)
}

// List returns the objects that the selectors choose, in JSON. Of fields, those of
// metadata can choose: metadata.name and metadata.namespace.
func (c *Cluster) List(ctx context.Context, gvk schema.GroupVersionKind, namespace string, l labels.Selector, f fields.Selector) ([][]byte, error) {
	for _, r := range f.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return nil, fmt.Errorf("list %s: the cache does not choose by the field %s", gvk.Kind, r.Field)
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
	err = cache.ListAllByNamespace(k.informer.GetIndexer(), namespace, l, func(item any) {
		o := item.(*object)
		if f.Matches(fields.Set{"metadata.name": o.Name, "metadata.namespace": o.Namespace}) {
			list = append(list, o.kept.JSON)
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
		return authorizationv1.SubjectAccessReviewStatus{}, refused("review access", err)
	}
	return review.Status, nil
}

// refused returns an error of the API server, whose text names its address or who asks, with words
// for policies and users.
func refused(what string, err error) error {
	words := publicerr.Network(err)
	switch {
	case meta.IsNoMatchError(err):
		words = "the cluster has no such kind"
	case apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err):
		words = "the server may not do that: its RBAC does not have it"
	case apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err):
		words = "the API server is busy"
	case apierrors.ReasonForError(err) != metav1.StatusReasonUnknown:
		words = "the API server answered " + string(apierrors.ReasonForError(err))
	case words == "":
		words = "the API server could not be asked"
	}
	return publicerr.Wrap(what+": "+words, fmt.Errorf("%s: %w", what, err))
}
