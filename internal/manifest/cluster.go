package manifest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/json"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Cluster is an admission.Cluster of objects that do not change.
type Cluster struct {
	objects map[schema.GroupVersionResource][]*host.Object
}

var _ admission.Cluster = (*Cluster)(nil)

// resources are those of the Kubernetes API. They are a list, compared by TestResources,
// because the scheme that has them would make the tests of policies compile the client.
//
//go:embed resources.txt
var resources string

// NewCluster returns a cluster of objects, which have a name each.
func NewCluster(objects *Objects) (*Cluster, error) {
	c := &Cluster{map[schema.GroupVersionResource][]*host.Object{}}
	for name := range strings.FieldsSeq(resources) {
		r, err := lookup.ParseResource(name)
		if err != nil {
			return nil, err
		}
		c.objects[r] = nil
	}
	type key struct {
		schema.GroupVersionResource
		namespace, name string
	}
	there := make(map[key]bool, len(objects.All))
	for i := range objects.All {
		o := &objects.All[i]
		if o.Name == "" {
			return nil, fmt.Errorf("object %d: the %s has no metadata.name", i+1, o.Kind)
		}
		r := resourceOf(o.GroupVersionKind())
		k := key{r, o.Namespace, o.Name}
		if there[k] {
			return nil, fmt.Errorf("object %d: there are two of the %s %s/%s", i+1, o.Kind, o.Namespace, o.Name)
		}
		there[k] = true
		c.objects[r] = append(c.objects[r], &host.Object{Namespace: o.Namespace, Name: o.Name, Labels: labelsOf(o.JSON), JSON: o.JSON})
	}
	for _, list := range c.objects {
		slices.SortFunc(list, lookup.Compare[*host.Object])
	}
	return c, nil
}

// labelsOf returns the labels of an object, none if one of them is no text.
func labelsOf(raw []byte) map[string]string {
	var labels map[string]string
	for m := json.Object(raw); m.Next(); {
		if m.Key() != "metadata" {
			continue
		}
		for m := json.Object(m.Value()); m.Next(); {
			if m.Key() != "labels" {
				continue
			}
			for l := json.Object(m.Value()); l.Next(); {
				value, ok := l.Value().Text()
				if !ok {
					return nil
				}
				if labels == nil {
					labels = map[string]string{}
				}
				labels[l.Key()] = value
			}
		}
	}
	return labels
}

func resourceOf(gvk schema.GroupVersionKind) schema.GroupVersionResource {
	if resource, ok := lookup.UnlistedResource(gvk); ok {
		return resource
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	return resource
}

// Grants are all resources of the cluster: those of the Kubernetes API and those of its
// objects.
func (c *Cluster) Grants() (grants []host.ObjectGrant) {
	for r := range c.objects {
		grants = append(grants, host.ObjectGrant{Resource: strings.TrimPrefix(r.GroupVersion().String()+"/"+r.Resource, "/")})
	}
	slices.SortFunc(grants, func(a, b host.ObjectGrant) int { return strings.Compare(a.Resource, b.Resource) })
	return grants
}

// ServiceGrants are the grants of a plugin of a service that has all resources of the cluster.
func (c *Cluster) ServiceGrants() []host.ObjectGrant {
	var names []string
	for _, g := range c.Grants() {
		names = append(names, g.Resource)
	}
	return lookup.TestGrants(names...)
}

// Of returns the objects of a resource, sorted by namespace and name. It fails for an
// unknown resource.
func (c *Cluster) Of(resource string) ([]*host.Object, error) {
	r, err := lookup.ParseResource(resource)
	if err != nil {
		return nil, err
	}
	list, ok := c.objects[r]
	if !ok {
		return nil, fmt.Errorf("there is no resource %q", resource)
	}
	return list, nil
}

// Resource implements admission.Cluster.
func (c *Cluster) Resource(_ context.Context, kind schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	return resourceOf(kind), nil
}

// Hold implements admission.Cluster.
func (c *Cluster) Hold(schema.GroupVersionKind) (release func()) { return func() {} }

// Keep implements admission.Cluster.
func (c *Cluster) Keep(resource schema.GroupVersionResource, namespace string, _ host.ObjectQuery) host.Objects {
	list := c.objects[resource]
	if namespace != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(o *host.Object) bool { return o.Namespace != namespace })
	}
	return fixed(list)
}

// fixed are objects that do not change.
type fixed []*host.Object

func (f fixed) Snapshot() ([]*host.Object, error) { return f, nil }
func (f fixed) Wait(context.Context) error        { return nil }
func (f fixed) Close()                            {}

// Get implements admission.Cluster.
func (c *Cluster) Get(_ context.Context, kind schema.GroupVersionKind, namespace, name string, _ bool) ([]byte, error) {
	list := c.objects[resourceOf(kind)]
	if i, ok := lookup.Find(list, namespace, name); ok {
		return list[i].JSON, nil
	}
	return nil, nil
}

// List implements admission.Cluster.
func (c *Cluster) List(_ context.Context, kind schema.GroupVersionKind, namespace string, l labels.Selector, f fields.Selector) (list [][]byte, err error) {
	for _, o := range c.objects[resourceOf(kind)] {
		if namespace != "" && o.Namespace != namespace || !l.Matches(labels.Set(o.Labels)) {
			continue
		}
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON(o.JSON); err != nil {
			return nil, err
		}
		u.SetNamespace(o.Namespace)
		if f.Matches(fieldsOf(u.Object)) {
			list = append(list, o.JSON)
		}
	}
	return list, nil
}

// fieldsOf are the fields of an object that are strings, by their paths, for field
// selectors. An API server supports a few of them, which depend on the kind.
type fieldsOf map[string]any

// Get implements fields.Fields.
func (f fieldsOf) Get(path string) string {
	s, _, _ := unstructured.NestedString(f, strings.Split(path, ".")...)
	return s
}

// Has implements fields.Fields.
func (f fieldsOf) Has(path string) bool {
	_, ok, _ := unstructured.NestedString(f, strings.Split(path, ".")...)
	return ok
}

// Review implements admission.Cluster.
func (c *Cluster) Review(context.Context, authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	return authorizationv1.SubjectAccessReviewStatus{}, errors.New("there is no API server that could be asked for access reviews")
}
