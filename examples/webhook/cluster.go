package main

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewasm/kubewasm/admission/clustercache"
	"github.com/kubewasm/kubewasm/admission/manage"
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
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	if cfg.ConfigMaps, cfg.Secrets, err = clustercache.Getters(config); err != nil {
		return nil, err
	}
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
