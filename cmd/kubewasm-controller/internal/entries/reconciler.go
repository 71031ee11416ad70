package entries

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/status"
	"github.com/kubewasm/kubewasm/internal/cut"
	"github.com/kubewasm/kubewasm/internal/foreign"
)

const (
	// pause is the time in which changes of reports and policies are collected.
	pause = 100 * time.Millisecond
	// rereads is the interval in which the CAs are read again.
	rereads = 10 * time.Second
	// maxMessageBytes bounds the message of the condition Sent.
	maxMessageBytes = 1024
	// maxEntryBytes bounds an entry without its CAs, and maxBytes a configuration: etcd takes objects of
	// 1.5 MiB. Policies beyond it get no requests, and those that have an entry keep it.
	maxEntryBytes = 16 << 10
	maxBytes      = 1400 << 10
	// managedBytes are those in managedFields for an entry, besides its name.
	managedBytes = 640
	// releasedAnnotation changes when a policy is given up, so that a controller that has not seen
	// that yet cannot write.
	releasedAnnotation = "kubewasm.dev/released"
)

// Reconciler writes the webhook configurations.
type Reconciler struct {
	Config
	// Client reads from the cache and Reader from the API server.
	Client    client.Client
	Reader    client.Reader
	Processes *status.Processes
}

// SetupWithManager adds the controller to a manager. All events lead to one request.
func (r *Reconciler) SetupWithManager(mgr manager.Manager) error {
	c, err := controller.NewTyped("entries", mgr, controller.TypedOptions[plugin.Key]{
		Reconciler: r, SkipNameValidation: ptr.To(true),
		// A policy that fails for ever does not delay the others.
		RateLimiter: status.Backoff(pause, rereads),
	})
	if err != nil {
		return err
	}
	add := func(q status.Queue) { q.AddAfter(plugin.Key{}, pause) }
	err = c.Watch(source.TypedFunc[plugin.Key](func(_ context.Context, q status.Queue) error {
		add(q)
		return r.Processes.Reports.OnChange(func(before, after *reports.Report) {
			changed := false
			reports.Changed(before, after, func(plugin.Key) { changed = true })
			if changed && (before == nil || before.Component == plugin.Webhook || after != nil && after.Component == plugin.Webhook) {
				add(q)
			}
		})
	}))
	if err != nil {
		return err
	}
	for _, kind := range []string{plugin.ClusterAdmissionPolicy, plugin.AdmissionPolicy} {
		if err := c.Watch(status.Plugins(mgr, kind, func(q status.Queue, _ plugin.Key) { add(q) }, changed)); err != nil {
			return err
		}
	}
	for _, configuration := range []client.Object{&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}} {
		if err := c.Watch(status.Objects(mgr, configuration, add)); err != nil {
			return err
		}
	}
	return c.Watch(status.Objects(mgr, &corev1.Pod{}, add))
}

// changed reports whether entries may change with a policy.
func changed(before, after plugin.Plugin) bool {
	return before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID() || before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero() ||
		!slices.Equal(before.GetFinalizers(), after.GetFinalizers()) || !equality.Semantic.DeepEqual(before.Status.Rollout, after.Status.Rollout)
}

// decision is the fate of a policy.
type decision struct {
	plugin.Plugin
	order int
	// entries are those of the policy, by the verb of the configuration.
	entries map[string]*entry
	// refusal is the reason that there are no entries, or that they are as before.
	refusal *refusal
}

func (d *decision) refuse(reason, format string, args ...any) {
	d.entries, d.refusal = nil, &refusal{reason, fmt.Sprintf(format, args...)}
}

// size is that of the larger entry in etcd, in bytes.
func (d *decision) size() (n int) {
	for _, e := range d.entries {
		n = max(n, e.Size()+len(e.Name)+managedBytes)
	}
	return n
}

// pass is one call of Reconcile.
type pass struct {
	*Reconciler
	configurations []*configuration
	processes      status.Snapshot
	caBundle       []byte
	caErr          error
	// errs are the errors of single policies, which keep no other from its entries.
	errs []error
}

