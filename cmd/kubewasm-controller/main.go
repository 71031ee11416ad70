// Command kubewasm-controller makes plugins of objects: it adds up what webhooks and agents report on
// ClusterAdmissionPolicies, AdmissionPolicies and NodeHooks, resolves the tags of their modules, and
// writes the webhook configurations.
//
//	kubewasm-controller -namespace kubewasm -service kubewasm-webhook -ca-file /ca/ca.crt
//	kubewasm-controller -namespace kubewasm -uninstall
//
// The second form removes the webhook configurations and the finalizers of policies.
//
// charts/kubewasm installs it in a cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/api/v1alpha1"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/entries"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/pins"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/plugin"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/reports"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/rollouts"
	"github.com/kubewasm/kubewasm/cmd/kubewasm-controller/internal/status"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/oci/ocimetrics"
	"github.com/kubewasm/kubewasm/host/oci/sigstore"
	"github.com/kubewasm/kubewasm/internal/foreign"
	"github.com/kubewasm/kubewasm/internal/program"
	"github.com/kubewasm/kubewasm/internal/snapmem"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kubewasm-controller:", foreign.Lines(err.Error()))
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	entries                      entries.Config
	namespaces                   []string
	port                         int
	conditions                   string
	registries, trustConfig      string
	kube, deployment             string
	metricsAddress, probeAddress string
	leaderElection               bool
	uninstall, version, dryLoad  bool
	interval                     time.Duration
	log                          program.Log
	// collectors are those of the controllers.
	collectors []prometheus.Collector
}

func parse(args []string) (*options, error) {
	o := &options{}
	e := &o.entries
	flags := flag.NewFlagSet("controller", flag.ContinueOnError)
	flags.StringVar(&e.Namespace, "namespace", "", "`namespace` of the webhook, of reports and of the lease; that of the Pod if empty")
	flags.Func("report-namespaces", "comma-separated further `namespaces` of reports, as of agents", func(names string) error {
		o.namespaces = strings.Split(names, ",")
		return nil
	})
	flags.StringVar(&e.Service, "service", "kubewasm-webhook", "`name` of the webhook's Service")
	flags.IntVar(&o.port, "port", 443, "`port` of the webhook's Service")
	flags.StringVar(&e.CAFile, "ca-file", "", "`file` of the CAs of the webhook's certificate, PEM; it is read again. If it is empty, no policy gets an entry in webhook configurations, and those that have one keep it until they are deleted")
	flags.StringVar(&e.Name, "configurations", "kubewasm-webhook-cluster", "`name` of the webhook configurations, one of each kind")
	flags.IntVar(&e.Replicas, "replicas", 1, "`number` of replicas that must serve a policy before API servers ask it")
	flags.DurationVar(&e.Timeout, "webhook-timeout", 5*time.Second, "`timeout` of API servers for a policy without limits.timeout, 1s to 30s")
	flags.Func("exempt-namespaces", "comma-separated `namespaces` that no policy is asked about, beside -namespace", func(names string) error {
		e.Exempt = strings.Split(names, ",")
		return nil
	})
	flags.StringVar(&o.conditions, "match-conditions", "", "`file` of a list of matchConditions for all entries, YAML")
	flags.StringVar(&o.registries, "registries", "", "`file` with access to registries and trusted signers")
	flags.StringVar(&o.trustConfig, "sigstore-trust-config", "", "`file` with a trusted root of Sigstore or a ClientTrustConfig, JSON, to verify identities by; it is followed. Without it, only keys are verified")
	flags.DurationVar(&o.interval, "interval", time.Minute, "interval of resolutions of tags that are followed")
	flags.BoolVar(&o.dryLoad, "dry-load", true, "load a module in a process without rights before it is pinned; one that cannot be loaded is not. It needs Linux on amd64 or arm64, and 768 MiB of memory")
	flags.StringVar(&o.kube, "kubeconfig", "", "`file` with the connection to a cluster, outside of it")
	flags.StringVar(&o.metricsAddress, "metrics-addr", ":8080", "`address` of /metrics; 0 serves none")
	flags.StringVar(&o.probeAddress, "probe-addr", ":8081", "`address` of /healthz and /readyz; 0 serves none")
	flags.BoolVar(&o.leaderElection, "leader-elect", true, "elect one of several controllers, which works alone")
	flags.BoolVar(&o.uninstall, "uninstall", false, "remove the webhook configurations and the finalizers of policies, and exit")
	flags.StringVar(&o.deployment, "uninstall-deployment", "", "`name` of the Deployment of controllers, which -uninstall deletes first")
	flags.BoolVar(&o.version, "version", false, "print the version, and exit")
	o.log.Flags(flags)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if o.version {
		return o, nil
	}
	var errs []error
	if e.Namespace == "" {
		text, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
		if err != nil {
			errs = append(errs, errors.New("-namespace is missing, and the program does not run in a Pod"))
		}
		e.Namespace = string(text)
	}
	if o.port < 1 || o.port > 65535 {
		errs = append(errs, fmt.Errorf("-port is %d", o.port))
	}
	e.Port = int32(o.port)
	if e.Replicas < 1 {
		errs = append(errs, fmt.Errorf("-replicas is %d, less than 1", e.Replicas))
	}
	if e.Timeout < time.Second || e.Timeout > 30*time.Second {
		errs = append(errs, fmt.Errorf("-webhook-timeout is %v, want 1s to 30s", e.Timeout))
	}
	if o.conditions != "" {
		text, err := os.ReadFile(o.conditions)
		if err == nil {
			err = yaml.UnmarshalStrict(text, &e.Conditions)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("-match-conditions: %w", err))
		}
	}
	return o, errors.Join(errs...)
}

