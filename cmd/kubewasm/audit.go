package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/kubewarden/ociregistry"
	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/admission/webhook/manage"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// auditFlags are the flags of audit.
type auditFlags struct {
	policies, state, user string
	output                *output
	files, groups, skip   []string
	qps                   float64
	burst                 int
	write, logged         bool
	report                audit.ReportConfig
	kubeFlags
	*registryFlags
}

func (t *tool) auditFlags(flags *pflag.FlagSet) *auditFlags {
	f := &auditFlags{registryFlags: t.registryFlags(flags)}
	flags.StringVar(&f.policies, "policies", "", "")
	f.declare(flags)
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "")
	f.output = outputFlags(flags, "html", "junit", "reports")
	flags.StringVar(&f.state, "state", "", "")
	flags.StringArrayVar(&f.skip, "skip-namespace", nil, "")
	flags.StringVar(&f.user, "user", "", "")
	flags.StringArrayVar(&f.groups, "group", nil, "")
	flags.Float64Var(&f.qps, "qps", 10, "")
	flags.IntVar(&f.burst, "burst", 20, "")
	flags.BoolVar(&f.write, "write", false, "")
	flags.BoolVar(&f.logged, "log", false, "")
	flags.StringVar(&f.report.Name, "report-name", audit.DefaultReportName, "")
	flags.IntVar(&f.report.MaxResults, "report-results", 1000, "")
	return f
}

// check returns every mistake of the flags.
func (f *auditFlags) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("audit: "+format, args...)) }
	if f.policies == "" {
		fail("name the file of the policies with --policies")
	}
	if f.qps <= 0 || f.burst <= 0 {
		fail("--qps is %v and --burst %d, want more than 0", f.qps, f.burst)
	}
	if f.user == "" && len(f.groups) != 0 {
		fail("--group is for the user that --user names")
	}
	if len(f.files) == 0 {
		return errors.Join(errs...)
	}
	for name, given := range map[string]bool{"--write": f.write, "--state": f.state != "", "--kubeconfig": f.kubeconfig != "", "--context": f.context != ""} {
		if given {
			fail("%s is for a cluster, and -f audits files", name)
		}
	}
	return errors.Join(errs...)
}

func auditObjects(t *tool, flags *pflag.FlagSet) action {
	f := t.auditFlags(flags)
	return func(ctx context.Context, args []string) error {
		if _, err := atMost(flags, args, 0); err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return &usageError{err}
		}
		return f.audit(ctx, t)
	}
}

