package clustercache

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/informers"
)

// Keep begins to keep the objects of a resource, see [admission.Cluster]. A shared informer ends
// with its last user.
func (c *Cluster) Keep(of schema.GroupVersionResource, namespace string, query host.ObjectQuery) host.Objects {
	u := &use{}
	u.resource, u.err = c.objects.Use(informers.Scope{Resource: of, Namespace: namespace, Query: query})
	return u
}

// use implements host.Objects for one of the users of a resource.
type use struct {
	resource *resource
	// err is the reason that there is no resource.
	err  error
	once sync.Once
}

// Snapshot returns the objects in the informer.
func (u *use) Snapshot() ([]*host.Object, error) {
	if u.err != nil {
		return nil, u.err
	}
	return u.resource.Snapshot()
}

// Wait waits for the first list.
func (u *use) Wait(ctx context.Context) error {
	if u.err != nil {
		return u.err
	}
	return u.resource.Wait(ctx, u.resource.Ordered)
}

// Close ends the use. It may be called several times.
func (u *use) Close() {
	u.once.Do(func() {
		if u.err == nil {
			u.resource.Leave()
		}
	})
}

// Age is the age of the objects of a resource in the answers of a Cluster.
type Age struct {
	// Resource is the resource as in "apps/v1/deployments". Namespace is empty for all.
	Resource, Namespace string
	// Age is the time since which the API server has not answered a list or a watch of the
	// resource. It is 0 while the resource is watched.
	Age time.Duration
}

// Ages returns the age of each resource that the Cluster keeps.
func (c *Cluster) Ages() (ages []Age) {
	for _, a := range c.objects.Ages() {
		ages = append(ages, Age(a))
	}
	return ages
}
