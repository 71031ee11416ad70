package host_test

import (
	"encoding/json"
	"net/http/httptest"
	"strings"

	corev1 "k8s.io/api/core/v1"
	typedcore "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// cluster is an API server with one ConfigMap. client-go's fake clientset takes longer to compile
// than the host.
type cluster struct {
	*listserver.Server
	client typedcore.CoreV1Interface
	Close  func()
}

// newCluster returns a cluster in which the ConfigMap is the one after so many changes.
func newCluster(object func(changes int) *corev1.ConfigMap) cluster {
	server := listserver.New(&listserver.Resource{
		GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true, N: 1,
		Object: func(dst []byte, _, changes int) []byte {
			o := object(changes)
			o.APIVersion, o.Kind = "v1", "ConfigMap"
			text, err := json.Marshal(o)
			if err != nil {
				panic(err)
			}
			return append(dst, strings.Replace(string(text), `"metadata":{`, `"metadata":{%s,`, 1)...)
		},
	})
	listening := httptest.NewServer(server)
	return cluster{server, typedcore.NewForConfigOrDie(&rest.Config{Host: listening.URL}), listening.Close}
}