// Reconcile writes the entries, and gives policies up that are being deleted.
func (r *Reconciler) Reconcile(ctx context.Context, _ plugin.Key) (reconcile.Result, error) {
	p := &pass{Reconciler: r}
	err := p.run(ctx)
	if apierrors.IsConflict(err) {
		// The cache is behind, or there is another controller.
		return reconcile.Result{RequeueAfter: pause}, nil
	}
	return reconcile.Result{RequeueAfter: rereads}, err
}

func (p *pass) run(ctx context.Context) error {
	if err := p.read(ctx); err != nil {
		return err
	}
	var decisions []*decision
	var leaving []plugin.Plugin
	for _, list := range plugin.Lists(plugin.Webhook) {
		if err := p.Client.List(ctx, list); err != nil {
			return err
		}
		for _, policy := range plugin.All(list) {
			if !policy.GetDeletionTimestamp().IsZero() {
				if controllerutil.ContainsFinalizer(policy, Finalizer) {
					leaving = append(leaving, policy)
				}
				continue
			}
			d := &decision{Plugin: policy}
			p.decide(ctx, d)
			decisions = append(decisions, d)
		}
	}
	slices.SortFunc(decisions, func(a, b *decision) int {
		return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.Key.String(), b.Key.String()))
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.bound(decisions)
	for _, c := range p.configurations {
		if err := p.write(ctx, c, decisions, leaving); err != nil {
			return err
		}
	}
	errs := p.errs
	for _, policy := range leaving {
		errs = append(errs, p.release(ctx, policy))
	}
	for _, d := range decisions {
		if p.CAFile == "" && len(d.entries) == 0 && meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionSent) == nil {
			continue // The webhook configurations are written by others.
		}
		errs = append(errs, p.report(ctx, d))
	}
	if p.caErr != nil && p.CAFile != "" {
		errs = append(errs, fmt.Errorf("read the CAs of the webhook: %w", p.caErr))
	}
	return errors.Join(errs...)
}

// read reads the configurations from the cache, and writes empty ones if there are none: with entries
// none is created, since that does not tell whether another controller has given a policy up.
func (p *pass) read(ctx context.Context) (err error) {
	p.configurations = configurations()
	for _, c := range p.configurations {
		err := p.Client.Get(ctx, client.ObjectKey{Name: p.Name}, c.Object)
		if c.absent = apierrors.IsNotFound(err) && p.CAFile == ""; c.absent {
			continue
		}
		if apierrors.IsNotFound(err) {
			c.SetName(p.Name)
			c.SetLabels(map[string]string{"app.kubernetes.io/part-of": "kubewasm", "app.kubernetes.io/managed-by": "kubewasm-controller"})
			if err = p.Client.Create(ctx, c.Object); apierrors.IsAlreadyExists(err) {
				err = apierrors.NewConflict(schema.GroupResource{Group: admissionv1.GroupName}, p.Name, err)
			}
		}
		if err != nil {
			return err
		}
		c.present = map[string]*entry{}
		for _, e := range c.list() {
			c.present[e.Name] = &e
		}
	}
	if p.processes, err = p.Processes.Snapshot(ctx, plugin.Webhook, p.Namespace); err != nil {
		return err
	}
	p.caBundle, p.caErr = p.Config.caBundle()
	return nil
}

// has reports whether a configuration has an entry for a policy.
func (p *pass) has(k plugin.Key) bool {
	return slices.ContainsFunc(p.configurations, func(c *configuration) bool { return c.present[nameOf(k)] != nil })
}