// maxModuleBytes is the size of the largest module that is fetched, which is in memory then.
const maxModuleBytes = 32 << 20

// run runs the program until ctx ends.
func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	build := program.ThisBuild()
	if o.version {
		fmt.Println("kubewasm-controller", build)
		return nil
	}
	logger := slog.New(o.log.Handler(os.Stderr))
	log.SetLogger(logr.FromSlogHandler(logger.Handler()))
	config, err := clientcmd.BuildConfigFromFlags("", o.kube)
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	if o.uninstall {
		return uninstall(ctx, config, o)
	}
	logger.Info("the controller starts", "program", "kubewasm-controller", "version", build.String())
	mgr, err := o.manager(config)
	if err != nil {
		return err
	}
	registries, err := oci.ReadConfig(o.registries)
	if err != nil {
		return err
	}
	registries.Logger = logger
	registries.MaxBytes = maxModuleBytes
	if reload := registries.Reload; reload != nil {
		registries.Reload = func() (oci.Config, error) {
			c, err := reload()
			c.MaxBytes = maxModuleBytes
			return c, err
		}
	}
	if err := sigstore.Follow(&registries, o.trustConfig); err != nil {
		return fmt.Errorf("-sigstore-trust-config: %w", err)
	}
	artifacts, err := oci.New(registries)
	if err != nil {
		return err
	}
	if err := o.setup(mgr, artifacts); err != nil {
		return err
	}
	for _, c := range append(o.collectors, build.Collector("kubewasm-controller"), ocimetrics.New(artifacts)) {
		if err := metrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// scheme returns the types of the controllers.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, admissionv1.AddToScheme, metav1.AddMetaToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// reporting returns the namespaces of reports.
func (o *options) reporting() []string {
	all := append([]string{o.entries.Namespace}, o.namespaces...)
	slices.Sort(all)
	return slices.Compact(all)
}

// lease is the name of the Lease of the controllers of a namespace.
const lease = "kubewasm-controller"

// manager returns a manager whose cache has what the controllers read, and no more.
func (o *options) manager(config *rest.Config) (manager.Manager, error) {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	pods := map[string]cache.Config{}
	for _, namespace := range o.reporting() {
		pods[namespace] = cache.Config{LabelSelector: status.Pods()}
	}
	named := cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", o.entries.Name)}
	return manager.New(config, manager.Options{
		Scheme:                 scheme(),
		Metrics:                metricsserver.Options{BindAddress: o.metricsAddress},
		HealthProbeBindAddress: o.probeAddress,
		LeaderElection:         o.leaderElection, LeaderElectionID: lease,
		LeaderElectionNamespace: o.entries.Namespace, LeaderElectionReleaseOnCancel: true,
		Cache: cache.Options{
			DefaultTransform: plugin.Strip,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Pod{}: {Namespaces: pods, Transform: status.StripPod},
				node:          {Transform: stripNode},
				namespace:     {Transform: stripNode},
				&admissionv1.ValidatingWebhookConfiguration{}: named,
				&admissionv1.MutatingWebhookConfiguration{}:   named,
			},
		},
	})
}

// stripNode is a transformation of the metadata of nodes and namespaces: it keeps the labels.
func stripNode(object any) (any, error) {
	if node, ok := object.(*metav1.PartialObjectMetadata); ok {
		node.ObjectMeta = metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels}
	}
	return object, nil
}

// setup adds the controllers to a manager.
func (o *options) setup(mgr manager.Manager, registries *oci.Client) error {
	store, err := reports.New(mgr.GetConfig(), mgr.GetHTTPClient(), mgr.GetScheme(), o.reporting())
	if err != nil {
		return err
	}
	processes := &status.Processes{Client: mgr.GetClient(), Reports: store}
	if err := mgr.Add(store); err != nil {
		return err
	}
	page := rollouts.NewPage(mgr.GetClient())
	o.collectors = append(o.collectors, page)
	if err := mgr.AddMetricsServerExtraHandler("/statusz", page); err != nil {
		return err
	}
	var dryLoads *pins.DryLoads
	if o.dryLoad {
		dryLoads = pins.NewDryLoads(snapmem.Available(os.DirFS("/")))
	}
	controllers := []interface{ SetupWithManager(manager.Manager) error }{
		&status.Reconciler{Processes: processes, Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Events: mgr.GetEventRecorder("kubewasm-controller")},
		&pins.Reconciler{Client: mgr.GetClient(), Registries: registries, Interval: o.interval, DryLoads: dryLoads, Reader: mgr.GetAPIReader()},
		&entries.Reconciler{Config: o.entries, Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Processes: processes},
		&rollouts.Reconciler{
			Namespace: o.entries.Namespace, Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Processes: processes, Events: mgr.GetEventRecorder("kubewasm-controller"), RolledBack: page.RolledBack,
		},
	}
	for _, c := range controllers {
		if err := c.SetupWithManager(mgr); err != nil {
			return err
		}
	}
	return errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("reports", store.Check))
}
