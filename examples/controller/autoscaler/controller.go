package autoscaler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubewasm/kubewasm/examples/controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/examples/controller/scaler"
)

// Reconciler scales workloads by ScalePolicies. All fields except Metrics are required.
type Reconciler struct {
	// Client reads policies and Pods from the cache, and Reader reads from the API server.
	Client client.Client
	Reader client.Reader
	// Mapper and Scales find and write the subresource scale of any kind.
	Mapper meta.RESTMapper
	Scales scale.ScalesGetter
	// Events records the controller's actions.
	Events events.EventRecorder
	// Plugins are the guests.
	Plugins *Plugins
	// Metrics returns the resource usage of Pods, for policies that request it.
	Metrics Metrics
	// Clock is the clock for the time passed to guests.
	Clock clock.PassiveClock

	mu sync.Mutex
	// known holds the statuses of policies as last written, see status.
	known map[types.NamespacedName]known
}

// known is the status of a policy.
type known struct {
	uid    types.UID
	status v1alpha1.ScalePolicyStatus
}

// workloadIndex is the index of policies by their workload.
const workloadIndex = "spec.scaleTargetRef"

// workloadKey is the value of workloadIndex: the identity of a workload in a namespace, without the
// version.
func workloadKey(ref v1alpha1.ScaleTargetRef) string {
	group, _ := schema.ParseGroupVersion(ref.APIVersion)
	return ref.Kind + "." + group.Group + "/" + ref.Name
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr manager.Manager, opts controller.Options) error {
	err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.ScalePolicy{}, workloadIndex, func(o client.Object) []string {
		return []string{workloadKey(o.(*v1alpha1.ScalePolicy).Spec.ScaleTargetRef)}
	})
	if err != nil {
		return err
	}
	changed := func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.Plugins.mu.Lock()
		defer r.Plugins.mu.Unlock()
		r.Plugins.changed = func(policy types.NamespacedName) { queue.Add(reconcile.Request{NamespacedName: policy}) }
		return nil
	}
	return builder.ControllerManagedBy(mgr).
		For(&v1alpha1.ScalePolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Func(changed)).
		WithOptions(opts).
		Complete(r)
}

// soon is the time until a policy is reconciled again after another writer has changed its
// workload.
const soon = 200 * time.Millisecond

// Reconcile calls the guest of a policy, and scales its workload.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.ScalePolicy{}
	err := r.Client.Get(ctx, req.NamespacedName, policy)
	if apierrors.IsNotFound(err) || err == nil && !policy.DeletionTimestamp.IsZero() {
		r.Plugins.Forget(req.NamespacedName)
		r.forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.status(ctx, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	t := &turn{Reconciler: r, policy: policy, before: policy.Status.DeepCopy()}
	policy.Status.ObservedGeneration = policy.Generation
	err = t.run(ctx)
	if errors.Is(err, errChanged) {
		return reconcile.Result{RequeueAfter: soon, Priority: ptr.To(handler.LowPriority)}, nil
	}
	if err := errors.Join(err, t.write(ctx)); err != nil {
		return reconcile.Result{}, err
	}
	// Policies that are new, changed or have a new module come first; next come those that were not
	// reconciled since the start.
	return reconcile.Result{RequeueAfter: time.Duration(policy.Spec.IntervalSeconds) * time.Second, Priority: ptr.To(handler.LowPriority)}, nil
}

// status sets the current status of a policy: the one last written by this controller, or the one
// in the API server. The cache may have an older decision.
func (r *Reconciler) status(ctx context.Context, policy *v1alpha1.ScalePolicy) error {
	name := client.ObjectKeyFromObject(policy)
	r.mu.Lock()
	k, ok := r.known[name]
	r.mu.Unlock()
	if !ok || k.uid != policy.UID {
		live := &v1alpha1.ScalePolicy{}
		if err := r.Reader.Get(ctx, name, live); err != nil {
			return err
		}
		k = known{live.UID, live.Status}
		if live.UID != policy.UID {
			k.status = v1alpha1.ScalePolicyStatus{}
		}
	}
	policy.Status = *k.status.DeepCopy()
	return nil
}

func (r *Reconciler) remember(policy *v1alpha1.ScalePolicy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[types.NamespacedName]known{}
	}
	r.known[client.ObjectKeyFromObject(policy)] = known{policy.UID, *policy.Status.DeepCopy()}
}

