// Package pins resolves the tags of modules, once for all processes.
package pins

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/status"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

const (
	// maxMessageBytes bounds the message of the condition Resolved.
	maxMessageBytes = 1024
	// Failures are tried again after retry, and then after twice the time, at most maxRetry.
	retry, maxRetry = 5 * time.Second, 5 * time.Minute
)

// The reasons of the condition Resolved.
const (
	reasonResolved = "Resolved"
	reasonFailed   = "FetchFailed"
	reasonInvalid  = "Invalid"
)

// Reconciler resolves tags.
type Reconciler struct {
	Client client.Client
	// Registries is the client of the registries.
	Registries *oci.Client
	// Interval is the time between two resolutions of a tag that is followed.
	Interval time.Duration
	// DryLoads load modules before they are pinned, with the specs that Reader reads from the API server;
	// nil for none.
	DryLoads *DryLoads
	Reader   client.Reader
}

// SetupWithManager adds the controllers to a manager. Policies of namespaces have their own: a
// registry that their owners name may let each wait for the client's timeout.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	for _, of := range []struct {
		name  string
		kinds []string
	}{
		{"pins", []string{plugin.ClusterAdmissionPolicy, plugin.NodeHook, plugin.SchedulerPlugin}},
		{"pins-of-namespaces", []string{plugin.AdmissionPolicy}},
	} {
		// One at a time: a module may have 64 MiB.
		c, err := controller.NewTyped(of.name, mgr, controller.TypedOptions[plugin.Key]{
			Reconciler: r, SkipNameValidation: ptr.To(true), RateLimiter: status.Backoff(retry, maxRetry),
		})
		if err != nil {
			return err
		}
		for _, kind := range of.kinds {
			if err := c.Watch(status.Plugins(mgr, kind, func(q status.Queue, k plugin.Key) { q.Add(k) }, changed)); err != nil {
				return err
			}
		}
		if !slices.Contains(of.kinds, plugin.AdmissionPolicy) {
			continue
		}
		if err := c.Watch(status.Objects(mgr, &v1alpha1.ModuleTrust{}, r.ofNamespaces)); err != nil {
			return err
		}
	}
	return nil
}

// ofNamespaces adds the policies of all namespaces.
func (r *Reconciler) ofNamespaces(q status.Queue) {
	list := new(v1alpha1.AdmissionPolicyList)
	if r.Client.List(context.Background(), list) != nil {
		return // The cache has them, before it sends any.
	}
	for i := range list.Items {
		q.Add(plugin.Key{Kind: plugin.AdmissionPolicy, Namespace: list.Items[i].Namespace, Name: list.Items[i].Name})
	}
}

// changed reports whether a plugin is to be resolved again: other writers of the status do not end the
// pause after a failure.
func changed(before, after plugin.Plugin) bool {
	return before.GetGeneration() != after.GetGeneration() || !equality.Semantic.DeepEqual(before.Status.Pin, after.Status.Pin)
}

