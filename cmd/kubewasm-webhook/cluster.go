package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
)

// connect gives the manager a cluster, and returns how to reach it; nil if there is none.
func connect(ctx context.Context, kubeconfig string, cfg *manage.Config) (*rest.Config, error) {
	if kubeconfig == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return nil, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	client, err := typedcore.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	configMaps, secrets, err := clustercache.Getters(config)
	if err != nil {
		return nil, err
	}
	cfg.Runtime.AddSources(host.Sources{ConfigMaps: configMaps, Secrets: secrets})
	cfg.Namespaces = namespaces(ctx, client)
	cluster, err := clustercache.NewForConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	cfg.Cluster = cluster
	return config, nil
}

// namespaces answers from an informer, and asks the API server about a namespace
// that it does not have yet.
func namespaces(ctx context.Context, client typedcore.CoreV1Interface) func(ctx context.Context, name string) (map[string]string, error) {
	all := cache.NewListWatchFromClient(client.RESTClient(), "namespaces", metav1.NamespaceAll, fields.Everything())
	informer := cache.NewSharedInformer(all, &corev1.Namespace{}, 0)
	go informer.RunWithContext(ctx)
	return func(ctx context.Context, name string) (map[string]string, error) {
		if namespace, exists, err := informer.GetStore().GetByKey(name); err == nil && exists {
			return namespace.(*corev1.Namespace).Labels, nil
		}
		namespace, err := client.Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return namespace.Labels, nil
	}
}