func (r *Reconciler) forget(name types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}

// turn is one reconciliation of a policy.
type turn struct {
	*Reconciler
	policy *v1alpha1.ScalePolicy
	// before is the status in the API server.
	before *v1alpha1.ScalePolicyStatus
}

// write writes the status if it has changed.
func (t *turn) write(ctx context.Context) error {
	if equality.Semantic.DeepEqual(*t.before, t.policy.Status) {
		t.remember(t.policy)
		return nil
	}
	base := t.policy.DeepCopy()
	base.Status = *t.before
	want := t.policy.Status.DeepCopy()
	target := t.policy.DeepCopy()
	if err := t.Client.Status().Patch(ctx, target, client.MergeFrom(base)); err != nil {
		// The status in the API server is unknown, so the next reconciliation reads it.
		t.forget(client.ObjectKeyFromObject(t.policy))
		return client.IgnoreNotFound(err)
	}
	t.before = want
	t.remember(t.policy)
	return nil
}

// set sets a condition.
func (t *turn) set(kind string, status metav1.ConditionStatus, reason, message string) (changed bool) {
	return meta.SetStatusCondition(&t.policy.Status.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: short(message, maxErrorBytes), ObservedGeneration: t.policy.Generation,
	})
}

// fail sets Ready to False.
func (t *turn) fail(reason, message string) {
	t.set(v1alpha1.Ready, metav1.ConditionFalse, reason, message)
}

// errChanged is the error of a workload that has changed since it was read.
var errChanged = errors.New("the workload has changed")

// run reconciles the policy. It writes errors of the policy, its guest or its workload into the
// status, and returns other errors.
func (t *turn) run(ctx context.Context) error {
	spec := &t.policy.Spec
	plugin, err := t.Plugins.Use(client.ObjectKeyFromObject(t.policy), &spec.Guest)
	t.module(plugin, err)
	zone, err := time.LoadLocation(spec.TimeZone)
	if err != nil {
		t.fail("InvalidSpec", "spec.timeZone: "+err.Error())
		return nil
	}
	if other, err := t.rival(ctx); err != nil || other != "" {
		if other != "" {
			t.fail("Conflict", fmt.Sprintf("ScalePolicy %s scales this workload, and is older", other))
		}
		return err
	}
	w, err := t.workload(ctx)
	if w == nil {
		return err
	}
	uid := w.scale.UID
	last := t.policy.Status.LastDecision
	if last != nil && last.Workload != uid {
		// The answer was about a different object.
		last, t.policy.Status.LastDecision, t.policy.Status.DesiredReplicas = nil, nil, nil
	}
	switch d, err := t.ask(ctx, plugin, w, zone); {
	case errors.Is(err, errChanged), ctx.Err() != nil:
		return errors.Join(err, ctx.Err())
	case err == nil && (last == nil || last.Replicas != d.replicas || last.Reason != d.reason || last.Digest != d.digest):
		if last != nil && last.Digest != d.digest {
			t.event(corev1.EventTypeNormal, "ModuleReplaced", "Swap", fmt.Sprintf("module %.12s answers, before it %.12s", d.digest, last.Digest))
		}
		last = &v1alpha1.Decision{Replicas: d.replicas, Reason: d.reason, Digest: d.digest, Time: metav1.NewTime(t.Clock.Now()), Workload: uid}
		t.policy.Status.LastDecision = last
		fallthrough
	case err == nil:
		t.set(v1alpha1.GuestAnswers, metav1.ConditionTrue, "Answered", "")
		decisionsTotal.WithLabelValues("ok").Inc()
	case plugin == nil:
		t.set(v1alpha1.GuestAnswers, metav1.ConditionUnknown, "NoModule", "no module was loaded")
		decisionsTotal.WithLabelValues("no_module").Inc()
	default:
		if t.set(v1alpha1.GuestAnswers, metav1.ConditionFalse, reasonOf(err), err.Error()) {
			t.event(corev1.EventTypeWarning, reasonOf(err), "Ask", err.Error())
		}
		decisionsTotal.WithLabelValues("failed").Inc()
	}
	if last == nil {
		t.fail("NoDecision", "the guest has not answered yet")
		return nil
	}
	return t.act(ctx, w, last)
}

