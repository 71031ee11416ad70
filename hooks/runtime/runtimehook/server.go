package runtimehook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/files"
	"github.com/kubewasm/kubewasm/hooks/runtime/proxy"
	pb "github.com/kubewasm/kubewasm/hooks/runtime/runtimehook/runtimehookpb"
	"github.com/kubewasm/kubewasm/host"
)

// Config configures a Server.
type Config struct {
	// Engine, State and Enforcer are those of [proxy.Config]. Required.
	Engine   *hooks.Engine
	State    *cgroup.State
	Enforcer *cgroup.Enforcer
	// Layout locates the cgroups of containers.
	Layout cgroup.Layout
	// Socket is the path of the socket to serve on. Required.
	Socket string
	// Registration is the file by which the runtime proxy finds the server, below
	// /etc/runtime/hookserver.d. If it is empty, no file is written.
	Registration string
	// FailurePolicy is the proxy's reaction if it cannot reach the server: host.Fail or
	// host.Ignore.
	FailurePolicy host.FailurePolicy
	// Timeout is the Timeout of [proxy.Config].
	Timeout time.Duration
	// Logger receives errors; nil drops them.
	Logger *slog.Logger
}

// Server serves RuntimeHookService.
type Server struct {
	pb.UnimplementedRuntimeHookServiceServer
	cfg     Config
	handler *proxy.Handler
	serving atomic.Bool
}

// New checks the configuration.
func New(cfg Config) (*Server, error) {
	var errs []error
	if cfg.Socket == "" {
		errs = append(errs, errors.New("runtimehook: configuration: socket is missing"))
	}
	if err := cfg.FailurePolicy.Check(); err != nil {
		errs = append(errs, fmt.Errorf("runtimehook: configuration: %w", err))
	}
	handler, err := proxy.New(proxy.Config{
		Engine: cfg.Engine, State: cfg.State, Enforcer: cfg.Enforcer, Supports: supported, SupportsFile: files.Supported, Echoes: true, Layout: cfg.Layout, Timeout: cfg.Timeout, Logger: cfg.Logger,
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, handler: handler}, nil
}

// registration is the content of the file read by Koordinator's runtime proxy.
type registration struct {
	RemoteEndpoint string   `json:"remote-endpoint"`
	FailurePolicy  string   `json:"failure-policy"`
	RuntimeHooks   []string `json:"runtime-hooks"`
}

// registered are the stages to register with the proxy.
var registered = []abi.Stage{
	abi.PreRunPodSandbox, abi.PostStopPodSandbox, abi.PreCreateContainer, abi.PreStartContainer,
	abi.PostStartContainer, abi.PostStopContainer, abi.PreUpdateContainerResources,
}

// Refused returns the number of events that claimed a cgroup outside of the pod or the container,
// see [proxy.Handler.Handle].
func (s *Server) Refused() uint64 { return s.handler.Refused() }

// Ready returns nil while the server listens and is registered, and an error otherwise.
func (s *Server) Ready() error {
	if !s.serving.Load() {
		return fmt.Errorf("runtimehook: not serving on %s", s.cfg.Socket)
	}
	return nil
}

// Check returns the reason that the server cannot listen or register: missing directories of the
// configuration.
func (s *Server) Check(context.Context) error {
	var errs []error
	for _, file := range []string{s.cfg.Socket, s.cfg.Registration} {
		if file == "" {
			continue
		}
		dir := filepath.Dir(file)
		if info, err := os.Stat(dir); err != nil {
			errs = append(errs, fmt.Errorf("runtimehook: %s: %w", file, err))
		} else if !info.IsDir() {
			errs = append(errs, fmt.Errorf("runtimehook: %s: %s is no directory", file, dir))
		}
	}
	return errors.Join(errs...)
}

// Healthy returns an error if an answer takes so much longer than its timeout that the process must
// be stuck, see [proxy.Handler.Healthy].
func (s *Server) Healthy() error { return s.handler.Healthy() }

// Run warms the plugins, serves until ctx ends and returns the error of ctx. The server registers
// once it listens, and removes the registration before it stops.
func (s *Server) Run(ctx context.Context) error {
	if err := s.cfg.Engine.Warm(ctx); err != nil {
		return fmt.Errorf("runtimehook: %w", err)
	}
	// Left by an earlier process.
	if info, err := os.Lstat(s.cfg.Socket); err == nil {
		if info.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("runtimehook: serve on %s: there is something that is no socket", s.cfg.Socket)
		}
		if err := os.Remove(s.cfg.Socket); err != nil {
			return fmt.Errorf("runtimehook: %w", err)
		}
	}
	listener, err := net.Listen("unix", s.cfg.Socket)
	if err != nil {
		return fmt.Errorf("runtimehook: %w", err)
	}
	server := grpc.NewServer()
	pb.RegisterRuntimeHookServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer s.handler.Wait()
	defer server.GracefulStop()
	s.handler.Resync(ctx)
	if s.cfg.Registration != "" {
		if err := s.register(); err != nil {
			return fmt.Errorf("runtimehook: register: %w", err)
		}
		defer os.Remove(s.cfg.Registration)
	}
	s.serving.Store(true)
	defer s.serving.Store(false)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-served:
		return fmt.Errorf("runtimehook: %w", err)
	}
}