// audit runs the audit of the flags and prints the result.
func (f *auditFlags) audit(ctx context.Context, t *tool) (err error) {
	rt, err := t.newRuntime()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rt.Close(context.WithoutCancel(ctx))) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // Ends the informers.

	engine := admission.NewEngine()
	cfg := manage.Config{Runtime: rt, Engine: engine}
	auditing := audit.Config{Engine: engine, StateFile: f.state, SkipNamespaces: f.skip}
	if f.logged {
		cfg.Logger = slog.New(slog.NewTextHandler(t.err, &slog.HandlerOptions{Level: slog.LevelDebug}))
		auditing.Logger = cfg.Logger
	}
	if f.user != "" {
		auditing.User = authenticationv1.UserInfo{Username: f.user, Groups: append(slices.Clone(f.groups), "system:authenticated")}
	}
	artifacts, err := f.client(nil)
	if err != nil {
		return err
	}
	rt.AddSources(host.Sources{OCI: artifacts.Source})
	provider, err := capabilities.NewProvider(capabilities.Config{Registry: ociregistry.New(artifacts)})
	if err != nil {
		return err
	}
	file, mistakes := readPolicies(f.policies)
	var objects *manifest.Objects
	var skipped []string
	if len(f.files) != 0 {
		objects, skipped, err = t.readManifests(ctx, f.files)
		if mistakes = errors.Join(mistakes, err); mistakes == nil {
			cfg.Namespaces, cfg.Cluster, mistakes = clusterOf(objects)
		}
	} else {
		auditing.Client, err = f.connect()
		if mistakes = errors.Join(mistakes, err); mistakes == nil {
			mistakes = connected(ctx, &cfg, &auditing)
		}
	}
	if mistakes != nil {
		return fmt.Errorf("audit: %w", mistakes)
	}
	cfg.Dialects = dialects(cfg.Cluster, provider)
	manager, err := manage.New(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Close(context.WithoutCancel(ctx))) }()
	loading := t.working("loading policies")
	err = manager.Apply(ctx, file)
	loading.end()
	if err != nil {
		return fmt.Errorf("audit: %s: %w", f.policies, err)
	}
	auditor, err := audit.New(auditing)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, auditor.Close()) }()
	var result *audit.Result
	if objects != nil {
		asking := t.progress("objects audited")
		if result, err = auditor.Review(ctx, given(objects, asking.add)); err == nil {
			result.Errors = append(result.Errors, skipped...)
		}
		asking.end()
	} else {
		auditing := t.working("auditing the cluster")
		result, err = auditor.Run(ctx)
		auditing.end()
	}
	if err != nil {
		return err
	}
	if err := f.print(t, result); err != nil {
		return err
	}
	if f.write {
		reporter, err := audit.NewReporter(auditing.Client, f.report)
		if err != nil {
			return err
		}
		written, err := reporter.Write(ctx, result)
		if err != nil {
			return err
		}
		fmt.Fprintf(t.err, "kubewasm: %d reports written, %d unchanged, %d deleted\n", written.Applied, written.Unchanged, written.Deleted)
	}
	return verdictOf(t, result)
}

// verdictOf returns errRefused for objects that policies deny, errUnasked if no existing object
// matches the policies, and an error if some objects were not audited.
func verdictOf(t *tool, result *audit.Result) error {
	if !result.Complete() {
		errs := []error{errors.New("audit: not everything was audited")}
		for _, text := range result.Errors {
			errs = append(errs, errors.New(text))
		}
		for _, p := range result.Policies {
			if p.Error != "" {
				errs = append(errs, fmt.Errorf("policy %s: %s", p.Name, p.Error))
			}
		}
		if n := result.Count(audit.Failed); n != 0 {
			errs = append(errs, fmt.Errorf("policies failed on %d objects", n))
		}
		return errors.Join(errs...)
	}
	unasked := result.Unasked()
	for _, p := range result.Policies {
		if p.Unmatched {
			t.warn(fmt.Sprintf("the policy %s was asked about nothing: %s", p.Name, p.Skipped))
		}
	}
	if len(result.Policies) == 0 {
		t.warn("there are no policies, so nothing was audited")
	}
	switch {
	case result.Count(audit.Denied) != 0:
		return errRefused
	case len(unasked) != 0 || len(result.Policies) == 0:
		return errUnasked
	}
	return nil
}

func readPolicies(name string) (*manage.File, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	file, err := manage.ParseFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return file, nil
}

// connect returns the connection to the cluster.
func (f *auditFlags) connect() (*rest.Config, error) {
	config, _, err := f.kubeFlags.config()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubewasm-audit"
	// The lookups of policies and the audited objects share one rate limit.
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(f.qps), f.burst)
	return config, nil
}

// connected gives the policies and the auditor a cluster.
func connected(ctx context.Context, cfg *manage.Config, auditing *audit.Config) (err error) {
	configMaps, secrets, err := clustercache.Getters(auditing.Client)
	if err != nil {
		return err
	}
	cfg.Runtime.AddSources(host.Sources{ConfigMaps: configMaps, Secrets: secrets})
	cluster, err := clustercache.NewForConfig(ctx, auditing.Client)
	if err != nil {
		return err
	}
	cfg.Cluster = cluster
	if auditing.Namespaces, err = audit.NewNamespaces(auditing.Client); err != nil {
		return err
	}
	cfg.Namespaces = auditing.Namespaces.Labels
	return nil
}