// module sets the condition about the module in service.
func (t *turn) module(plugin *scaler.Scaler, err error) {
	switch {
	case errors.Is(err, ErrLoading):
		t.set(v1alpha1.ModuleCurrent, metav1.ConditionUnknown, "Loading", err.Error())
	case err != nil:
		message := err.Error()
		if plugin != nil {
			message = fmt.Sprintf("module %.12s serves: %s", plugin.Digest(), message)
		}
		if t.set(v1alpha1.ModuleCurrent, metav1.ConditionFalse, "Refused", message) {
			t.event(corev1.EventTypeWarning, "ModuleRefused", "Load", message)
		}
	default:
		t.set(v1alpha1.ModuleCurrent, metav1.ConditionTrue, "Serving", "module "+plugin.Digest())
	}
}

// rival returns the name of a policy that is in charge of the workload: the oldest one.
func (t *turn) rival(ctx context.Context) (string, error) {
	policies := &v1alpha1.ScalePolicyList{}
	err := t.Client.List(ctx, policies, client.InNamespace(t.policy.Namespace),
		client.MatchingFields{workloadIndex: workloadKey(t.policy.Spec.ScaleTargetRef)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", err
	}
	older := func(a, b *v1alpha1.ScalePolicy) bool {
		if c := a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time); c != 0 {
			return c < 0
		}
		return a.Name < b.Name
	}
	for i := range policies.Items {
		if other := &policies.Items[i]; other.UID != t.policy.UID && older(other, t.policy) {
			return other.Name, nil
		}
	}
	return "", nil
}

// workload is the object scaled by a policy.
type workload struct {
	resource schema.GroupResource
	kind     schema.GroupVersionKind
	scale    *autoscalingv1.Scale
}

// workload reads the scale of the workload. If it returns neither a workload nor an error, the
// status has the reason.
func (t *turn) workload(ctx context.Context) (*workload, error) {
	ref := t.policy.Spec.ScaleTargetRef
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		t.fail("InvalidSpec", "spec.scaleTargetRef.apiVersion: "+err.Error())
		return nil, nil
	}
	mapping, err := t.Mapper.RESTMapping(schema.GroupKind{Group: group.Group, Kind: ref.Kind}, group.Version)
	if meta.IsNoMatchError(err) {
		t.fail("UnknownKind", err.Error())
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		t.fail("NotScalable", ref.Kind+" has no namespace")
		return nil, nil
	}
	w := &workload{resource: mapping.Resource.GroupResource(), kind: mapping.GroupVersionKind}
	w.scale, err = t.Scales.Scales(t.policy.Namespace).Get(ctx, w.resource, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		t.fail("WorkloadNotFound", "read scale: "+err.Error())
		return nil, nil
	case apierrors.IsForbidden(err):
		t.fail("NotScalable", "read scale: "+err.Error())
		return nil, nil
	case err != nil && ctx.Err() == nil:
		t.fail("ReadFailed", "read scale: "+err.Error())
		return nil, fmt.Errorf("read scale: %w", err)
	case err != nil:
		return nil, err
	}
	return w, nil
}

// errNoModule is the error of a policy without a plugin.
var errNoModule = errors.New("no module was loaded")

// ask calls the guest for the workload.
func (t *turn) ask(ctx context.Context, plugin *scaler.Scaler, w *workload, zone *time.Location) (decision, error) {
	if plugin == nil {
		return decision{}, errNoModule
	}
	spec := &t.policy.Spec
	now := t.Clock.Now().In(zone)
	_, offset := now.Zone()
	req := &scaler.ReplicasRequest{
		MinReplicas: spec.MinReplicas, MaxReplicas: spec.MaxReplicas,
		Time: &scaler.Time{UnixSeconds: now.Unix(), UtcOffsetSeconds: int32(offset)},
		Workload: &scaler.Workload{
			ApiVersion: w.kind.GroupVersion().String(), Kind: w.kind.Kind,
			SpecReplicas: w.scale.Spec.Replicas, StatusReplicas: w.scale.Status.Replicas,
		},
	}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(w.kind)
	if err := t.Reader.Get(ctx, client.ObjectKey{Namespace: w.scale.Namespace, Name: w.scale.Name}, object); err != nil {
		if apierrors.IsNotFound(err) {
			return decision{}, errChanged
		}
		return decision{}, &inputError{fmt.Errorf("read metadata of the workload: %w", err)}
	}
	if w.scale.UID != "" && object.UID != w.scale.UID {
		return decision{}, errChanged
	}
	req.Workload.Object = object
	// The Pods of a workload without a selector are unknown.
	if w.scale.Status.Selector != "" {
		if err := t.pods(ctx, w, req); err != nil {
			return decision{}, &inputError{err}
		}
	}
	return ask(ctx, plugin, req)
}