// decide finds the entries of a policy.
func (p *pass) decide(ctx context.Context, d *decision) {
	if p.CAFile == "" {
		d.refuse(reasonCertificate, "%v: start it with the CAs of the webhook's certificate", errNoCAFile)
		p.keep(d, nil)
		return
	}
	e, spec, refused := p.entry(d.Plugin, p.caBundle)
	if refused != nil {
		d.refusal = refused
		if refused.reason == reasonRules || refused.reason == reasonNoRules || refused.reason == reasonNotServing {
			p.keep(d, nil) // Replicas serve the version before the mistake, or before what is not decided yet.
		}
		return
	}
	d.order = spec.Order
	all, validate, mutate, disabled := p.processes.Guards(d.Key, d.GetUID())
	can := map[string]bool{"validate": validate > 0, "mutate": mutate > 0 && spec.AllowedToMutate}
	switch {
	case disabled:
		d.refuse(reasonDisabled, "the replicas have it disabled")
		return
	case all < p.Replicas:
		d.refuse(reasonNotServing, "%d replicas serve it, of the %d before which no requests are sent", all, p.Replicas)
		// Without its entry, what it has guarded would pass. Replicas that cannot load it answer by its
		// failure policy, and so do API servers that reach none.
		p.keep(d, e)
		return
	case validate+mutate == 0:
		d.refuse(reasonNotServing, "the replicas report no webhook that the policy is a part of")
		return
	case !can["validate"] && !can["mutate"]:
		d.refuse(reasonNotServing, "the policy mutates objects, and allowedToMutate is not set")
		return
	}
	if !p.has(d.Key) || !controllerutil.ContainsFinalizer(d, Finalizer) {
		if p.caErr != nil {
			d.refuse(reasonCertificate, "the CAs of the webhook cannot be read: %v", p.caErr)
			return
		}
		ok, err := p.hold(ctx, d.Plugin)
		switch {
		case err != nil:
			p.errs = append(p.errs, fmt.Errorf("add the finalizer to %s: %w", d.Key, err))
			d.refuse(reasonFinalizer, "%v", err)
			p.keep(d, nil)
			return
		case !ok:
			d.refuse(reasonNotServing, "the policy is being deleted")
			return
		}
	}
	d.entries = map[string]*entry{}
	for _, c := range p.configurations {
		if can[c.verb] {
			p.put(d, c, e)
		}
	}
}

// put gives a policy an entry of a configuration. Without CAs it is one that the configuration has.
func (p *pass) put(d *decision, c *configuration, e *entry) {
	e = at(e, c.verb, d.Key)
	if p.caErr != nil {
		before := c.present[e.Name]
		if before == nil {
			return
		}
		e.ClientConfig.CABundle = before.ClientConfig.CABundle
	}
	d.entries[c.verb] = e
}

// keep lets a policy have the entries that it has: as they are, with the CAs of now, or with the
// settings of e.
func (p *pass) keep(d *decision, e *entry) {
	d.entries = map[string]*entry{}
	for _, c := range p.configurations {
		before := c.present[nameOf(d.Key)]
		switch {
		case before == nil:
		case e == nil && p.caErr != nil:
			d.entries[c.verb] = before
		case e == nil:
			e := before.DeepCopy()
			e.ClientConfig.CABundle = p.caBundle
			d.entries[c.verb] = e
		default:
			p.put(d, c, e)
		}
	}
}

// hold adds the finalizer to a policy. ok is false if the policy is being deleted, or is gone. The
// API server is asked in any case: the cache may not have that yet.
func (r *Reconciler) hold(ctx context.Context, p plugin.Plugin) (ok bool, err error) {
	o := metadata(p)
	if err := r.Reader.Get(ctx, p.Key.ObjectKey(), o); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if o.UID != p.GetUID() || !o.DeletionTimestamp.IsZero() {
		return false, nil
	}
	before := o.DeepCopy()
	if !controllerutil.AddFinalizer(o, Finalizer) {
		return true, nil
	}
	// With the version: a policy that is being deleted meanwhile gets none.
	err = r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return err == nil, client.IgnoreNotFound(err)
}

// release removes the finalizer from a policy that has no entries.
func (r *Reconciler) release(ctx context.Context, p plugin.Plugin) error {
	o := metadata(p)
	o.SetResourceVersion(p.GetResourceVersion())
	o.SetFinalizers(p.GetFinalizers())
	before := o.DeepCopy()
	controllerutil.RemoveFinalizer(o, Finalizer)
	return client.IgnoreNotFound(r.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// metadata returns an object with the name of a plugin.
func metadata(p plugin.Plugin) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(p.Key.Kind))
	o.SetNamespace(p.Key.Namespace)
	o.SetName(p.Key.Name)
	return o
}

