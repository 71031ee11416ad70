package policyserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/capabilities"
	"github.com/kubewasm/kubewasm/admission/internal/serving"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Server serves the policies of a policies.yml. It is safe for use by several goroutines.
type Server struct {
	cfg Config
	// workers has room for the evaluations that run; nil for any number.
	workers chan struct{}
	// lines is the budget of what is logged about requests.
	lines *lograte.Budget

	// serving is what requests see.
	serving serving.Value[map[string]*served]

	// changing serialises changes, which load modules and so may take seconds.
	changing sync.Mutex
	// file is what was applied last, guarded by changing.
	file *File
	// background are policies that are being closed, and what follows the file.
	background sync.WaitGroup

	mu      sync.Mutex
	table   map[string]*served
	applied bool
	closed  bool
}

// Config says what a server has.
type Config struct {
	// Runtime loads the modules. Required.
	Runtime *host.Runtime
	// Source returns the source of the URL of a module, as policies.yml has it. Required.
	Source func(module string) (host.Source, error)
	// Guests says what policies may use of the server.
	Guests Guests
	// Timeout is how long an evaluation may take unless policies.yml says otherwise for the
	// policy. 0 is as long as the API server waits.
	Timeout time.Duration
	// AcceptNamespace is a namespace whose requests are all admitted without asking a policy,
	// so that no policy can keep the server itself from starting. Empty is none.
	AcceptNamespace string
	// Workers is how many evaluations run at the same time. 0 is as many as
	// Limits.Instances of the policies allow.
	Workers int
	// Cluster is where policies look objects up; nil if they cannot.
	Cluster admission.Cluster
	// Capabilities answers what policies ask that the cluster does not have; nil answers
	// nothing of it.
	Capabilities *capabilities.Provider
	// Bodies bounds the memory of requests. nil is one of the server's own, with the default
	// limits.
	Bodies *admission.Bodies
	// Interval is how often policies.yml is looked at on file systems that do not tell of
	// changes, and how soon a module that could not be fetched is tried again: then after
	// twice that time, and so on, up to 5 min. Default 30 s.
	Interval time.Duration
	// Observer is told what becomes of requests and policies; nil costs nothing.
	Observer Observer
	// HostObserver is told of the calls of guests; nil costs nothing.
	HostObserver host.Observer
	// Logger takes what happens, and what guests say; nil drops it.
	Logger *slog.Logger
}

// New returns a server without policies. Errors are everything that is wrong with cfg.
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
	s := &Server{cfg: cfg, table: map[string]*served{}, lines: lograte.New(lograte.DefaultBytes)}
	if cfg.Workers > 0 {
		s.workers = make(chan struct{}, cfg.Workers)
	}
	s.serving.Replace(map[string]*served{})
	return s, nil
}

// logCall logs a line about a request, which users can repeat.
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

// Ready returns why requests should not reach the server: no policies.yml was read yet. A
// policy that cannot be loaded is no reason, since it answers for itself.
func (s *Server) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.applied {
		return errors.New("policies are being loaded")
	}
	return nil
}

// Close takes all policies out of service, closes them, and waits for that until ctx ends. The
// context of FollowFile must have ended.
func (s *Server) Close(ctx context.Context) error {
	s.changing.Lock()
	s.mu.Lock()
	var gone []admission.Policy
	for _, p := range s.table {
		gone = append(gone, p.policy)
	}
	s.table, s.closed = map[string]*served{}, true
	s.mu.Unlock()
	s.publish(gone...)
	s.changing.Unlock()
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
