package informers

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Apply applies annotations, or the status if they are nil, of an object by server-side apply without
// force. It makes no object: there is one of this UID, or the request fails.
func Apply(ctx context.Context, config *rest.Config, manager, kind string, object kruntime.Object, resource schema.GroupVersionResource, annotations map[string]string, status json.RawMessage) error {
	c, err := cacheOf(config)
	if err != nil {
		return err
	}
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	if m.GetUID() == "" {
		return fmt.Errorf("the %s %s/%s has no UID", kind, m.GetNamespace(), m.GetName())
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	u.SetName(m.GetName())
	if m.GetNamespace() != "" {
		u.SetNamespace(m.GetNamespace())
	}
	u.SetUID(m.GetUID())
	subresource := []string{"status"}
	if annotations != nil {
		subresource = nil
		if len(annotations) != 0 {
			u.SetAnnotations(annotations)
		}
	} else {
		var fields map[string]any
		if err := json.Unmarshal(status, &fields); err != nil {
			return err
		}
		u.Object["status"] = fields
	}
	_, err = c.cfg.Client.Resource(resource).Namespace(m.GetNamespace()).Apply(ctx, m.GetName(), u, metav1.ApplyOptions{FieldManager: manager}, subresource...)
	return err
}