// Reconcile resolves the tag of a plugin.
func (r *Reconciler) Reconcile(ctx context.Context, key plugin.Key) (reconcile.Result, error) {
	object := plugin.New(key.Kind)
	if err := r.Client.Get(ctx, key.ObjectKey(), object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p, _ := plugin.Of(object)
	condition := &metav1.Condition{Type: v1alpha1.ConditionResolved, Status: metav1.ConditionFalse, ObservedGeneration: p.GetGeneration()}
	spec, err := p.Spec()
	var ref oci.Reference
	if err == nil && spec.Module.OCI != "" {
		ref, err = oci.ParseReference(spec.Module.OCI)
	}
	switch {
	case err != nil:
		condition.Reason, condition.Message = reasonInvalid, cut.Text(foreign.Line(err.Error()), maxMessageBytes)
		return reconcile.Result{}, r.apply(ctx, p, p.Status.Pin, condition)
	case spec.Module.OCI == "", ref.Layout != "":
		return reconcile.Result{}, r.clear(ctx, p) // There is no registry to ask.
	}
	rules, untrusted, err := r.trusted(ctx, p, ref)
	if err != nil {
		return reconcile.Result{}, err
	}
	if untrusted != nil {
		return reconcile.Result{}, r.failed(ctx, p, condition, reasonUntrusted, untrusted)
	}
	resolved := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionResolved)
	current := resolved != nil && resolved.Status == metav1.ConditionTrue && resolved.ObservedGeneration == p.GetGeneration() &&
		p.Status.Pin != nil && p.Status.Pin.Generation == p.GetGeneration()
	if current && len(rules) != 0 {
		// What serves is the pin, and the signers may be others by now.
		pinned, err := oci.ParseReference(p.Status.Pin.Reference)
		if err == nil {
			_, err = clusterplugins.Verify(ctx, r.Registries, pinned, rules)
		}
		if errors.As(err, new(*oci.TrustError)) {
			return reconcile.Result{}, r.failed(ctx, p, condition, reasonUntrusted, err)
		}
	}
	again := reconcile.Result{}
	follows := spec.Module.Follow && ref.Digest == ""
	switch {
	case follows:
		again.RequeueAfter = r.Interval
	case clusterplugins.ByIdentity(rules):
		again.RequeueAfter = 5 * r.Interval // The trusted root may be another by then.
	}
	if current && !follows {
		return again, nil
	}
	pin := p.Status.Pin
	digest := ref.Digest
	if current {
		// The digest alone costs a request of a few bytes.
		if digest, err = r.Registries.Resolve(ctx, ref); err == nil && strings.HasSuffix(pin.Reference, "@"+digest) {
			return again, nil
		}
	}
	if err == nil && len(rules) != 0 {
		ref.Digest, err = clusterplugins.Verify(ctx, r.Registries, ref, rules)
	}
	if err == nil {
		err = r.refused(ctx, p, ref)
	}
	var artifact *oci.Artifact
	if err == nil {
		artifact, err = r.fetch(ctx, ref, spec)
	}
	if err == nil {
		digest, err = artifact.Digest, r.DryLoads.check(ctx, r.Reader, p, artifact)
	}
	if err != nil {
		reason := reasonFailed
		switch {
		case errors.As(err, new(*oci.TrustError)):
			reason = reasonUntrusted
		case errors.As(err, new(notLoadableError)):
			reason = clusterplugins.NotLoadable
		case artifact != nil:
			return reconcile.Result{}, err // It was not loaded.
		}
		return reconcile.Result{}, r.failed(ctx, p, condition, reason, err)
	}
	ref.Digest = digest
	pin = &v1alpha1.Pin{Generation: p.GetGeneration(), Reference: ref.String()}
	condition.Status, condition.Reason = metav1.ConditionTrue, reasonResolved
	return again, r.apply(ctx, p, pin, condition)
}

// failed writes why a module is not resolved. It returns an error, so that it is tried again: the
// registry, a ModuleTrust or the namespace may change.
func (r *Reconciler) failed(ctx context.Context, p plugin.Plugin, condition *metav1.Condition, reason string, err error) error {
	condition.Reason, condition.Message = reason, cut.Text(foreign.Line(err.Error()), maxMessageBytes)
	if applyErr := r.apply(ctx, p, p.Status.Pin, condition); applyErr != nil {
		return applyErr
	}
	return fmt.Errorf("resolve the module of %s: %w", p.Key, err)
}

// refused returns the error with which a module was refused for the generation of a plugin, nil if it
// was not, or if the reference has another one by now.
func (r *Reconciler) refused(ctx context.Context, p plugin.Plugin, ref oci.Reference) error {
	was, refusal := r.DryLoads.before(p)
	if refusal == nil {
		return nil
	}
	if ref.Digest == "" {
		var err error
		if ref.Digest, err = r.Registries.Resolve(ctx, ref); err != nil {
			return err
		}
	}
	if ref.Digest != was {
		return nil
	}
	return refusal
}

// fetch fetches and verifies the artifact of a reference.
func (r *Reconciler) fetch(ctx context.Context, ref oci.Reference, spec *plugin.Spec) (*oci.Artifact, error) {
	if ref.Digest == "" && spec.Module.SHA256 == "" {
		// A pin would vouch for what nobody does.
		trusted, err := r.Registries.HasRule(ref)
		if err != nil {
			return nil, err
		}
		if !trusted {
			return nil, errors.New("nothing vouches for the target of a tag: add a digest, module.sha256, or a rule of trust for the repository")
		}
	}
	artifact, err := r.Registries.Fetch(ctx, ref)
	if err != nil {
		return nil, err
	}
	if artifact.Stale {
		return nil, errors.New("the registry is away")
	}
	if sum := sha256.Sum256(artifact.Module); spec.Module.SHA256 != "" && !strings.EqualFold(spec.Module.SHA256, hex.EncodeToString(sum[:])) {
		return nil, fmt.Errorf("the module has the SHA-256 %x, want %s", sum, spec.Module.SHA256)
	}
	return artifact, nil
}

// apply writes a pin, nil for none, and a condition.
func (r *Reconciler) apply(ctx context.Context, p plugin.Plugin, pin *v1alpha1.Pin, condition *metav1.Condition) error {
	var value any
	if pin != nil {
		value = map[string]any{"generation": pin.Generation, "reference": pin.Reference}
	}
	return status.Apply(ctx, r.Client, p, "pins", map[string]any{"pin": value}, condition)
}

// clear removes the pin and the condition.
func (r *Reconciler) clear(ctx context.Context, p plugin.Plugin) error {
	if p.Status.Pin == nil && meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionResolved) == nil {
		return nil
	}
	return status.Clear(ctx, r.Client, p, "pins")
}
