// Package rollouts keeps the revisions of plugins, and decides which of them each process serves.
//
// A decision is in the status of the plugin. Processes choose by their names, so none is told by
// itself. It is made of the status before and of the reports, and written if nobody has written the
// object meanwhile: a controller that is killed, or that is one of two, changes nothing about it.
//
// The status has the specs of the stable revision and of the one on trial. Processes could read the
// PluginRevisions in their place, but then 5,000 agents would watch a second resource, a decision could
// come before the revision that it names, and an agent that starts again without the API server would
// need both to be of the same time.
package rollouts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/status"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

const (
	// pause is the time in which reports are collected. A failure waits no longer.
	pause = 200 * time.Millisecond
	// retry and maxRetry bound the time after a failure.
	retry, maxRetry = 100 * time.Millisecond, 30 * time.Second
	// maxMessageBytes bounds the message of the condition RolledOut.
	maxMessageBytes = 1024
	// maxSteps bounds the steps of a rollout.
	maxSteps = 20
)

// Reconciler writes the revisions of plugins, and the member rollout of their status.
type Reconciler struct {
	// Namespace is the one of the revisions of plugins of the cluster, and of the webhooks.
	Namespace string
	// Client reads from the cache and Reader from the API server.
	Client    client.Client
	Reader    client.Reader
	Processes *status.Processes
	// Events receives an Event on the object of a plugin whose rollout begins, ends or fails.
	Events events.EventRecorder
	// RolledBack counts rollouts that failed, by the kind of the plugin and the cause.
	RolledBack *prometheus.CounterVec

	// long are the keys of plugins whose history is too long, since processes served some of it.
	long sync.Map
	// waiting are the keys that wait in the queue because of reports.
	waiting status.Waiting[plugin.Key]
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.NewTyped("rollouts", mgr, controller.TypedOptions[plugin.Key]{
		Reconciler: r, MaxConcurrentReconciles: 2, SkipNameValidation: ptr.To(true), RateLimiter: status.Backoff(retry, maxRetry),
	})
	if err != nil {
		return err
	}
	err = c.Watch(source.TypedFunc[plugin.Key](func(_ context.Context, q status.Queue) error {
		return r.Processes.Reports.OnChange(func(before, after *reports.Report) {
			reports.Changed(before, after, func(k plugin.Key) {
				if r.waiting.Add(k) {
					q.AddAfter(k, pause)
				}
			})
		})
	}))
	if err != nil {
		return err
	}
	for _, kind := range plugin.Kinds() {
		if err := c.Watch(status.Plugins(mgr, kind, func(q status.Queue, k plugin.Key) { q.Add(k) }, changed)); err != nil {
			return err
		}
	}
	return nil
}

// changed reports whether the decision about a plugin may change with it.
func changed(before, after plugin.Plugin) bool {
	return before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID() ||
		!equality.Semantic.DeepEqual(before.Status.Pin, after.Status.Pin) || !equality.Semantic.DeepEqual(before.Status.Rollout, after.Status.Rollout)
}

// pinOf returns the artifact that the spec's module was resolved to, empty if it was not.
func pinOf(p plugin.Plugin) string {
	if pin := p.Status.Pin; pin != nil && pin.Generation == p.GetGeneration() {
		return pin.Reference
	}
	return ""
}

// Reconcile decides about a plugin.
func (r *Reconciler) Reconcile(ctx context.Context, key plugin.Key) (reconcile.Result, error) {
	r.waiting.Taken(key)
	object := plugin.New(key.Kind)
	if err := r.Client.Get(ctx, key.ObjectKey(), object); err != nil {
		r.long.Delete(key)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p, _ := plugin.Of(object)
	if !p.GetDeletionTimestamp().IsZero() {
		return reconcile.Result{}, nil
	}
	spec, err := p.Spec()
	before := p.Status.Rollout
	condition := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)
	if err == nil && before != nil && before.Generation == p.GetGeneration() && before.Pin == pinOf(p) && condition != nil && condition.ObservedGeneration == p.GetGeneration() {
		if before.Candidate == nil || before.Step == 0 {
			if _, long := r.long.Load(key); !long {
				return reconcile.Result{}, nil
			}
			all, err := r.history(ctx, p)
			if err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{}, r.trim(ctx, p, all, limit(key, spec), before)
		}
		// The cache is enough to see that there is nothing to do.
		in, err := r.input(ctx, p, spec)
		if err != nil {
			return reconcile.Result{}, err
		}
		in.wanted = *before.Candidate
		if res := next(before, in); equality.Semantic.DeepEqual(&res.status, before) && res.reason == condition.Reason {
			return reconcile.Result{RequeueAfter: res.wait}, nil
		}
	}
	result, err := r.decide(ctx, key)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: retry}, nil // Somebody has written the object meanwhile.
	}
	return result, err
}

