package main

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/entries"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
)

// uninstall removes what keeps the cluster from doing without the controller: the webhook
// configurations, and the finalizers of policies. It waits for the lease, so that no controller writes
// them again.
func uninstall(ctx context.Context, config *rest.Config, o *options) error {
	c, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	if o.deployment != "" {
		of := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.entries.Namespace, Name: o.deployment}}
		of.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
		if err := c.Delete(ctx, of, client.PropagationPolicy(metav1.DeletePropagationForeground)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the controllers: %w", err)
		}
	}
	o.metricsAddress, o.probeAddress = "0", "0"
	mgr, err := o.manager(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var removed error
	ran := false
	err = mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		defer cancel()
		removed, ran = remove(ctx, c, o.entries.Name), true
		return nil
	}))
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return err
	}
	if !ran {
		return context.Cause(ctx)
	}
	return removed
}

// remove removes the webhook configurations of a name, and then the finalizers of policies.
func remove(ctx context.Context, c client.Client, name string) error {
	for _, o := range []client.Object{&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}} {
		o.SetName(name)
		if err := c.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete the webhook configurations: %w", err)
		}
	}
	var errs []error
	for _, list := range plugin.Lists(plugin.Webhook) {
		err := c.List(ctx, list)
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue // The CustomResourceDefinitions are gone.
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, p := range plugin.All(list) {
			before := p.DeepCopyObject().(client.Object)
			if controllerutil.RemoveFinalizer(p, entries.Finalizer) {
				// The finalizers of others that come meanwhile stay.
				err := c.Patch(ctx, p.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
				errs = append(errs, client.IgnoreNotFound(err))
			}
		}
	}
	return errors.Join(errs...)
}
