package status

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/host"
)

// interval is the time between two writes of a status: many processes report at about the same time.
const interval = time.Second

// Queue is a queue of plugins.
type Queue = workqueue.TypedRateLimitingInterface[plugin.Key]

// Reconciler writes the status of plugins, and removes reports whose Pod is gone.
type Reconciler struct {
	*Processes
	Client client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Events receives an Event on the object of a plugin that stops to serve as it was declared, and
	// one when it does so again.
	Events events.EventRecorder

	// keys wait in the queue, and so do all plugins of components.
	keys       Waiting[plugin.Key]
	components Waiting[string]
}

// SetupWithManager adds the controllers to a manager.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.NewTyped("status", mgr, controller.TypedOptions[plugin.Key]{Reconciler: r, SkipNameValidation: ptr.To(true)})
	if err != nil {
		return err
	}
	err = c.Watch(source.TypedFunc[plugin.Key](func(ctx context.Context, q Queue) error {
		return r.Reports.OnChange(func(before, after *reports.Report) {
			if before == nil || after == nil || before.Node != after.Node {
				// It was counted as a process without a report.
				r.enqueue(ctx, q, componentOf(before, after))
				return
			}
			reports.Changed(before, after, func(k plugin.Key) { r.soon(q, k) })
		})
	}))
	if err != nil {
		return err
	}
	for _, kind := range plugin.Kinds() {
		if err := c.Watch(Plugins(mgr, kind, r.soon, func(_, _ plugin.Plugin) bool { return true })); err != nil {
			return err
		}
	}
	if err := c.Watch(source.TypedKind(mgr.GetCache(), &corev1.Pod{}, onPods(r.enqueue))); err != nil {
		return err
	}
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	if err := c.Watch(source.TypedKind(mgr.GetCache(), node, onNodes(r.enqueue))); err != nil {
		return err
	}
	return r.removeReports(mgr)
}

// Plugins is the source of the plugins of a kind, whose events call add with their keys: updates that
// changed does not reject.
func Plugins(mgr manager.Manager, kind string, add func(Queue, plugin.Key), changed func(before, after plugin.Plugin) bool) source.TypedSource[plugin.Key] {
	of := func(q Queue, o client.Object) {
		p, _ := plugin.Of(o)
		add(q, p.Key)
	}
	return source.TypedKind(mgr.GetCache(), plugin.New(kind), handler.TypedFuncs[client.Object, plugin.Key]{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q Queue) { of(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q Queue) {
			before, _ := plugin.Of(e.ObjectOld)
			after, _ := plugin.Of(e.ObjectNew)
			if changed(before, after) {
				add(q, after.Key)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q Queue) { of(q, e.Object) },
	})
}

// Objects is the source of the objects of a kind, whose events call add.
func Objects(mgr manager.Manager, kind client.Object, add func(Queue)) source.TypedSource[plugin.Key] {
	return source.TypedKind(mgr.GetCache(), kind, handler.TypedFuncs[client.Object, plugin.Key]{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q Queue) { add(q) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q Queue) { add(q) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q Queue) { add(q) },
	})
}

func componentOf(before, after *reports.Report) string {
	if after != nil {
		return after.Component
	}
	return before.Component
}

// onPods enqueues the plugins of a component when its processes change.
func onPods(enqueue func(context.Context, Queue, string)) handler.TypedEventHandler[*corev1.Pod, plugin.Key] {
	return handler.TypedFuncs[*corev1.Pod, plugin.Key]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*corev1.Pod], q Queue) {
			enqueue(ctx, q, e.Object.Labels[componentLabel])
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*corev1.Pod], q Queue) {
			if runs(e.ObjectOld) != runs(e.ObjectNew) || e.ObjectOld.Spec.NodeName != e.ObjectNew.Spec.NodeName {
				enqueue(ctx, q, e.ObjectNew.Labels[componentLabel])
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*corev1.Pod], q Queue) {
			enqueue(ctx, q, e.Object.Labels[componentLabel])
		},
	}
}

// onNodes enqueues NodeHooks when labels of nodes change.
func onNodes(enqueue func(context.Context, Queue, string)) handler.TypedEventHandler[*metav1.PartialObjectMetadata, plugin.Key] {
	return handler.TypedFuncs[*metav1.PartialObjectMetadata, plugin.Key]{
		CreateFunc: func(ctx context.Context, _ event.TypedCreateEvent[*metav1.PartialObjectMetadata], q Queue) {
			enqueue(ctx, q, plugin.Agent)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*metav1.PartialObjectMetadata], q Queue) {
			if !equality.Semantic.DeepEqual(e.ObjectOld.Labels, e.ObjectNew.Labels) {
				enqueue(ctx, q, plugin.Agent)
			}
		},
	}
}

