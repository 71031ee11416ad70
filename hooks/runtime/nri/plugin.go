package nri

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	nrinet "github.com/containerd/nri/pkg/net"
	"github.com/containerd/nri/pkg/stub"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/proxy"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Config configures a Plugin.
type Config struct {
	// Engine, State and Enforcer are those of [proxy.Config]. Required.
	Engine   *hooks.Engine
	State    *cgroup.State
	Enforcer *cgroup.Enforcer
	// Layout locates the cgroup of a container if the runtime names none.
	Layout cgroup.Layout
	// Name is the name of the plugin in the runtime. Default "kubewasm".
	Name string
	// Index is the order among NRI plugins, in two digits. Default "50".
	Index string
	// Socket is the socket of the runtime. Default /var/run/nri/nri.sock.
	//
	// If a runtime starts the process itself, from its plugin directory, it provides a name, an
	// index and a connection, which replace these three.
	Socket string
	// FailClosed asks the runtime to fail requests that the plugin does not answer in time, and to
	// keep the plugin. By default NRI continues without the plugin, and drops it. The container
	// starts undecided, and so do all others until the plugin has connected again. FailClosed needs
	// a runtime with NRI 0.12.3 or later; older ones ignore it.
	//
	// It has no effect while no plugin is connected, see "Failing closed" in the documentation of
	// the package.
	FailClosed bool
	// Timeout bounds the time of an answer. It must be less than the runtime's timeout (2 s by
	// default), after which the runtime drops the plugin. Default 1.5 s.
	Timeout time.Duration
	// Backoff is the time before the first attempt to reconnect. It doubles with each attempt, up
	// to MaxBackoff. Defaults 100 ms, 10 s.
	Backoff, MaxBackoff time.Duration
	// Logger receives errors; nil drops them.
	Logger *slog.Logger
}

// Plugin is an NRI plugin.
type Plugin struct {
	cfg     Config
	handler *proxy.Handler
	logger  *slog.Logger

	ctx  context.Context // The context of Run.
	late sync.WaitGroup
	// connections counts the connections to the runtime.
	connections atomic.Uint64

	mu sync.Mutex
	// connected is the connection on which the runtime has listed running pods, nil if there is
	// none.
	connected *events
}

// New checks the configuration.
func New(cfg Config) (*Plugin, error) {
	for into, v := range map[*string]string{&cfg.Name: "kubewasm", &cfg.Index: "50", &cfg.Socket: api.DefaultSocketPath} {
		if *into == "" {
			*into = v
		}
	}
	for into, v := range map[*time.Duration]time.Duration{&cfg.Backoff: 100 * time.Millisecond, &cfg.MaxBackoff: 10 * time.Second} {
		if *into == 0 {
			*into = v
		}
	}
	var errs []error
	if err := api.CheckPluginIndex(cfg.Index); err != nil {
		errs = append(errs, fmt.Errorf("nri: configuration: index %q: %w", cfg.Index, err))
	}
	handler, err := proxy.New(proxy.Config{
		Engine: cfg.Engine, State: cfg.State, Enforcer: cfg.Enforcer, Supports: Supported, SupportsFile: SupportedFile, Layout: cfg.Layout, Timeout: cfg.Timeout, Logger: cfg.Logger,
	})
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	p := &Plugin{cfg: cfg, handler: handler, logger: cfg.Logger}
	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}
	p.logger = lograte.Logger(p.logger, lograte.New(lograte.DefaultBytes)) // Pods can provoke any event repeatedly.
	return p, nil
}

// Refused returns the number of events that claimed a cgroup outside of the pod or the container,
// see [proxy.Handler.Handle].
func (p *Plugin) Refused() uint64 { return p.handler.Refused() }

// Connections returns the number of connections to a runtime so far.
func (p *Plugin) Connections() uint64 { return p.connections.Load() }

// Ready returns nil while the plugin is connected to a runtime that has listed its running pods,
// and an error otherwise.
func (p *Plugin) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connected == nil {
		return fmt.Errorf("nri: not connected to the runtime at %s", p.cfg.Socket)
	}
	return nil
}

