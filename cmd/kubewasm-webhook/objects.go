package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/configfile"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	"github.com/kubewasm/kubewasm/internal/loading"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

// maxOfNamespace is the maximum number of policies of a namespace. Further ones are refused: they
// share the memory and the compiler of the server. There are reports on maxReported policies of a
// namespace, so that those of others find room in a report.
const maxOfNamespace, maxReported = 32, 64

// objects are the policies that the cluster's objects declare.
type objects struct {
	manager *manage.Manager
	client  *apiserver.Client
	process clusterplugins.Process
	logger  *slog.Logger
	// trials are those of versions of which a rollout has a step for this replica.
	trials clusterplugins.Trials

	// namespaces returns the labels of a namespace, and nil if there is no cluster.
	namespaces func(ctx context.Context, name string) (map[string]string, error)

	// applying is held while objects are applied.
	applying sync.Mutex
	newest   []clusterplugins.Object
	// labels are those of the namespaces with policies, if there are ModuleTrusts.
	labels map[string]map[string]string
	// signatures are nil without registries.
	signatures *signatures
	// fuel are the quotas of fuel of the namespaces, nil for none.
	fuel *fuelQuotas
	// good are the objects of namespaces that were accepted last, by the names of their policies.
	good map[string]clusterplugins.Object

	mu      sync.Mutex
	applied []clusterplugins.Object
	// told are the errors that were logged.
	told map[string]string
	// served are the states of the versions that served in the last report, by the UIDs of objects.
	served map[string]clusterplugins.State
}

// followObjects lets the manager serve the policies of the cluster until stop is called, and reports
// on them.
func followObjects(ctx context.Context, cluster *rest.Config, namespaces func(context.Context, string) (map[string]string, error), manager *manage.Manager, artifacts *oci.Client, fuel *fuelQuotas, process clusterplugins.Process, logger *slog.Logger) (watch *clusterplugins.Watch, stop func(), err error) {
	client, err := apiClient(cluster)
	if err != nil {
		return nil, nil, err
	}
	manager.ExpectCluster()
	o := &objects{manager: manager, client: client, process: process, logger: logger, namespaces: namespaces, fuel: fuel}
	ctx, cancel := context.WithCancel(ctx)
	o.signatures = newSignatures(ctx, artifacts, func() {
		o.applying.Lock()
		defer o.applying.Unlock()
		if ctx.Err() == nil {
			o.put(o.newest)
		}
	})
	watch = clusterplugins.New(clusterplugins.Config{
		Client: client, Secrets: process.Secrets, Name: process.Name, Resources: []clusterplugins.Resource{clusterplugins.ModuleTrusts, clusterplugins.ClusterAdmissionPolicies, clusterplugins.AdmissionPolicies}, Apply: o.apply, Logger: logger,
	})
	var all sync.WaitGroup
	all.Go(func() { watch.Run(ctx) })
	all.Go(func() { o.followLabels(ctx) })
	all.Go(func() { clusterplugins.Report(ctx, client, process, o.states, logger) })
	return watch, func() {
		cancel()
		all.Wait()
	}, nil
}

