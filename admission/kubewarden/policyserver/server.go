package policyserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	"github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/lograte"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// Server serves the policies of a policies.yml. It is safe for use by several goroutines.
type Server struct {
	cfg Config
	// workers limits the running evaluations; nil means no limit.
	workers chan struct{}
	// lines is the budget for log lines about requests.
	lines *lograte.Budget

	// dialects are those of the policies.
	dialects []*dialect.Dialect

	// serving holds the policies as seen by requests.
	serving serving.Value[map[string]*served]

	// ctx ends with Close.
	ctx  context.Context
	stop context.CancelFunc
	// background counts policies that are being loaded or closed, and followers of files.
	background sync.WaitGroup
	// slots bounds the simultaneous loads.
	slots chan struct{}
	// readiness bounds the wait for modules that cannot be fetched; ready is set once Ready has
	// returned nil.
	readiness host.Readiness
	ready     atomic.Bool

	mu sync.Mutex
	// file is the file applied last, and guests are Config.Guests or those set since.
	file   *File
	guests *Guests
	// fileErr and guestsErr are the errors of the files that were read last.
	fileErr, guestsErr error
	table              map[string]*served
	loads              map[string]*load
	applied            bool
	closed             bool
}

// Config configures a Server.
type Config struct {
	// Runtime loads the modules. Required.
	Runtime *host.Runtime
	// Source returns the source of a module by its URL in policies.yml. Required.
	Source func(module string) (host.Source, error)
	// Guests limits the resources and grants of policies.
	Guests Guests
	// Timeout bounds an evaluation, unless policies.yml sets a timeout for the policy. 0 means the
	// longest timeout of an API server.
	Timeout time.Duration
	// AcceptNamespace is a namespace whose requests are all admitted without asking a policy, so
	// that no policy can keep the server itself from starting. Empty means none.
	AcceptNamespace string
	// Workers is the maximum number of simultaneous evaluations. 0 means that only Limits.Instances
	// of the policies limit them.
	Workers int
	// Cluster answers look-ups of policies; nil disables them.
	Cluster admission.Cluster
	// Capabilities answers host capabilities that need more than the cluster; nil answers none of
	// them.
	Capabilities *capabilities.Provider
	// Bodies bounds the memory of requests. nil means a separate one, with the default limits.
	Bodies *admission.Bodies
	// Interval is the time between checks of policies.yml on file systems that do not report
	// changes, and the time until a module that could not be fetched is tried again. That time
	// doubles with each attempt, up to 5 min. Default 30 s.
	Interval time.Duration
	// ReadyTimeout is the longest time for which policies whose modules cannot be fetched keep the
	// server from being ready. Default 10 minutes.
	ReadyTimeout time.Duration
	// Observer receives the results of requests, and changes of policies. nil costs nothing.
	Observer Observer
	// HostObserver receives the calls of guests. nil costs nothing.
	HostObserver host.Observer
	// Logger receives events and the messages of guests; nil drops them.
	Logger *slog.Logger
}

// New returns a server without policies. The error joins all mistakes in cfg.
func New(cfg Config) (*Server, error) {
	var errs []error
	if cfg.Runtime == nil {
		errs = append(errs, errors.New("runtime is missing"))
	}
	if cfg.Source == nil {
		errs = append(errs, errors.New("source is missing"))
	}
	if cfg.Timeout < 0 {
		errs = append(errs, fmt.Errorf("timeout is %s, less than 0", cfg.Timeout))
	}
	if cfg.Workers < 0 {
		errs = append(errs, fmt.Errorf("workers is %d, less than 0", cfg.Workers))
	}
	if cfg.Interval < 0 {
		errs = append(errs, fmt.Errorf("interval is %s, less than 0", cfg.Interval))
	}
	if err := cfg.Guests.Check(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("policy server: configuration: %w", err)
	}
	if cfg.Timeout == 0 || cfg.Timeout > maxEvaluation {
		cfg.Timeout = maxEvaluation
	}
	if cfg.Interval == 0 {
		cfg.Interval = host.DefaultFollowInterval
	}
	if cfg.Bodies == nil {
		cfg.Bodies = admission.NewBodies(admission.BodyLimits{})
	}
	s := &Server{
		cfg: cfg, guests: &cfg.Guests, table: map[string]*served{}, loads: map[string]*load{}, lines: lograte.New(lograte.DefaultBytes),
		slots: make(chan struct{}, parallelLoads), readiness: host.Readiness{Timeout: cfg.ReadyTimeout},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.dialects = append(kubewarden.New(kubewarden.Options{Cluster: cfg.Cluster, Capabilities: cfg.Capabilities}), rego.New(rego.Options{Cluster: cfg.Cluster}), stellar.New())
	if cfg.Workers > 0 {
		s.workers = make(chan struct{}, cfg.Workers)
	}
	s.serving.Replace(map[string]*served{})
	return s, nil
}

// logCall logs a line about a request, which users can provoke repeatedly.
func (s *Server) logCall(level slog.Level, msg string, args ...any) {
	if l := lograte.Logger(s.cfg.Logger, s.lines); l != nil {
		l.Log(context.Background(), level, msg, args...)
	}
}

func (s *Server) log(level slog.Level, msg string, args ...any) {
	if s.cfg.Logger != nil {
		s.cfg.Logger.Log(context.Background(), level, msg, args...)
	}
}

// Ready returns an error as long as requests should not reach the server: no policies.yml has been
// read and loaded or, for Config.ReadyTimeout, policies are being loaded or cannot be fetched. Once
// it has returned nil it always does. Other policies that cannot be loaded do not matter, since only
// their requests fail.
func (s *Server) Ready() error {
	if s.ready.Load() {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.applied {
		return errors.New("policies are being loaded")
	}
	var yet []error
	for _, id := range slices.Sorted(maps.Keys(s.loads)) {
		if s.table[id] == nil { // A newer file may have replaced the load that was waited for.
			yet = append(yet, fmt.Errorf("policy %q is being loaded", id))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.table)) {
		p := s.table[id]
		if _, ok := errors.AsType[*fetchError](p.err); ok && p.policy == nil {
			yet = append(yet, p.err)
		}
	}
	err := s.readiness.Ready(errors.Join(yet...))
	if err == nil {
		s.ready.Store(true)
	}
	return err
}

// Close ends loads, takes all policies out of service and closes them, waiting until ctx ends. The
// context of FollowFile must have ended.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	var gone []admission.Policy
	for _, p := range s.table {
		gone = append(gone, p.policy)
	}
	s.table, s.closed = map[string]*served{}, true
	s.mu.Unlock()
	s.stop()
	s.publish(gone...)
	closed := make(chan struct{})
	go func() {
		s.background.Wait()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close policies: %w", ctx.Err())
	}
}
