package clustercache

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/host"
)

// Getters returns functions that read the data of ConfigMaps and Secrets from the API server of
// config, for modules stored there. Each call asks the API server, with the verb get.
func Getters(config *rest.Config) (configMaps, secrets host.ObjectGetter, err error) {
	client, err := typedcore.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	configMaps = host.ObjectGetterFunc(func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		object, err := client.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
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
	secrets = host.ObjectGetterFunc(func(ctx context.Context, namespace, name string) (map[string][]byte, error) {
		object, err := client.Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return object.Data, nil
	})
	return configMaps, secrets, nil
}
