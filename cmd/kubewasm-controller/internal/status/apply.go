package status

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
)

// Apply writes members of the status of a plugin, and a condition, by server-side apply. owner is the
// manager of these members; those that it has applied before and does not name are removed. The
// condition's LastTransitionTime is set. Nothing is written if everything is there already, by the
// cache.
func Apply(ctx context.Context, c client.Client, p plugin.Plugin, owner string, members map[string]any, condition *metav1.Condition) error {
	return apply(ctx, c, p, owner, "", members, condition)
}

// Exchange is Apply on the version of the object that p is: another one is a conflict.
func Exchange(ctx context.Context, c client.Client, p plugin.Plugin, owner string, members map[string]any, condition *metav1.Condition) error {
	return apply(ctx, c, p, owner, p.GetResourceVersion(), members, condition)
}

func apply(ctx context.Context, c client.Client, p plugin.Plugin, owner, version string, members map[string]any, condition *metav1.Condition) error {
	before := meta.FindStatusCondition(p.Status.Conditions, typeOf(condition))
	same := condition == nil
	if condition != nil {
		condition.LastTransitionTime = metav1.NewTime(time.Now().Truncate(time.Second))
		if before != nil {
			if before.Status == condition.Status {
				condition.LastTransitionTime = before.LastTransitionTime
			}
			same = equality.Semantic.DeepEqual(before, condition)
		}
	}
	as, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.Status)
	if err != nil {
		return err
	}
	status := map[string]any{}
	for name, value := range members {
		had, ok := as[name]
		if value == nil {
			same = same && !ok
			continue
		}
		status[name] = value
		// The status leaves out empty members.
		same = same && (equality.Semantic.DeepEqual(had, value) || !ok && value == "")
	}
	if same {
		return nil
	}
	return write(ctx, c, p, owner, version, status, condition)
}

// Clear removes what owner has applied to the status of a plugin.
func Clear(ctx context.Context, c client.Client, p plugin.Plugin, owner string) error {
	return write(ctx, c, p, owner, "", map[string]any{}, nil)
}

func write(ctx context.Context, c client.Client, p plugin.Plugin, owner, version string, status map[string]any, condition *metav1.Condition) error {
	if condition != nil {
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(condition)
		if err != nil {
			return err
		}
		status["conditions"] = []any{object}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(p.Key.Kind))
	u.SetNamespace(p.Key.Namespace)
	u.SetName(p.Key.Name)
	u.SetUID(p.GetUID()) // A later object of the name is another.
	u.SetResourceVersion(version)
	err := c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kubewasm-controller-"+owner), client.ForceOwnership)
	return client.IgnoreNotFound(err)
}

func typeOf(c *metav1.Condition) string {
	if c == nil {
		return ""
	}
	return c.Type
}

// Backoff returns a rate limiter of failures: least after the first, and twice the time after each
// further one.
func Backoff(least, most time.Duration) workqueue.TypedRateLimiter[plugin.Key] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[plugin.Key](least, most)
}
