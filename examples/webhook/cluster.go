package main

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewasm/kubewasm/admission/clustercache"
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
	cluster, err := clustercache.NewForConfig(ctx, config)
	if err != nil {
		return err
	}
	cfg.Cluster = cluster
	return nil
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
