package pins

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

// reasonUntrusted is the reason of the condition Resolved for a module that no ModuleTrust allows.
const reasonUntrusted = "Untrusted"

// trusted returns untrusted unless the namespace of a plugin may have modules of a repository: the
// registry gets no request then. rules are those for the signatures of an artifact.
func (r *Reconciler) trusted(ctx context.Context, p plugin.Plugin, ref oci.Reference) (rules []oci.Trust, untrusted, err error) {
	if p.Key.Namespace == "" {
		return nil, nil, nil
	}
	list := new(v1alpha1.ModuleTrustList)
	if err := r.Client.List(ctx, list); err != nil || len(list.Items) == 0 {
		return nil, nil, err
	}
	objects := make([]clusterplugins.Object, len(list.Items))
	for i := range list.Items {
		spec, err := json.Marshal(list.Items[i].Spec)
		if err != nil {
			return nil, nil, err
		}
		objects[i] = clusterplugins.Object{Kind: clusterplugins.ModuleTrusts.Kind, Name: list.Items[i].Name, Spec: spec}
	}
	trusts, _ := clusterplugins.TrustsOf(objects) // The webhooks report mistakes.
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.Client.Get(ctx, client.ObjectKey{Name: p.Key.Namespace}, namespace); err != nil {
		return nil, nil, client.IgnoreNotFound(err)
	}
	allowed, err := trusts.For(p.Key.Namespace, namespace.Labels)
	if err != nil {
		return nil, err, nil
	}
	return allowed.Signatures(ref), allowed.Repository(ref), nil
}
