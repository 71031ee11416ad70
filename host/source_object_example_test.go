package host_test

import (
	"context"
	"fmt"
	"log"
	"maps"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

// configMaps makes an ObjectWatcher of a client of client-go.
type configMaps struct{ client typedcore.CoreV1Interface }

func (c configMaps) Get(ctx context.Context, namespace, name string) (map[string][]byte, error) {
	object, err := c.client.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte)
	maps.Copy(data, object.BinaryData)
	for key, text := range object.Data {
		data[key] = []byte(text)
	}
	return data, nil
}

// Watch runs an informer for the one object. What the informer finds when it
// begins is an addition, so changed is called then, too.
func (c configMaps) Watch(ctx context.Context, namespace, name string, changed func()) error {
	one := fields.OneTermEqualSelector(metav1.ObjectNameField, name)
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(c.client.RESTClient(), "configmaps", namespace, one), &corev1.ConfigMap{}, 0)
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed() },
		UpdateFunc: func(any, any) { changed() },
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

// A plugin runs what a ConfigMap holds, and goes on to what it holds later.
func ExampleConfigMapKey() {
	module, err := os.ReadFile("testdata/good.wasm")
	if err != nil {
		log.Fatal(err)
	}
	cluster := newCluster(func(int) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "plugins", Name: "odd"},
			BinaryData: map[string][]byte{"odd.wasm": module},
		}
	})
	defer cluster.Close()
	client := cluster.client // That of a clientset is its CoreV1().

	ctx, cancel := context.WithCancel(context.Background())
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer rt.Close(ctx)
	plugin, err := rt.Load(ctx, host.Config{
		Name:   "odd",
		Module: host.ModuleConfig{Source: host.ConfigMapKey(configMaps{client}, "plugins", "odd", "odd.wasm")},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plugin.Functions())

	followed := make(chan error)
	go func() {
		followed <- plugin.Follow(ctx, host.FollowOptions{Failed: func(err error) { log.Print(err) }})
	}()
	cancel() // When the component stops.
	fmt.Println(<-followed)
	// Output:
	// filter, configure
	// <nil>
}
