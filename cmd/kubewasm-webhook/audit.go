package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/admission/audit/auditmetrics"
)

// auditOptions are the flags of audits.
type auditOptions struct {
	interval    time.Duration
	state       string
	lease       string
	ownerRole   string
	qps         float64
	skip        []string
	withReports bool
}

func (o *auditOptions) flags(flags *flag.FlagSet) {
	flags.DurationVar(&o.interval, "audit-interval", 0, "interval of audits of the cluster's objects; 0 disables them")
	flags.StringVar(&o.state, "audit-state", "", "`file` for the results of audits, so that a restart does not repeat them")
	flags.StringVar(&o.lease, "audit-lease", "", "`namespace/name` of the Lease that elects the auditing server; every server audits if empty")
	flags.StringVar(&o.ownerRole, "audit-owner", "", "`name` of the ClusterRole that owns all reports, which are deleted with it")
	flags.Float64Var(&o.qps, "audit-qps", 10, "maximum number of `requests` per second from audits to the API server")
	flags.BoolVar(&o.withReports, "audit-reports", true, "write reports of openreports.io")
	flags.Func("audit-skip", "comma-separated `namespaces` excluded from audits: those excluded by the webhook configurations", func(names string) error {
		o.skip = strings.Split(names, ",")
		return nil
	})
}

// check returns every mistake of the flags.
func (o *auditOptions) check() error {
	var errs []error
	if o.interval < 0 {
		errs = append(errs, fmt.Errorf("-audit-interval is %v, below 0", o.interval))
	}
	if o.qps <= 0 {
		errs = append(errs, fmt.Errorf("-audit-qps is %v, want more than 0", o.qps))
	}
	if namespace, name, ok := strings.Cut(o.lease, "/"); o.lease != "" && (!ok || namespace == "" || name == "") {
		errs = append(errs, fmt.Errorf("-audit-lease is %q, want namespace/name", o.lease))
	}
	return errors.Join(errs...)
}

// auditing audits at times.
type auditing struct {
	*auditOptions
	config   *rest.Config
	engine   *admission.Engine
	auditor  *audit.Auditor
	reporter *audit.Reporter
	metrics  *auditmetrics.Metrics
	client   kubernetes.Interface
	// ready returns why the policies are not all there.
	ready  func() error
	logger *slog.Logger
}

// newAuditing returns what audits the cluster of config by the policies of engine.
func newAuditing(o *auditOptions, config *rest.Config, engine *admission.Engine, ready func() error, logger *slog.Logger) *auditing {
	config = rest.CopyConfig(config)
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(o.qps), max(1, int(2*o.qps)))
	return &auditing{auditOptions: o, config: config, engine: engine, metrics: auditmetrics.New(), ready: ready, logger: logger}
}

// begin makes what audits need of the cluster and of their file.
func (a *auditing) begin(ctx context.Context) (err error) {
	if a.client, err = kubernetes.NewForConfig(a.config); err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	if a.withReports {
		reports := audit.ReportConfig{}
		if a.ownerRole != "" {
			role, err := a.client.RbacV1().ClusterRoles().Get(ctx, a.ownerRole, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("get the owner of reports: %w", err)
			}
			reports.Owner = &metav1.OwnerReference{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: role.Name, UID: role.UID}
		}
		if a.reporter, err = audit.NewReporter(a.config, reports); err != nil {
			return err
		}
	}
	cfg := audit.Config{Engine: a.engine, Client: a.config, SkipNamespaces: a.skip, StateFile: a.state, Logger: a.logger}
	if a.auditor, err = audit.New(cfg); errors.Is(err, audit.ErrState) {
		a.logger.Error("audits keep no state: a restart repeats all questions", "err", err)
		cfg.StateFile = ""
		a.auditor, err = audit.New(cfg)
	}
	return err
}

// retryBegin is how long audits that cannot begin wait before they try again.
const retryBegin = 30 * time.Second

// The times of the Lease are those of Kubernetes' own components.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// run audits until ctx ends: whenever this server holds the Lease, if there is one. Whatever
// keeps audits from beginning is tried again, and keeps no request from being answered.
func (a *auditing) run(ctx context.Context) {
	for {
		err := a.begin(ctx)
		if err == nil {
			break
		}
		a.logger.Error("audits cannot begin", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryBegin):
		}
	}
	defer func() {
		if err := a.auditor.Close(); err != nil {
			a.logger.Error("end of audits", "err", err)
		}
	}()
	if a.lease == "" {
		a.loop(ctx)
		return
	}
	namespace, name, _ := strings.Cut(a.lease, "/")
	identity, err := os.Hostname()
	if err != nil {
		identity = "webhook"
	}
	identity = fmt.Sprintf("%s-%d-%d", identity, os.Getpid(), time.Now().UnixNano())
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: a.client.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: a.loop, OnStoppedLeading: func() {}},
		})
	}
}

// loop audits at once, and then after each interval.
func (a *auditing) loop(ctx context.Context) {
	for ctx.Err() == nil {
		wait := a.interval
		if a.ready() == nil {
			a.audit(ctx)
		} else {
			wait = min(wait, time.Second) // Policies are being loaded.
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// audit runs once. What goes wrong is tried again the next time.
func (a *auditing) audit(ctx context.Context) {
	result, err := a.auditor.Run(ctx)
	if ctx.Err() != nil {
		return
	}
	a.metrics.Ran(result, err)
	if err != nil {
		a.logger.Error("audit", "err", err)
		return
	}
	for _, p := range result.Policies {
		if p.Error != "" {
			a.logger.Error("policy has no verdicts in the audit", "policy", p.Name, "err", p.Error)
		}
	}
	if a.reporter == nil {
		return
	}
	written, err := a.reporter.Write(ctx, result)
	a.metrics.Wrote(written)
	if err != nil {
		a.logger.Error("write reports of the audit", "err", err)
	}
}