// clusterOf returns the labels of namespaces and the objects for lookups in manifests. A namespace
// that is not in them has only the label of every namespace.
func clusterOf(objects *manifest.Objects) (admission.NamespaceLabels, admission.Cluster, error) {
	labels := map[string]map[string]string{}
	named := &manifest.Objects{}
	seen := map[string]bool{}
	for i := range objects.All {
		o := objects.All[i]
		if o.Namespace == "" && namespacedKind(&o) {
			o.Namespace = metav1.NamespaceDefault
		}
		if key := o.APIVersion + " " + o.Kind + " " + o.Namespace + "/" + o.Name; o.Name != "" && !seen[key] {
			seen[key] = true // Overlays of one object are alternatives.
			named.All = append(named.All, o)
		}
		if o.GroupVersionKind() != corev1.SchemeGroupVersion.WithKind("Namespace") {
			continue
		}
		var namespace metav1.PartialObjectMetadata
		if err := json.Unmarshal(o.JSON, &namespace); err != nil {
			return nil, nil, fmt.Errorf("namespace %s: %w", o.Name, err)
		}
		labels[o.Name] = namespace.Labels
	}
	cluster, err := manifest.NewCluster(named)
	if err != nil {
		return nil, nil, err
	}
	return func(_ context.Context, name string) (map[string]string, error) {
		of := map[string]string{corev1.LabelMetadataName: name}
		for key, value := range labels[name] {
			of[key] = value
		}
		return of, nil
	}, cluster, nil
}

// given yields the objects of files, and calls next for each.
func given(objects *manifest.Objects, next func()) iter.Seq2[audit.Object, error] {
	return func(yield func(audit.Object, error) bool) {
		for i := range objects.All {
			next()
			o := &objects.All[i]
			resource := o.Admission().Resource
			object := audit.Object{Kind: o.Kind, Namespaced: namespacedKind(o), JSON: o.JSON}
			object.Resource.Group, object.Resource.Version, object.Resource.Resource = resource.Group, resource.Version, resource.Resource
			if object.Namespaced {
				object.Namespace = metav1.NamespaceDefault
			}
			if !yield(object, nil) {
				return
			}
		}
	}
}

// clusterKinds are the kinds of the Kubernetes API without namespaces. Those whose names begin
// with Cluster are left out.
var clusterKinds = []string{
	"Namespace", "Node", "PersistentVolume", "CustomResourceDefinition", "APIService", "StorageClass", "CSIDriver", "CSINode",
	"VolumeAttachment", "VolumeAttributesClass", "PriorityClass", "RuntimeClass", "IngressClass", "IPAddress", "ServiceCIDR", "DeviceClass",
	"ResourceSlice", "FlowSchema", "PriorityLevelConfiguration", "CertificateSigningRequest", "ValidatingWebhookConfiguration",
	"MutatingWebhookConfiguration", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicy",
	"MutatingAdmissionPolicyBinding", "StorageVersion", "StorageVersionMigration", "GatewayClass",
}

// namespacedKind reports whether objects of a kind are in namespaces, as far as that is known
// without a cluster.
func namespacedKind(o *manifest.Object) bool {
	return o.Namespace != "" || !strings.HasPrefix(o.Kind, "Cluster") && !slices.Contains(clusterKinds, o.Kind)
}

// print prints the results.
func (f *auditFlags) print(t *tool, found *audit.Result) error {
	return f.output.print(t, result{value: found, text: found.WriteTable, other: map[string]func(io.Writer) error{
		"html":  func(w io.Writer) error { return writeAudit(w, found) },
		"junit": suiteOf(found).writeJUnit,
		"reports": func(w io.Writer) error {
			reports, err := found.Reports(f.report)
			if err != nil {
				return err
			}
			for _, report := range reports {
				text, err := yaml.Marshal(report)
				if err != nil {
					return err
				}
				fmt.Fprintf(w, "---\n%s", text)
			}
			return nil
		},
	}})
}