// Check returns the reason that the plugin cannot connect to a runtime, such as a missing socket.
// It does not connect, since a runtime waits for the registration of a process that does.
func (p *Plugin) Check(context.Context) error {
	if _, launched := os.LookupEnv(api.PluginSocketEnvVar); launched {
		return nil // The runtime has given a connection to the process.
	}
	info, err := os.Stat(p.cfg.Socket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("nri: %w: is the runtime running, and is NRI enabled in its configuration?", err)
	case err != nil:
		return fmt.Errorf("nri: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("nri: %s is no socket", p.cfg.Socket)
	}
	return nil
}

// Healthy returns an error if an answer takes so much longer than the runtime's timeout that the
// process must be stuck, see [proxy.Handler.Healthy].
func (p *Plugin) Healthy() error { return p.handler.Healthy() }

// ErrClosed is the error of [Plugin.Run] if the runtime that started the process has closed its
// connection.
var ErrClosed = errors.New("the runtime that started the plugin has closed its connection")

// Run warms the guests, connects and answers until ctx ends, and returns the error of ctx. Before
// it returns, it answers the requests already sent by the runtime. It connects again whenever the
// connection ends. It may be called only once.
//
// If the runtime started the process from its plugin directory, there is only one connection, and
// Run returns [ErrClosed] when it ends. A restarted runtime starts a new process.
func (p *Plugin) Run(ctx context.Context) error {
	if err := p.cfg.Engine.Warm(ctx); err != nil {
		return fmt.Errorf("nri: %w", err)
	}
	p.ctx = ctx
	defer p.handler.Wait()
	defer p.late.Wait()
	if fd, launched := os.LookupEnv(api.PluginSocketEnvVar); launched {
		// The first plugin of the process uses the connection.
		os.Unsetenv(api.PluginSocketEnvVar)
		conn, err := given(fd)
		if err == nil {
			err = errors.Join(ErrClosed, p.serve(ctx, conn))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("nri: %w", err)
	}
	backoff := p.cfg.Backoff
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", p.cfg.Socket)
		if err == nil {
			start := time.Now()
			err = p.serve(ctx, conn)
			if time.Since(start) > p.cfg.MaxBackoff {
				backoff = p.cfg.Backoff // It served for a while.
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.logger.Warn("the connection to the runtime ended; reconnecting", slog.Duration("after", backoff), slog.Any("err", err))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, p.cfg.MaxBackoff)
	}
}

// given returns the connection passed to the process by the runtime.
func given(fd string) (net.Conn, error) {
	n, err := strconv.Atoi(fd)
	if err == nil {
		var conn net.Conn
		if conn, err = nrinet.NewFdConn(n); err == nil {
			return conn, nil
		}
	}
	return nil, fmt.Errorf("take the runtime's connection, %s=%q: %w", api.PluginSocketEnvVar, fd, err)
}

// connection reports its end.
type connection struct {
	net.Conn
	ended func(error)
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.ended(fmt.Errorf("the runtime closed the connection: %w", err))
	}
	return n, err
}

// lastAnswers times the timeout of an answer bounds the time for answering remaining requests after
// the plugin ends: one event may wait for another.
const lastAnswers = 2

// serve answers on one connection. When ctx ends, it answers the requests of the runtime before it
// closes the connection. NRI continues without a plugin that has gone, so the container of an
// unanswered request would start undecided.
func (p *Plugin) serve(ctx context.Context, conn net.Conn) error {
	ending := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer conn.Close()
	options := []stub.Option{
		stub.WithConnection(&connection{conn, cancel}), stub.WithLogger(logger{p.logger}),
		// Without this option the stub ends the process.
		stub.WithOnClose(func() { cancel(errors.New("the runtime closed the connection")) }),
	}
	// The stub uses the name and index in the environment, and refuses any other index.
	if os.Getenv(api.PluginIdxEnvVar) == "" {
		options = append(options, stub.WithPluginName(p.cfg.Name), stub.WithPluginIdx(p.cfg.Index))
	}
	if p.cfg.FailClosed {
		// A dropped plugin could not fail requests any more.
		options = append(options, stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true, KeepConnected: true}))
	}
	e := &events{p: p}
	defer e.end()
	s, err := stub.New(e, append(options, stub.WithTTRPCOptions(nil, e.traffic.options()))...)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer context.AfterFunc(ending, func() {
		if e.configured.Load() {
			last, stop := context.WithTimeout(ctx, lastAnswers*p.handler.Timeout())
			defer stop()
			e.traffic.settle(last)
		}
		cancel(context.Cause(ending))
	})()
	select {
	case err = <-ended:
	case <-ctx.Done():
		// A stub that waits for its configuration does not notice the end of its connection, and
		// waits forever.
		if e.configured.Load() {
			err = <-ended
		}
	}
	if err != nil && ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// events handles the calls of the runtime on one connection.
