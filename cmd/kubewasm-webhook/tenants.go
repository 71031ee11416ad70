package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
)

const (
	// labelsInterval is the interval at which the labels of namespaces are compared, by which
	// ModuleTrusts select them.
	labelsInterval = 10 * time.Second
	// labelsTime bounds the time of a look-up.
	labelsTime = 5 * time.Second
)

// tenant is a namespace whose policies ModuleTrusts bound.
type tenant struct {
	allowed *clusterplugins.Allowed
	// err is the reason that it may have no policy.
	err  error
	used clusterplugins.Usage
	// unselected reports whether no ModuleTrust selects it.
	unselected bool
}

// tenants returns the namespaces of policies. o.applying is held.
func (o *objects) tenants(trusts clusterplugins.Trusts, list []clusterplugins.Object) map[string]*tenant {
	all := map[string]*tenant{}
	labels := map[string]map[string]string{}
	for i := range list {
		namespace := list[i].Namespace
		if all[namespace] != nil {
			continue
		}
		t := new(tenant)
		all[namespace] = t
		if namespace == "" || len(trusts) == 0 {
			continue
		}
		of, err := o.labelsOf(namespace)
		if err != nil {
			t.err = fmt.Errorf("the labels of the namespace %q are unknown, by which ModuleTrusts select it: %w", namespace, err)
		} else {
			labels[namespace] = of
			t.allowed, t.err = trusts.For(namespace, of)
			t.unselected = t.err != nil
		}
	}
	o.labels = labels
	return all
}

// labelsOf returns the labels of a namespace, or those that were known last. o.applying is held.
func (o *objects) labelsOf(namespace string) (map[string]string, error) {
	if o.namespaces == nil {
		return nil, errors.New("there is no cluster")
	}
	ctx, cancel := context.WithTimeout(context.Background(), labelsTime)
	defer cancel()
	of, err := o.namespaces(ctx, namespace)
	if last, ok := o.labels[namespace]; err != nil && ok {
		return last, nil
	}
	return of, err
}

// setFuel sets the quotas of fuel of namespaces. One whose ModuleTrusts are unknown, or which has none,
// keeps its quota: what still serves for it is withdrawn, or was allowed before.
func (o *objects) setFuel(tenants map[string]*tenant) {
	if o.fuel == nil {
		return
	}
	perSecond := map[string]int64{}
	for namespace, t := range tenants {
		switch {
		case namespace == "":
		case t.err != nil:
			perSecond[namespace] = -1
		default:
			perSecond[namespace] = t.allowed.FuelPerSecond()
		}
	}
	o.fuel.set(perSecond)
}

// policy returns the policy of an object, unless the namespace may not have it.
func (t *tenant) policy(object *clusterplugins.Object) manage.ClusterPolicy {
	allowed, err := t.allowed, t.err
	if err != nil {
		allowed = nil
	}
	p := policyOf(object, allowed)
	if object.Namespace == "" || p.Unknown {
		return p
	}
	if err == nil {
		err = allowed.Add(&t.used, p.Spec.Limits, host.DefaultLimits().Instances)
	}
	if err != nil {
		p.Err = errors.Join(err, p.Err)
	}
	return p
}

// trust has the signatures of a policy's module verified, and withdraws what serves if no ModuleTrust
// allows it any more. good receives the object that was accepted last, and serving has the modules that
// serve. o.applying is held.
func (o *objects) trust(t *tenant, object *clusterplugins.Object, p *manage.ClusterPolicy, good map[string]clusterplugins.Object, serving map[string]oci.Reference) {
	if object.Namespace == "" {
		return
	}
	if p.Err == nil {
		p.Err = o.signatures.sign(p, t.allowed)
	}
	name := object.Plugin()
	before, ok := o.good[name]
	if ok && before.UID == object.UID {
		good[name] = before
		p.Withdrawn = t.unselected
		if t.err == nil {
			was := policyOf(&before, t.allowed)
			err := was.Err
			if err == nil {
				if err = o.signatures.sign(&was, t.allowed); !errors.As(err, new(*oci.TrustError)) {
					err = nil
				}
			}
			p.Withdrawn = err != nil
		}
	}
	// An object that was accepted serves only once its module is loaded.
	if ref, ok := serving[name]; ok && t.err == nil && o.untrusted(ref, t.allowed) {
		p.Withdrawn = true
	}
	if p.Err == nil {
		good[name] = *object
	}
}

// serving returns the artifacts that serve policies of namespaces, by the names of the policies.
func (o *objects) serving() map[string]oci.Reference {
	refs := map[string]oci.Reference{}
	list := o.manager.List()
	for i := range list {
		info := &list[i]
		if ref, err := oci.ParseReference(info.Reference); err == nil && ref.Digest != "" && info.Origin == "cluster" && info.Digest != "" {
			refs[info.Name] = ref
		}
	}
	return refs
}

// untrusted reports whether no ModuleTrust allows an artifact that serves. As long as its signatures are
// not verified it is trusted.
func (o *objects) untrusted(ref oci.Reference, allowed *clusterplugins.Allowed) bool {
	if allowed == nil {
		return false
	}
	if allowed.Repository(ref) != nil {
		return true
	}
	rules := allowed.Signatures(ref)
	if len(rules) == 0 || o.signatures == nil {
		return false
	}
	_, err := o.signatures.result(o.signatures.get(ref, rules))
	return errors.As(err, new(*oci.TrustError))
}

// followLabels applies the objects again when labels of their namespaces change, until ctx ends.
func (o *objects) followLabels(ctx context.Context) {
	tick := time.NewTicker(labelsInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		o.signatures.sweep(time.Now(), false)
		o.applying.Lock()
		changed := false
		for namespace, before := range o.labels {
			now, err := o.labelsOf(namespace)
			changed = changed || err == nil && !maps.Equal(before, now)
		}
		if changed {
			o.put(o.newest)
		}
		o.applying.Unlock()
	}
}