// apiClient returns a client with the connection of a configuration.
func apiClient(cluster *rest.Config) (*apiserver.Client, error) {
	transport, err := rest.TransportFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	at, _, err := rest.DefaultServerUrlFor(cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	return apiserver.Wrap(at.String(), &http.Client{Transport: transport}), nil
}

// apply puts the policies of objects into service.
func (o *objects) apply(list []clusterplugins.Object) {
	o.applying.Lock()
	defer o.applying.Unlock()
	o.put(list)
}

// put is apply while o.applying is held.
func (o *objects) put(list []clusterplugins.Object) {
	o.newest = list
	trusts, mistakes := clusterplugins.TrustsOf(list)
	list = slices.DeleteFunc(slices.Clone(list), func(object clusterplugins.Object) bool { return object.Kind == clusterplugins.ModuleTrusts.Kind })
	tenants := o.tenants(trusts, list)
	o.setFuel(tenants)
	of := map[string]int{}
	list = slices.DeleteFunc(list, func(object clusterplugins.Object) bool {
		of[object.Namespace]++
		return object.Held || object.Namespace != "" && of[object.Namespace] > maxReported
	})
	o.trials.Apply(list)
	policies := make([]manage.ClusterPolicy, len(list))
	clear(of)
	var verified []*signature
	for i := range list {
		policies[i] = tenants[list[i].Namespace].policy(&list[i])
		if ref, rules := wanted(&policies[i].Spec, tenants[list[i].Namespace].allowed); len(rules) != 0 && policies[i].Err == nil && o.signatures != nil {
			verified = append(verified, o.signatures.get(ref, rules))
		}
	}
	if o.signatures != nil {
		o.signatures.await(verified)
	}
	good, serving := map[string]clusterplugins.Object{}, o.serving()
	for i := range list {
		object := &list[i]
		p := policies[i]
		o.trust(tenants[object.Namespace], object, &p, good, serving)
		if trial := o.trials.Of(object); trial != nil {
			p.Spec.PolicyRules.Observer = failures{trial}
		}
		if of[object.Namespace]++; object.Namespace != "" && of[object.Namespace] > maxOfNamespace {
			p = manage.ClusterPolicy{Err: fmt.Errorf("the namespace has more than %d policies", maxOfNamespace), Unknown: true}
			p.Spec.Name = object.Plugin()
		}
		policies[i] = p
	}
	o.good = good
	o.signatures.sweep(time.Now(), true)
	refused := o.manager.ApplyCluster(policies)
	o.mu.Lock()
	defer o.mu.Unlock()
	told := map[string]string{}
	if mistakes != nil {
		refused[clusterplugins.ModuleTrusts.Kind] = mistakes
	}
	for name, err := range refused {
		if told[name] = err.Error(); told[name] != o.told[name] {
			o.logger.Error("policy is refused", "policy", name, "err", err)
		}
	}
	o.applied, o.told = list, told
}

// failures count those of a version on trial.
type failures struct{ trial *clusterplugins.Trial }

// Decided implements [admission.Observer].
func (f failures) Decided(_ context.Context, d admission.Decision) {
	if errors.Is(d.Err, host.ErrClosed) || errors.Is(d.Err, loading.ErrQuota) || errors.Is(d.Err, context.Canceled) || errors.As(d.Err, new(*host.LoadError)) {
		return // The module is not to blame; the progress deadline is about the last.
	}
	f.trial.Called(d.Err, d.Duration)
}

// policyOf returns the policy of an object. allowed bounds that of a namespace, nil for no ModuleTrusts.
func policyOf(object *clusterplugins.Object, allowed *clusterplugins.Allowed) manage.ClusterPolicy {
	var p manage.ClusterPolicy
	if object.Spec == nil {
		return manage.ClusterPolicy{Spec: manage.PluginSpec{PluginConfig: named(object)}, Err: clusterplugins.ErrTooLarge, Unknown: true}
	}
	spec, unread := object.Settings()
	err := configfile.JSON(spec, &p.Spec)
	if err != nil {
		// A rule that was not decoded would match more than it says.
		p.Spec.PolicyRules = admission.PolicyRules{}
		if json.Unmarshal(spec, &p.Spec.PolicyRules) != nil {
			return manage.ClusterPolicy{Spec: manage.PluginSpec{PluginConfig: named(object)}, Err: err, Unknown: true}
		}
	}
	err = errors.Join(unread, err)
	if p.Spec.Name != "" {
		err = errors.Join(err, errors.New("name is that of the object"))
	}
	if p.Spec.Record != nil {
		err = errors.Join(err, errors.New("record is for the file of policies, not for objects: its path is one of the server"))
	}
	if object.Pinned != "" && p.Spec.Module.OCI != "" {
		p.Spec.Module.OCI, p.Spec.Module.Follow = object.Pinned, false
	}
	p.Spec.Name = object.Plugin()
	if object.Namespace != "" {
		mistakes, unknown := confine(&p.Spec, object.Namespace, allowed)
		err, p.Unknown = errors.Join(append([]error{err}, mistakes...)...), unknown
	}
	p.Err = err
	return p
}

func named(object *clusterplugins.Object) (cfg admission.PluginConfig) {
	cfg.Name = object.Plugin()
	return cfg
}

// confine restricts the policy of a namespace to what its owner may decide. It returns all settings
// that are not the owner's, and reports whether the rules cannot be restricted.
func confine(p *manage.PluginSpec, namespace string, allowed *clusterplugins.Allowed) (errs []error, unknown bool) {
	fail := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	module := func(m *host.ModuleConfig, path string) {
		fail(m.File != "", "%s.file is not for an AdmissionPolicy: it is a file of the server", path)
		fail(m.HTTPS != "", "%s.https is not for an AdmissionPolicy: the server would ask any address", path)
		fail(strings.HasPrefix(m.OCI, "oci-layout:"), "%s.oci names an image layout, a directory of the server, which is not for an AdmissionPolicy", path)
		fail(len(m.Compiled) != 0, "%s.compiled is not for an AdmissionPolicy: machine code runs without bounds", path)
		for name, key := range map[string]*host.ObjectKey{"configMap": m.ConfigMap, "secret": m.Secret} {
			if key == nil {
				continue
			}
			if key.Namespace == "" {
				key.Namespace = namespace
			}
			fail(key.Namespace != namespace, "%s.%s.namespace is %q, and the policy is of %q", path, name, key.Namespace, namespace)
		}
	}
	module(&p.Module, "module")
	fail(p.Shadow != nil, "shadow is not for an AdmissionPolicy: its memory and its share of a processor are beside those of the server's policies")
	if err := allowed.Module(&p.Module, "module"); err != nil {
		errs = append(errs, err)
	}
	for _, grant := range allowed.Grants(p.Grants) {
		fail(true, "grants has %q, and grants are not for an AdmissionPolicy unless a ModuleTrust allows them", grant)
	}
	fail(len(p.Converts) != 0, "converts is not for an AdmissionPolicy: a conversion is for all namespaces")
	for name, config := range p.Dialect {
		var members map[string]any
		fail(json.Unmarshal(config, &members) != nil || len(members) != 0, "dialect.%s has settings, which are not for an AdmissionPolicy: they are permissions", name)
	}
	for _, name := range allowed.Limits(p.Limits) {
		fail(true, "limits.%s is more than the default, which is not for an AdmissionPolicy unless a ModuleTrust allows it", name)
	}
	for i := range p.Objects {
		grant := &p.Objects[i]
		if grant.Namespaces == nil {
			grant.Namespaces = []string{namespace}
		}
		fail(!slices.Equal(grant.Namespaces, []string{namespace}), "objects[%d].namespaces has another namespace than the policy's, %q", i, namespace)
		fail(grant.Resource == "v1/secrets", "objects[%d].resource is v1/secrets, which is not for an AdmissionPolicy: its messages could tell them to those who may not read them", i)
	}
	rules := len(errs)
	fail(len(p.Match.Rules) == 0, "match.rules is missing")
	for i := range p.Match.Rules {
		rule := &p.Match.Rules[i]
		scope := admissionregistrationv1.NamespacedScope
		fail(rule.Scope != nil && *rule.Scope != scope, "match.rules[%d].scope is not Namespaced", i)
		rule.Scope = &scope
		for _, resource := range rule.Resources {
			name, _, _ := strings.Cut(resource, "/")
			fail(name == "admissionpolicies" && slices.ContainsFunc(rule.APIGroups, func(group string) bool { return group == "*" || group == "kubewasm.dev" }),
				"match.rules[%d].resources has %q, which is not for an AdmissionPolicy: it could keep itself from being changed and deleted, and its namespace, too", i, resource)
			fail(name == "*" || name == "secrets", "match.rules[%d].resources has %q, which is not for an AdmissionPolicy: its messages could tell Secrets to those who may not read them", i, resource)
		}
	}
	unknown = len(errs) > rules
	if p.Match.NamespaceSelector == nil {
		p.Match.NamespaceSelector = new(metav1.LabelSelector)
	}
	p.Match.NamespaceSelector.MatchExpressions = append(p.Match.NamespaceSelector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: []string{namespace},
	})
	return errs, unknown
}