type events struct {
	p          *Plugin
	configured atomic.Bool
	traffic    traffic
	// ended is guarded by Plugin.mu.
	ended bool
}

// Configure is called when the runtime has accepted the plugin. The runtime's configuration of the
// plugin, which may be in its drop-in directory, is ignored. The events are those that the plugin
// has methods for.
func (e *events) Configure(context.Context, string, string, string) (api.EventMask, error) {
	e.configured.Store(true)
	return 0, nil
}

// begin makes this the serving connection, unless it has ended.
func (e *events) begin() {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	if !e.ended {
		e.p.connected = e
		e.p.connections.Add(1)
	}
}

func (e *events) end() {
	e.p.mu.Lock()
	defer e.p.mu.Unlock()
	e.ended = true
	if e.p.connected == e {
		e.p.connected = nil
	}
}

// withFiles adds the limits of huge pages and of swap to a request that have an owner among the
// plugins.
func (p *Plugin) withFiles(req *hookmsg.Request, l *api.LinuxResources) {
	files := Files(p.cfg.Enforcer.Applier().Version(), l)
	maps.DeleteFunc(files, func(name, _ string) bool { return !p.cfg.Engine.OwnsFile(name) })
	if len(files) != 0 {
		req.Resources = req.Resources.Overlay(&hookmsg.Resources{Unified: files})
	}
}

func (e *events) pod(ctx context.Context, stage abi.Stage, pod *api.PodSandbox) error {
	req := PodRequest(e.p.cfg.Layout, stage, pod)
	// The kubelet limits no swap of pods.
	e.p.withFiles(req, &api.LinuxResources{HugepageLimits: pod.GetLinux().GetPodResources().GetHugepageLimits()})
	_, err := e.p.handler.Handle(ctx, req, req.CgroupParent)
	return err
}

// container asks about a container; asked are the resources requested by an update.
func (p *Plugin) container(ctx context.Context, stage abi.Stage, pod *api.PodSandbox, c *api.Container, asked *api.LinuxResources) (*hookmsg.Decision, error) {
	req := ContainerRequest(p.cfg.Layout, stage, pod, c, asked)
	if asked == nil {
		asked = c.GetLinux().GetResources()
	}
	p.withFiles(req, asked)
	cgroup, err := ContainerCgroup(p.cfg.Layout, req, c)
	if err != nil {
		return nil, err
	}
	return p.handler.Handle(ctx, req, cgroup)
}

// Synchronize is called on each connection with the running pods and containers. All of them are
// decided on again, so nothing is lost while the plugin was not connected.
//
// The runtime's timeout is that of any answer. If a guest hangs, the remaining decisions are made
// afterwards and written to the cgroups.
func (e *events) Synchronize(ctx context.Context, pods []*api.PodSandbox, containers []*api.Container) (updates []*api.ContainerUpdate, _ error) {
	e.p.logger.Info("connected to the runtime", slog.Int("pods", len(pods)), slog.Int("containers", len(containers)))
	defer e.begin()
	e.p.handler.Resync(ctx)
	// A failing decision must not prevent the connection of the plugin.
	var decide []decision
	byID := map[string]*api.PodSandbox{}
	for _, pod := range pods {
		byID[pod.GetId()] = pod
		decide = append(decide, func(ctx context.Context) (*api.ContainerUpdate, error) {
			return nil, e.pod(ctx, abi.Reconcile, pod)
		})
	}
	for _, c := range containers {
		pod := byID[c.GetPodSandboxId()]
		if pod == nil || c.GetState() == api.ContainerState_CONTAINER_STOPPED {
			continue
		}
		decide = append(decide, func(ctx context.Context) (*api.ContainerUpdate, error) {
			d, err := e.p.container(ctx, abi.Reconcile, pod, c, nil)
			u := update(c, nil, d)
			if u != nil {
				u.SetIgnoreFailure() // The container may have ended since.
			}
			return u, err
		})
	}
	inTime, cancel := e.p.handler.WithTimeout(ctx)
	defer cancel()
	for i, f := range decide {
		u, err := f(inTime)
		switch {
		case err != nil && inTime.Err() != nil:
			e.p.later(decide[i:])
			return updates, nil
		case err != nil:
			e.p.logger.Warn("synchronize", slog.Any("err", err))
		case u != nil:
			updates = append(updates, u)
		}
	}
	return updates, nil
}

