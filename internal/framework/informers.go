package framework

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// Informers are the stores of a scheduler's informers, which nothing fills but a test. Those of
// client-go would have authors compile two hundred packages before their first test.
type Informers map[schema.GroupVersionResource]cache.Indexer

// NewInformers returns an empty store for each resource that client-go has an informer of.
// TestInformersOfTheTestKit in sched/kube137 compares them.
func NewInformers() Informers {
	i := Informers{}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if !scheme.Scheme.Recognizes(gvk.GroupVersion().WithKind(gvk.Kind + "List")) {
			continue
		}
		if object, err := scheme.Scheme.New(gvk); err != nil {
			continue
		} else if _, ok := object.(metav1.Object); !ok {
			continue
		}
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		i[gvr] = newStore()
	}
	return i
}

func newStore() cache.Indexer {
	return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// Lister returns the objects of a resource.
func (i Informers) Lister(resource schema.GroupVersionResource) (cache.GenericLister, error) {
	store, ok := i[resource]
	if !ok && !scheme.Scheme.IsGroupRegistered(resource.Group) {
		store, ok = newStore(), true // There are none of these custom resources.
		i[resource] = store
	}
	if !ok {
		return nil, fmt.Errorf("no informer found for %v", resource) // As by client-go.
	}
	return cache.NewGenericLister(store, resource.GroupResource()), nil
}