// refusal is the reason that nothing can be decided. It is shown in the condition.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

// input returns the input of a decision without the wanted revision.
func (r *Reconciler) input(ctx context.Context, p plugin.Plugin, spec *plugin.Spec) (*input, error) {
	in := &input{key: p.Key, generation: p.GetGeneration(), pin: pinOf(p), off: spec.Enabled != nil && !*spec.Enabled, now: time.Now()}
	if len(spec.Rollout) == 0 || spec.Revision != 0 {
		return in, nil
	}
	in.rollout = new(clusterplugins.Rollout)
	err := configfile.JSON(spec.Rollout, in.rollout)
	if err == nil {
		err = check(in.rollout, p.Key)
	}
	if err != nil {
		return nil, &refusal{reasonInvalid, "rollout: " + err.Error()}
	}
	selector, err := labels.Parse(spec.NodeSelector)
	if err != nil {
		return nil, &refusal{reasonInvalid, "nodeSelector: " + err.Error()}
	}
	in.processes, err = r.Processes.Of(ctx, p, selector, r.Namespace)
	return in, err
}

// check returns the mistakes in a rollout.
func check(of *clusterplugins.Rollout, key plugin.Key) error {
	var errs []error
	fail := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	fail(key.Kind == plugin.SchedulerPlugin, "one scheduler at a time schedules, so that a change has no steps: try it as a shadow, or under another name of a scheduler")
	fail(len(of.Steps) > maxSteps, "there are %d steps, more than %d", len(of.Steps), maxSteps)
	fail(of.ProgressDeadline < 0, "progressDeadline is negative")
	fail(of.Unavailable != nil && (*of.Unavailable < 0 || *of.Unavailable > 100), "unavailable is no percentage")
	fail(of.Analysis.Failures < 0 || of.Analysis.Differences < 0 || of.Analysis.Latency < 0 || of.Analysis.Processes < 0, "analysis has a negative bound")
	fail(of.Analysis.Latency%time.Microsecond != 0, "analysis.latency has a fraction of a microsecond")
	for i := range of.Steps {
		one := &of.Steps[i]
		fail(one.Percent < 0 || one.Percent > 100, "steps[%d].percent is %d", i, one.Percent)
		fail(one.Pause != nil && *one.Pause < 0, "steps[%d].pause is negative", i)
		fail(one.Mode != "" && one.Mode != clusterplugins.Shadow && one.Mode != clusterplugins.Monitor, "steps[%d].mode is %q, want Shadow or Monitor", i, one.Mode)
		fail(one.Mode == clusterplugins.Shadow && key.Kind == plugin.AdmissionPolicy, "steps[%d].mode is Shadow, which is not for an AdmissionPolicy: its memory and its share of a processor are beside those of the server's policies", i)
		fail(one.NodeSelector != "" && plugin.Component(key.Kind) != plugin.Agent, "steps[%d].nodeSelector is for agents", i)
		_, err := labels.Parse(one.NodeSelector)
		fail(err != nil, "steps[%d].nodeSelector: %w", i, err)
	}
	return errors.Join(errs...)
}

// decide decides about a plugin as the API server has it, and writes the decision.
func (r *Reconciler) decide(ctx context.Context, key plugin.Key) (reconcile.Result, error) {
	object := plugin.New(key.Kind)
	if err := r.Reader.Get(ctx, key.ObjectKey(), object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p, _ := plugin.Of(object)
	if !p.GetDeletionTimestamp().IsZero() {
		return reconcile.Result{}, nil
	}
	var res *result
	all, err := r.history(ctx, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	spec, err := p.Spec()
	if err != nil {
		err = &refusal{reasonInvalid, err.Error()}
	} else {
		res, err = r.result(ctx, p, spec, all)
	}
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		res = r.refuse(p, refused, spec, all)
	} else if err != nil {
		return reconcile.Result{}, err
	}
	before := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionRolledOut)
	if res.reason == "" && before == nil {
		res.reason, res.message = reasonRolledBack, fmt.Sprintf("revision %d was rolled back", res.status.Failed)
	}
	condition := &metav1.Condition{
		Type: v1alpha1.ConditionRolledOut, Status: metav1.ConditionFalse, ObservedGeneration: p.GetGeneration(),
		Reason: res.reason, Message: cut.Text(foreign.Line(res.message), maxMessageBytes),
	}
	if res.reason == "" {
		condition = before.DeepCopy()
		condition.ObservedGeneration = p.GetGeneration()
	}
	if condition.Reason == reasonComplete {
		condition.Status = metav1.ConditionTrue
	}
	of, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&res.status)
	if err != nil {
		return reconcile.Result{}, err
	}
	var member any
	if res.status.Generation != 0 {
		member = of
	}
	if err := status.Exchange(ctx, r.Client, p, "rollouts", map[string]any{"rollout": member}, condition); err != nil {
		return reconcile.Result{}, err
	}
	if res.cause != "" {
		r.RolledBack.WithLabelValues(key.Kind, res.cause).Inc()
	}
	r.tell(object, before, condition, spec)
	return reconcile.Result{RequeueAfter: res.wait}, r.trim(ctx, p, all, limit(key, spec), &res.status)
}