// decision decides on a running pod or container; the update is nil for none.
type decision func(context.Context) (*api.ContainerUpdate, error)

// later makes the remaining decisions, until the plugin ends.
func (p *Plugin) later(decide []decision) {
	p.logger.Warn("not enough time to decide on all running containers; continuing in the background", slog.Int("left", len(decide)))
	p.late.Go(func() {
		for _, f := range decide {
			if p.ctx.Err() != nil {
				return
			}
			if _, err := f(p.ctx); err != nil {
				p.logger.Warn("synchronize", slog.Any("err", err))
			}
		}
	})
}

// RunPodSandbox is called when a pod has its sandbox.
func (e *events) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return e.pod(ctx, abi.PreRunPodSandbox, pod)
}

// notified logs an error of an event that the runtime does not wait for. Returning it would keep
// the event from later NRI plugins.
func (e *events) notified(event string, err error) {
	if err != nil {
		e.p.logger.Warn(event, slog.Any("err", err))
	}
}

// UpdatePodSandbox is called before the kubelet changes the cgroup of a pod, for an in-place
// resize. The kubelet writes the cgroup itself, possibly even after PostUpdatePodSandbox.
func (e *events) UpdatePodSandbox(ctx context.Context, pod *api.PodSandbox, overhead, asked *api.LinuxResources) error {
	req := PodUpdateRequest(e.p.cfg.Layout, pod, overhead, asked)
	_, err := e.p.handler.Handle(ctx, req, req.CgroupParent)
	return err
}

// PostUpdatePodSandbox is called after the runtime has accepted the resources of a pod.
func (e *events) PostUpdatePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	e.p.handler.LookAgain(pod.GetUid())
	return nil
}

// StopPodSandbox is called when a sandbox stops.
func (e *events) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	e.notified("stop sandbox", e.pod(ctx, abi.PostStopPodSandbox, pod))
	return nil
}

// RemovePodSandbox is called when a sandbox is removed.
func (e *events) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	e.notified("remove sandbox", e.pod(ctx, abi.PreRemoveRunPodSandbox, pod))
	return nil
}

// CreateContainer is called before a container is created.
func (e *events) CreateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	d, err := e.p.container(ctx, abi.PreCreateContainer, pod, c, nil)
	if err != nil {
		return nil, nil, err
	}
	return adjustment(c, d), nil, nil
}

// StartContainer is called before a container starts. Its cgroup exists.
func (e *events) StartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	_, err := e.p.container(ctx, abi.PreStartContainer, pod, c, nil)
	return err
}

// PostStartContainer is called after a container has started.
func (e *events) PostStartContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
	_, err := e.p.container(ctx, abi.PostStartContainer, pod, c, nil)
	e.notified("container has started", err)
	return nil
}

// UpdateContainer is called before the resources of a container change.
func (e *events) UpdateContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container, asked *api.LinuxResources) ([]*api.ContainerUpdate, error) {
	d, err := e.p.container(ctx, abi.PreUpdateContainerResources, pod, c, asked)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc([]*api.ContainerUpdate{update(c, asked, d)}, func(u *api.ContainerUpdate) bool { return u == nil }), nil
}

// PostUpdateContainer is called after the runtime has written the resources of a
// container.
func (e *events) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) error {
	e.p.handler.LookAgain(pod.GetUid())
	return nil
}

// StopContainer is called when a container has stopped.
func (e *events) StopContainer(ctx context.Context, pod *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	_, err := e.p.container(ctx, abi.PostStopContainer, pod, c, nil)
	e.notified("container has stopped", err)
	return nil, nil
}

// logger writes the messages of NRI's stub.
type logger struct{ *slog.Logger }

func (l logger) write(ctx context.Context, level slog.Level, format string, args []any) {
	if l.Enabled(ctx, level) {
		l.Log(ctx, level, fmt.Sprintf(format, args...))
	}
}

func (l logger) Debugf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

// Infof logs the messages of NRI about each connection at a lower level.
func (l logger) Infof(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelDebug, format, args)
}

func (l logger) Warnf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelWarn, format, args)
}

func (l logger) Errorf(ctx context.Context, format string, args ...any) {
	l.write(ctx, slog.LevelError, format, args)
}