// soon enqueues a plugin.
func (r *Reconciler) soon(q Queue, k plugin.Key) {
	if r.keys.Add(k) {
		q.AddAfter(k, interval)
	}
}

// enqueue enqueues all plugins of a component.
func (r *Reconciler) enqueue(ctx context.Context, q Queue, component string) {
	if !r.components.Add(component) {
		return
	}
	for _, list := range plugin.Lists(component) {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			r.components.Taken(component)
			return // The cache ends.
		}
		for _, p := range plugin.All(list) {
			q.AddAfter(p.Key, interval)
		}
	}
}

// Reconcile writes the status of a plugin.
func (r *Reconciler) Reconcile(ctx context.Context, key plugin.Key) (reconcile.Result, error) {
	r.keys.Taken(key)
	r.components.Taken(plugin.Component(key.Kind))
	object := plugin.New(key.Kind)
	if err := r.Client.Get(ctx, key.ObjectKey(), object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	p, _ := plugin.Of(object)
	processes, err := r.of(ctx, plugin.Component(key.Kind))
	if err != nil {
		return reconcile.Result{}, err
	}
	status := summary(p, processes, r.nodes(ctx))
	ready := &status.Conditions[0]
	before := meta.FindStatusCondition(p.Status.Conditions, ready.Type)
	err = Apply(ctx, r.Client, p, "status", map[string]any{
		"observedGeneration": status.ObservedGeneration, "desired": int64(status.Desired), "serving": int64(status.Serving),
		"ready": status.Ready, "digest": status.Digest, "revision": status.Revision,
	}, ready)
	if err == nil {
		r.tell(object, before, ready)
	}
	return reconcile.Result{}, err
}

// tell writes an Event if the readiness of a plugin has changed: not while processes take a new
// generation.
func (r *Reconciler) tell(object client.Object, before, now *metav1.Condition) {
	fails := func(c *metav1.Condition) bool {
		return c != nil && c.Status == metav1.ConditionFalse && (c.Reason == string(host.Stale) || c.Reason == string(host.Unavailable) || c.Reason == v1alpha1.StateRefused)
	}
	switch {
	case fails(now) && (!fails(before) || before.Reason != now.Reason || before.ObservedGeneration != now.ObservedGeneration):
		r.Events.Eventf(object, nil, corev1.EventTypeWarning, "Plugin"+now.Reason, "Serve", "%s", now.Message)
	case now.Status == metav1.ConditionTrue && fails(before):
		r.Events.Eventf(object, nil, corev1.EventTypeNormal, "PluginServing", "Serve", "the plugin serves as it was declared")
	}
}

// removeReports adds the controller that removes reports whose Pod is gone, and those of no Pod that are
// not renewed. The garbage collector removes the former as well, but not if the Pod went before its
// report came.
func (r *Reconciler) removeReports(mgr manager.Manager) error {
	remove := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		report := r.Reports.Get(req.Namespace, req.Name)
		if report == nil {
			return reconcile.Result{}, nil
		}
		uid, owned := report.Pod()
		if left := report.Left(time.Now()); !owned && left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil
		}
		pod := &metav1.PartialObjectMetadata{}
		pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
		if err := r.Reader.Get(ctx, req.NamespacedName, pod); owned && (err == nil && pod.UID == uid || err != nil && !apierrors.IsNotFound(err)) {
			return reconcile.Result{}, err
		}
		of := &v1alpha1.PluginReport{ObjectMeta: metav1.ObjectMeta{Namespace: req.Namespace, Name: req.Name}}
		err := r.Client.Delete(ctx, of, client.Preconditions{UID: &report.UID})
		if apierrors.IsConflict(err) {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	})
	c, err := controller.New("reports", mgr, controller.Options{Reconciler: remove, SkipNameValidation: ptr.To(true)})
	if err != nil {
		return err
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	request := func(namespace, name string) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}}
	}
	err = c.Watch(source.Func(func(ctx context.Context, q queue) error {
		return r.Reports.OnChange(func(before, after *reports.Report) {
			if before != nil || after == nil {
				return
			}
			uid, owned := after.Pod()
			pod := &corev1.Pod{}
			if owned && r.Client.Get(ctx, client.ObjectKey{Namespace: after.Namespace, Name: after.Name}, pod) == nil && pod.UID == uid {
				return
			}
			q.AddAfter(request(after.Namespace, after.Name), interval) // The cache may be behind.
		})
	}))
	if err != nil {
		return err
	}
	return c.Watch(source.Kind(mgr.GetCache(), &corev1.Pod{}, handler.TypedFuncs[*corev1.Pod, reconcile.Request]{
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*corev1.Pod], q queue) {
			q.AddAfter(request(e.Object.Namespace, e.Object.Name), interval)
		},
	}))
}