// states returns the states of the policies.
func (o *objects) states() (states []clusterplugins.State) {
	o.mu.Lock()
	applied := o.applied
	o.mu.Unlock()
	if applied == nil {
		return nil
	}
	states = []clusterplugins.State{}
	served := map[string]clusterplugins.State{}
	defer func() { o.served = served }()
	refused := o.manager.Refused()
	infos := map[string]*manage.Info{}
	list := o.manager.List()
	for i := range list {
		infos[list[i].Name] = &list[i]
	}
	for i := range applied {
		object := &applied[i]
		s := clusterplugins.State{Kind: object.Kind, Namespace: object.Namespace, Name: object.Name, UID: object.UID, Generation: object.Generation, State: string(host.Loading)}
		info, err := infos[object.Plugin()], refused[object.Plugin()]
		if info != nil && info.Origin == "cluster" {
			s.State, s.Message, s.Digest, s.Reference, s.Webhooks = string(info.State), info.Error, info.Digest, info.Reference, info.Webhooks
			if info.Digest != "" {
				since := info.LoadedAt.UTC().Truncate(time.Second)
				s.Since = &since
			}
			before, known := o.served[object.UID]
			switch trial := o.trials.Of(object); {
			case info.State != host.Serving:
			case info.Loading && known:
				// It serves the version before until this one is loaded.
				s.Generation, s.Revision, s.Trial, s.Failing = before.Generation, before.Revision, before.Trial, before.Failing
				served[object.UID] = before
			case info.Loading:
				s.State = string(host.Loading)
			default:
				if shadow, err := o.manager.Shadow(info.Name); err == nil && object.Shadow {
					trial.Compared(shadow.Status())
				}
				s.Revision = object.Revision
				trial.Report(&s)
				served[object.UID] = s
			}
			if info.Override != "" {
				s.Message = strings.TrimSpace("the management API overrides the object: " + info.Override + "\n" + s.Message)
			}
		}
		if err != nil {
			s.State, s.Message = clusterplugins.Refused, publicerr.Redact(err.Error())
		}
		states = append(states, s)
	}
	return states
}