// result returns the decision about a plugin. The error may be a refusal.
func (r *Reconciler) result(ctx context.Context, p plugin.Plugin, spec *plugin.Spec, all history) (*result, error) {
	in, err := r.input(ctx, p, spec)
	if err != nil {
		return nil, err
	}
	wanted := all.ref(spec.Revision)
	switch {
	case spec.Revision != 0 && wanted == nil:
		return nil, &refusal{reasonGone, fmt.Sprintf("there is no revision %d: the history has %s", spec.Revision, all.numbers())}
	case spec.Revision == 0:
		if ref, err := oci.ParseReference(spec.Module.OCI); spec.Module.OCI != "" && (err != nil || ref.Layout == "" && in.pin == "") {
			return nil, &refusal{reasonNotResolved, "the module is not resolved: see the condition Resolved"}
		}
		wanted, err = r.record(ctx, p, in.pin, all)
		if errors.Is(err, errTooLarge) {
			return nil, &refusal{reasonTooLarge, err.Error()}
		}
		if err != nil {
			return nil, err
		}
	}
	in.wanted = *wanted
	before, err := r.before(p, spec, all)
	if err != nil {
		return nil, err
	}
	if !spec.Controlled() {
		in.wanted.Spec = nil
		// The processes report on the generation.
		in.wanted.Generation = p.GetGeneration()
	}
	return next(before, in), nil
}

// before returns the status before a decision, whose stable revision has its spec if processes need it.
func (r *Reconciler) before(p plugin.Plugin, spec *plugin.Spec, all history) (*v1alpha1.RolloutStatus, error) {
	before := p.Status.Rollout.DeepCopy()
	if before == nil || before.Stable == nil || before.Stable.Spec != nil || spec == nil || !spec.Controlled() {
		return before, nil
	}
	number := before.Stable.Revision
	if before.Stable = all.ref(number); before.Stable == nil {
		return nil, &refusal{reasonGone, fmt.Sprintf("the stable revision %d is gone, which processes serve while another one is on trial: remove rollout from the spec once", number)}
	}
	return before, nil
}

// refuse returns the decision about a plugin about which nothing can be decided: the trial ends, since
// the spec wants another revision.
func (r *Reconciler) refuse(p plugin.Plugin, why *refusal, spec *plugin.Spec, all history) *result {
	res := &result{reason: why.reason, message: why.message}
	before, err := r.before(p, spec, all)
	if err != nil {
		before = p.Status.Rollout.DeepCopy()
	}
	if before == nil {
		return res
	}
	d := &rollout{input: &input{key: p.Key}, result: result{status: *before}}
	s := &d.status
	if s.Step != 0 {
		parked := s.Candidate
		d.end(nil)
		if s.Stable == nil && plugin.Component(p.Key.Kind) == plugin.Webhook {
			s.Candidate = parked
		}
	}
	if why.reason == reasonGone || why.reason == reasonInvalid {
		s.Generation, s.Pin, s.Failed = p.GetGeneration(), pinOf(p), 0
		if s.Wanted = 0; spec != nil {
			s.Wanted = spec.Revision
		}
	}
	res.status = *s
	return res
}

// limit returns the number of revisions to keep. Those who write in a namespace get no more than the
// default.
func limit(key plugin.Key, spec *plugin.Spec) int {
	switch {
	case spec == nil || spec.RevisionHistoryLimit == nil:
		return defaultHistory
	case key.Namespace != "":
		return min(max(0, *spec.RevisionHistoryLimit), defaultHistory)
	}
	return max(0, *spec.RevisionHistoryLimit)
}

// tell writes an Event if a rollout has begun, ended or failed.
func (r *Reconciler) tell(object client.Object, before, now *metav1.Condition, spec *plugin.Spec) {
	if before != nil && before.Reason == now.Reason && before.Message == now.Message {
		return
	}
	kind := corev1.EventTypeNormal
	switch now.Reason {
	case reasonComplete, reasonPaused, reasonProgressing:
		if spec == nil || !spec.Controlled() {
			return // It serves at once.
		}
	case reasonNotResolved:
		return // It is about to be.
	default:
		kind = corev1.EventTypeWarning
	}
	r.Events.Eventf(object, nil, kind, "Rollout"+now.Reason, "Roll", "%s", now.Message)
}