// register writes the registration atomically, since the proxy watches it.
func (s *Server) register() error {
	r := registration{RemoteEndpoint: s.cfg.Socket, FailurePolicy: string(cmp.Or(s.cfg.FailurePolicy, host.Fail))}
	for _, stage := range registered {
		r.RuntimeHooks = append(r.RuntimeHooks, stage.String())
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	// The proxy reads *.json.
	next := filepath.Join(filepath.Dir(s.cfg.Registration), "."+filepath.Base(s.cfg.Registration)+".next")
	if err := os.WriteFile(next, append(b, '\n'), 0o644); err != nil {
		return errors.Join(err, os.Remove(next)) // The disk may be full.
	}
	return os.Rename(next, s.cfg.Registration)
}

// pod answers an event of a pod.
func (s *Server) pod(ctx context.Context, stage abi.Stage, in *pb.PodSandboxHookRequest) (*pb.PodSandboxHookResponse, error) {
	cgroup := s.cfg.Layout.Parent(in.CgroupParent)
	req := &hookmsg.Request{
		Stage: stage, Level: abi.LevelPod, Pod: podMeta(in.PodMeta),
		PodLabels: in.Labels, PodAnnotations: in.Annotations, CgroupParent: cgroup, Resources: resources(in.Resources),
	}
	if in.Resources != nil { // The kubelet limits no swap of pods.
		hugepages := &pb.LinuxContainerResources{HugepageLimits: in.Resources.HugepageLimits, Unified: in.Resources.Unified}
		req.Resources = withFiles(s.cfg.Enforcer.Applier().Version(), req.Resources, hugepages, s.cfg.Engine.OwnsFile)
	}
	if _, err := s.handler.Handle(ctx, req, cgroup); err != nil {
		return nil, refused(err)
	}
	return &pb.PodSandboxHookResponse{Labels: in.Labels, Annotations: in.Annotations, CgroupParent: in.CgroupParent, Resources: in.Resources}, nil
}

// container answers an event of a container.
func (s *Server) container(ctx context.Context, stage abi.Stage, in *pb.ContainerResourceHookRequest) (*pb.ContainerResourceHookResponse, error) {
	parent := s.cfg.Layout.Parent(in.PodCgroupParent)
	req := &hookmsg.Request{
		Stage: stage, Level: abi.LevelContainer, Pod: podMeta(in.PodMeta),
		Container: hookmsg.ContainerMeta{Name: in.ContainerMeta.GetName(), ID: in.ContainerMeta.GetId()},
		PodLabels: in.PodLabels, PodAnnotations: in.PodAnnotations, ContainerAnnotations: in.ContainerAnnotations, ContainerEnvs: envs(in.ContainerEnvs),
		CgroupParent: parent, Resources: resources(in.ContainerResources),
	}
	if in.ContainerResources != nil {
		req.Resources = withFiles(s.cfg.Enforcer.Applier().Version(), req.Resources, in.ContainerResources, s.cfg.Engine.OwnsFile)
	}
	cgroup := ""
	if req.Container.ID != "" && parent != "" {
		var err error
		if cgroup, err = s.cfg.Layout.Of(req); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	d, err := s.handler.Handle(ctx, req, cgroup)
	if err != nil {
		return nil, refused(err)
	}
	return &pb.ContainerResourceHookResponse{
		ContainerAnnotations: overlay(in.ContainerAnnotations, d.ContainerAnnotations),
		ContainerResources:   echo(in.ContainerResources, d.Resources),
		PodCgroupParent:      in.PodCgroupParent,
		ContainerEnvs:        overlay(in.ContainerEnvs, d.ContainerEnvs),
	}, nil
}

func podMeta(m *pb.PodSandboxMetadata) hookmsg.PodMeta {
	return hookmsg.PodMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid()}
}

// refused converts an error to a status, which the proxy shows to the kubelet.
func refused(err error) error {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, err.Error())
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, err.Error())
	}
	return status.Error(codes.Aborted, err.Error())
}

// PreRunPodSandboxHook is called before the sandbox of a pod is created.
func (s *Server) PreRunPodSandboxHook(ctx context.Context, in *pb.PodSandboxHookRequest) (*pb.PodSandboxHookResponse, error) {
	return s.pod(ctx, abi.PreRunPodSandbox, in)
}

// PostStopPodSandboxHook is called after a sandbox has stopped.
func (s *Server) PostStopPodSandboxHook(ctx context.Context, in *pb.PodSandboxHookRequest) (*pb.PodSandboxHookResponse, error) {
	return s.pod(ctx, abi.PostStopPodSandbox, in)
}

// PreCreateContainerHook is called before a container is created.
func (s *Server) PreCreateContainerHook(ctx context.Context, in *pb.ContainerResourceHookRequest) (*pb.ContainerResourceHookResponse, error) {
	return s.container(ctx, abi.PreCreateContainer, in)
}

// PreStartContainerHook is called before a created container starts.
func (s *Server) PreStartContainerHook(ctx context.Context, in *pb.ContainerResourceHookRequest) (*pb.ContainerResourceHookResponse, error) {
	return s.container(ctx, abi.PreStartContainer, in)
}

// PostStartContainerHook is called after a container has started.
func (s *Server) PostStartContainerHook(ctx context.Context, in *pb.ContainerResourceHookRequest) (*pb.ContainerResourceHookResponse, error) {
	return s.container(ctx, abi.PostStartContainer, in)
}

// PostStopContainerHook is called after a container has stopped.
func (s *Server) PostStopContainerHook(ctx context.Context, in *pb.ContainerResourceHookRequest) (*pb.ContainerResourceHookResponse, error) {
	return s.container(ctx, abi.PostStopContainer, in)
}

// PreUpdateContainerResourcesHook is called before the resources of a container
// change.
func (s *Server) PreUpdateContainerResourcesHook(ctx context.Context, in *pb.ContainerResourceHookRequest) (*pb.ContainerResourceHookResponse, error) {
	return s.container(ctx, abi.PreUpdateContainerResources, in)
}
