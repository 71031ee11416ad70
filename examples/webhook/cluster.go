package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewasm/kubewasm/admission/manage"
	"github.com/kubewasm/kubewasm/host"
)

// connect gives the manager a cluster, if there is one.
func connect(ctx context.Context, kubeconfig string, cfg *manage.Config) error {
	if kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	cfg.ConfigMaps = host.ObjectGetterFunc(func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		object, err := client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		data := map[string][]byte{}
		for key, value := range object.Data {
			data[key] = []byte(value)
		}
		for key, value := range object.BinaryData {
			data[key] = value
		}
		return data, nil
	})
	cfg.Secrets = host.ObjectGetterFunc(func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		object, err := client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return object.Data, nil
	})
	cfg.Namespaces = namespaces(ctx, client)
	cfg.Cluster, err = newCluster(config, client)
	return err
}

// namespaces answers from an informer, and asks the API server about a namespace
// that it does not have yet.
func namespaces(ctx context.Context, client kubernetes.Interface) func(ctx context.Context, name string) (map[string]string, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	lister := factory.Core().V1().Namespaces().Lister()
	factory.Start(ctx.Done())
	return func(ctx context.Context, name string) (map[string]string, error) {
		if namespace, err := lister.Get(name); err == nil {
			return namespace.Labels, nil
		}
		namespace, err := client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return namespace.Labels, nil
	}
}

// cluster is what policies may look up, by the API server. What it may see is for
// RBAC to say, and for each policy's contextAwareResources.
type cluster struct {
	client  kubernetes.Interface
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
}

func newCluster(config *rest.Config, client kubernetes.Interface) (*cluster, error) {
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster{client, d, restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))}, nil
}

func (c *cluster) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot && namespace != "" {
		return nil, errors.New(kind.Kind + " has no namespace")
	}
	return c.dynamic.Resource(mapping.Resource).Namespace(namespace), nil
}

// Get implements admission.Cluster.
func (c *cluster) Get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) ([]byte, error) {
	resource, err := c.resource(kind, namespace)
	if err != nil {
		return nil, err
	}
	object, err := resource.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

// List implements admission.Cluster.
func (c *cluster) List(ctx context.Context, kind schema.GroupVersionKind, namespace string, l labels.Selector, f fields.Selector) ([][]byte, error) {
	resource, err := c.resource(kind, namespace)
	if err != nil {
		return nil, err
	}
	list, err := resource.List(ctx, metav1.ListOptions{LabelSelector: l.String(), FieldSelector: f.String()})
	if err != nil {
		return nil, err
	}
	var objects [][]byte
	for i := range list.Items {
		object, err := json.Marshal(&list.Items[i])
		if err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// Review implements admission.Cluster.
func (c *cluster) Review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
	review, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return authorizationv1.SubjectAccessReviewStatus{}, err
	}
	return review.Status, nil
}