// pods adds the Pods of a workload to a request.
func (t *turn) pods(ctx context.Context, w *workload, req *scaler.ReplicasRequest) error {
	selector, err := labels.Parse(w.scale.Status.Selector)
	if err != nil {
		return fmt.Errorf("read Pods: %w", err)
	}
	// The guest reads the Pods, and so does the plugin until the next call. Pods in the cache are
	// never changed.
	pods := &corev1.PodList{}
	err = t.Client.List(ctx, pods, client.InNamespace(t.policy.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("read Pods: %w", err)
	}
	var usage map[string]scaler.Usage
	if t.policy.Spec.PodUsage && t.Metrics != nil {
		ctx, cancel := context.WithTimeout(ctx, metricsTimeout)
		defer cancel()
		if usage, err = t.Metrics.PodUsage(ctx, t.policy.Namespace, selector); err != nil {
			return fmt.Errorf("read the usage of the Pods: %w", err)
		}
	}
	for i := range pods.Items {
		pod := scaler.Pod{Pod: &pods.Items[i]}
		if u, ok := usage[pod.Pod.Name]; ok {
			pod.Usage = &u
		}
		req.Pods = append(req.Pods, pod)
	}
	slices.SortFunc(req.Pods, func(a, b scaler.Pod) int { return strings.Compare(a.Pod.Name, b.Pod.Name) })
	return nil
}

// inputError is the error of a guest that could not be asked.
type inputError struct{ error }

// reasonOf returns the reason of the condition for an error of ask.
func reasonOf(err error) string {
	if _, ok := errors.AsType[*inputError](err); ok {
		return "InputMissing"
	}
	if _, ok := errors.AsType[*answerError](err); ok {
		return "InvalidAnswer"
	}
	return "GuestFailed"
}

// act scales the workload to the last decision within the bounds. The decision must be in the
// status first.
func (t *turn) act(ctx context.Context, w *workload, last *v1alpha1.Decision) error {
	spec, status := &t.policy.Spec, &t.policy.Status
	replicas, limit := bounded(last.Replicas, spec.MinReplicas, spec.MaxReplicas)
	status.DesiredReplicas = &replicas
	if limit == "" {
		t.set(v1alpha1.Limited, metav1.ConditionFalse, "WithinBounds", "")
	} else {
		t.set(v1alpha1.Limited, metav1.ConditionTrue, "OutOfBounds", limit)
	}
	if had := w.scale.Spec.Replicas; had != replicas {
		if err := t.write(ctx); err != nil {
			return err
		}
		w.scale.Spec.Replicas = replicas
		_, err := t.Scales.Scales(t.policy.Namespace).Update(ctx, w.resource, w.scale, metav1.UpdateOptions{})
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			scalesTotal.WithLabelValues("conflict").Inc()
			return errChanged
		case err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			scalesTotal.WithLabelValues("error").Inc()
			t.fail("ScaleFailed", "write scale: "+err.Error())
			t.event(corev1.EventTypeWarning, "ScaleFailed", "Scale", err.Error())
			return fmt.Errorf("write scale: %w", err)
		}
		scalesTotal.WithLabelValues("ok").Inc()
		now := metav1.NewTime(t.Clock.Now())
		status.LastScaleTime = &now
		t.event(corev1.EventTypeNormal, "Scaled", "Scale", fmt.Sprintf("from %d to %d replicas: %s", had, replicas, last.Reason))
	}
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.GuestAnswers); c.Status != metav1.ConditionTrue {
		t.fail("KeepsLastAnswer", fmt.Sprintf("%d replicas: the guest does not answer", replicas))
		return nil
	}
	t.set(v1alpha1.Ready, metav1.ConditionTrue, "Scaled", fmt.Sprintf("%d replicas", replicas))
	return nil
}

// event records an Event on the policy.
func (t *turn) event(kind, reason, action, message string) {
	t.Events.Eventf(t.policy, nil, kind, reason, action, "%s", short(message, maxErrorBytes))
}

var _ reconcile.Reconciler = (*Reconciler)(nil)