// bound refuses entries that are too large, and those for which there is no room. Policies of the
// cluster come before those of namespaces, so that no namespace takes their room, and among these
// the entries that there are before larger and new ones.
func (p *pass) bound(decisions []*decision) {
	for _, d := range decisions {
		if n := d.size() - len(p.caBundle); n > maxEntryBytes {
			d.refuse(reasonRules, "the entry has %d bytes, more than %d", n, maxEntryBytes)
		}
	}
	all := 0
	fits := func(n int) bool {
		if n > 0 && all+n > maxBytes {
			return false
		}
		all += n
		return true
	}
	const message = "the entries would have more than %d bytes"
	for _, kind := range []string{plugin.ClusterAdmissionPolicy, plugin.AdmissionPolicy} {
		var present, added []*decision
		for _, d := range decisions {
			switch {
			case d.Key.Kind != kind || d.entries == nil:
			case p.has(d.Key):
				present = append(present, d)
			default:
				added = append(added, d)
			}
		}
		before := map[*decision]int{}
		for _, d := range present {
			was := decision{Plugin: d.Plugin}
			p.keep(&was, nil)
			if before[d] = was.size(); !fits(before[d]) {
				d.refuse(reasonTooMany, message, maxBytes)
			}
		}
		for _, d := range present {
			if d.entries != nil && !fits(d.size()-before[d]) {
				d.refuse(reasonTooMany, message, maxBytes)
				p.keep(d, nil)
			}
		}
		for _, d := range added {
			if !fits(d.size()) {
				d.refuse(reasonTooMany, message, maxBytes)
			}
		}
	}
}

// field is the beginning of the field of a cause: its entry.
var field = regexp.MustCompile(`^webhooks\[(\d+)\]`)

// write writes a configuration if it differs, or if policies leave. Entries that the API server
// refuses stay as they were, or are left out.
func (p *pass) write(ctx context.Context, c *configuration, decisions []*decision, leaving []plugin.Plugin) error {
	if c.absent {
		return nil
	}
	before := c.list()
	for {
		var of []*decision
		var wanted []entry
		for _, d := range decisions {
			if e := d.entries[c.verb]; e != nil {
				of, wanted = append(of, d), append(wanted, *e)
			}
		}
		if len(leaving) == 0 && equality.Semantic.DeepEqual(before, wanted) {
			return nil
		}
		c.set(wanted)
		if len(leaving) != 0 {
			annotations := c.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			// It changes the version: another controller that has not seen that the policy leaves
			// cannot write.
			annotations[releasedAnnotation] = string(leaving[0].GetUID()) + " " + c.GetResourceVersion()
			c.SetAnnotations(annotations)
		}
		err := p.Client.Update(ctx, c.Object)
		if !apierrors.IsInvalid(err) {
			return err
		}
		changed := false
		for i, why := range refusals(err) {
			if i >= len(of) || of[i].entries[c.verb] == nil {
				continue
			}
			changed = true
			d, name := of[i], wanted[i].Name
			d.refusal = &refusal{reasonRules, why}
			if present := c.present[name]; present == nil || equality.Semantic.DeepEqual(*present, wanted[i]) {
				delete(d.entries, c.verb)
			} else {
				d.entries[c.verb] = present
			}
		}
		if !changed {
			return err
		}
	}
}

// refusals returns the messages about entries in an error of the API server, by their indices.
func refusals(err error) map[int]string {
	all := map[int]string{}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return all
	}
	for _, cause := range status.Status().Details.Causes {
		if m := field.FindStringSubmatch(cause.Field); m != nil {
			if i, err := strconv.Atoi(m[1]); err == nil && all[i] == "" {
				all[i] = cause.Field + ": " + cause.Message
			}
		}
	}
	return all
}

// report writes the condition Sent of a policy.
func (p *pass) report(ctx context.Context, d *decision) error {
	c := &metav1.Condition{Type: v1alpha1.ConditionSent, Status: metav1.ConditionFalse, ObservedGeneration: d.GetGeneration()}
	switch {
	case d.refusal != nil && len(d.entries) != 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, d.refusal.reason, cut.Text("API servers go on to ask it: "+foreign.Line(d.refusal.message), maxMessageBytes)
	case d.refusal != nil:
		c.Reason, c.Message = d.refusal.reason, cut.Text(foreign.Line(d.refusal.message), maxMessageBytes)
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonSent, strings.Join(slices.Sorted(maps.Keys(d.entries)), ", ")
	}
	return status.Apply(ctx, p.Client, d.Plugin, "entries", nil, c)
}
