package nri_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrinet "github.com/containerd/nri/pkg/net"
	"github.com/containerd/nri/pkg/net/multiplex"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	"github.com/containerd/ttrpc"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/hooks/runtime/nri"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// processConfig is what a process of its own is told by agent.json, above the
// directory of its executable. A runtime that starts it gives it no arguments.
type processConfig struct {
	Socket, Guest, Cache, Cgroups string
	FailClosed                    bool
}

// TestMain is the agent in a process that has the name of one.
func TestMain(m *testing.M) {
	if _, _, err := api.ParsePluginName(filepath.Base(os.Args[0])); err != nil {
		// An agent that the runtime starts has to load its guest before it registers.
		adaptation.SetPluginRegistrationTimeout(time.Minute)
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, "the agent ended:", runProcess(filepath.Join(filepath.Dir(os.Args[0]), "..", "agent.json")))
	os.Exit(1)
}

func runProcess(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var cfg processConfig
	if err := json.Unmarshal(b, &cfg); err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: cfg.Cache})
	if err != nil {
		return err
	}
	engine, err := hooks.NewEngine(context.Background(), rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{File: cfg.Guest}}}}})
	if err != nil {
		return err
	}
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: cfg.Cgroups, Version: cgroup.V2})
	if err != nil {
		return err
	}
	state := new(cgroup.State)
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: state, Applier: applier})
	if err != nil {
		return err
	}
	plugin, err := nri.New(nri.Config{
		Engine: engine, State: state, Enforcer: enforcer,
		Index: "70", Socket: cfg.Socket, FailClosed: cfg.FailClosed, Backoff: 10 * time.Millisecond, MaxBackoff: 50 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	return plugin.Run(context.Background())
}

// newProcess makes the directory of an agent, whose executable is in plugins.
func newProcess(t *testing.T, socket string, failClosed bool) (dir string) {
	t.Helper()
	guest, err := guestbuild.Build(t.Context(), runtimetest.Scripted)
	if err != nil {
		t.Fatal(err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	cfg := processConfig{Socket: socket, Guest: guest, Cache: filepath.Join(cache, "kubewasm", "runtimetest"), Cgroups: t.TempDir(), FailClosed: failClosed}
	b, err := json.Marshal(cfg)
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "agent.json"), b, 0o644), os.Mkdir(filepath.Join(dir, "plugins"), 0o755),
		os.Symlink(executable, filepath.Join(dir, "plugins", "40-kubewasm"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// start starts the agent of a directory, until the test ends or it is killed.
func start(t *testing.T, dir string) *os.Process {
	t.Helper()
	cmd := exec.Command(filepath.Join(dir, "plugins", "40-kubewasm"))
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process
}

func send(t *testing.T, p *os.Process, s syscall.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
	switch s {
	case syscall.SIGKILL:
		p.Wait()
	case syscall.SIGSTOP:
		// It goes on until all of its threads have stopped.
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("it is not stopped but %v, error %v", status, err)
		}
	}
}

// create returns "decided", "undecided" or the error of a creation.
func (p *peer) create(t *testing.T, annotations map[string]string) string {
	t.Helper()
	pod := sandbox("kubepods/burstable/podu1", "cpu_shares 77")
	for key, value := range annotations {
		pod.Annotations[key] = value
	}
	resp, err := p.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: pod, Container: nginx("kubepods/burstable/podu1")})
	switch {
	case err != nil:
		return err.Error()
	case resp.GetAdjust().GetLinux().GetResources().GetCpu().GetShares().GetValue() == 77:
		return "decided"
	}
	return "undecided"
}

// expect fails unless a creation ends so, or with an error that has it.
func (p *peer) expect(t *testing.T, when, want string, annotations map[string]string) {
	t.Helper()
	if got := p.create(t, annotations); !strings.Contains(got, want) || got == "undecided" && want == "decided" {
		t.Errorf("%s: got %s, want %s", when, got, want)
	}
}

// A container is created while the agent, in a process of its own, hangs, is killed and
// is started again.
func TestContainersWaitForTheAgent(t *testing.T) {
	runtimetest.NewAgent(t, runtimetest.Scripted, nil) // Compiles the guest once.
	const notInTime, required = "context deadline exceeded", "kubewasm" + `" not present`
	requires := adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{
		Enable: true, RequiredPlugins: []string{"kubewasm"}, TolerateMissingAnnotation: "kubewasm.dev/tolerate-no-agent",
	})
	for name, test := range map[string]struct {
		failClosed bool
		options    []adaptation.Option
		// What becomes of a container when the agent hangs, of the next one, when it
		// is killed while it is asked, and of the next one.
		hangs, next, killed, gone string
		// kept says that the agent need not connect again after it has hung.
		kept bool
	}{
		"by default":                            {hangs: "undecided", next: "undecided", killed: "undecided", gone: "undecided"},
		"with its own policy":                   {failClosed: true, hangs: notInTime, next: notInTime, killed: "ttrpc: closed", gone: "undecided", kept: true},
		"with required plugins":                 {options: []adaptation.Option{requires}, hangs: "undecided", next: required, killed: "undecided", gone: required},
		"with its own policy and required ones": {failClosed: true, options: []adaptation.Option{requires}, hangs: notInTime, next: notInTime, killed: "ttrpc: closed", gone: required, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			relay := newRelay(t)
			runtime := newPeer(t, relay.to(filepath.Join(t.TempDir(), "nri.sock")), test.options...)
			t.Cleanup(runtime.Stop)
			dir := newProcess(t, relay.socket, test.failClosed)
			agent := start(t, dir)
			runtime.wait(t)
			runtime.expect(t, "connected", "decided", nil)

			send(t, agent, syscall.SIGSTOP)
			runtime.expect(t, "hung", test.hangs, nil)
			runtime.expect(t, "still hung", test.next, nil)
			send(t, agent, syscall.SIGCONT)
			if !test.kept {
				runtime.wait(t)
			}
			runtime.expect(t, "going on", "decided", nil)

			send(t, agent, syscall.SIGSTOP)
			before, ended := relay.sent.Load(), make(chan string)
			go func() { ended <- runtime.create(t, nil) }()
			for relay.sent.Load() == before {
				time.Sleep(time.Millisecond)
			}
			send(t, agent, syscall.SIGKILL)
			if got := <-ended; !strings.Contains(got, test.killed) {
				t.Errorf("killed while it was asked: got %s, want %s", got, test.killed)
			}
			runtime.expect(t, "gone", test.gone, nil)
			// The agent's own container has to start without it.
			runtime.expect(t, "gone, tolerated", "undecided", map[string]string{"kubewasm.dev/tolerate-no-agent": "true"})

			start(t, dir)
			runtime.wait(t)
			runtime.expect(t, "started again", "decided", nil)
		})
	}
}

// A runtime starts what is in its plugin directory itself, and gives it a
// connection, a name and an index.
func TestTheRuntimeStartsTheAgent(t *testing.T) {
	runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	dir := newProcess(t, filepath.Join(t.TempDir(), "no.sock"), true)
	for _, when := range []string{"the runtime started", "the runtime started again"} {
		runtime := newPeer(t, filepath.Join(t.TempDir(), "nri.sock"), adaptation.WithPluginPath(filepath.Join(dir, "plugins")),
			adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true, RequiredPlugins: []string{"40-kubewasm"}}))
		runtime.expect(t, when, "decided", nil)
		runtime.Stop()
	}
}

// The connection that a runtime has given to the process is the only one.
func TestTheRuntimeThatStartedTheAgentGoesAway(t *testing.T) {
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	sockets, err := nrinet.NewSocketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer sockets.Close()
	runtime, err := sockets.LocalConn()
	if err != nil {
		t.Fatal(err)
	}
	peer := sockets.PeerFile()
	fd, err := syscall.Dup(int(peer.Fd()))
	if err := errors.Join(err, peer.Close()); err != nil {
		t.Fatal(err)
	}
	t.Setenv(api.PluginNameEnvVar, "kubewasm")
	t.Setenv(api.PluginIdxEnvVar, "40")
	t.Setenv(api.PluginSocketEnvVar, fmt.Sprint(fd))
	plugin, err := nri.New(nri.Config{Engine: agent.Engine, State: agent.State, Enforcer: agent.Enforcer})
	if err != nil {
		t.Fatal(err)
	}
	registrations := make(chan *api.RegisterPluginRequest, 1)
	go halfRuntime(t, runtime, registrations)
	if err := plugin.Run(t.Context()); !errors.Is(err, nri.ErrClosed) {
		t.Errorf("got error %v, want %v", err, nri.ErrClosed)
	}
	if r := <-registrations; r.PluginName != "kubewasm" || r.PluginIdx != "40" {
		t.Errorf("the plugin registered as %v", r)
	}
}

// A runtime that ends between the plugin's registration and its configuration must
// not leave the plugin waiting for ever.
func TestARuntimeThatEndsBeforeItConfigures(t *testing.T) {
	agent := runtimetest.NewAgent(t, runtimetest.Scripted, nil)
	socket := filepath.Join(t.TempDir(), "nri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	registrations := make(chan *api.RegisterPluginRequest)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go halfRuntime(t, conn, registrations)
		}
	}()
	run(t, agent, socket, cgroup.Layout{})
	for range 3 {
		select {
		case <-registrations:
		case <-time.After(time.Minute):
			t.Fatal("the plugin does not connect again")
		}
	}
}

// halfRuntime takes a plugin's registration, and ends.
func halfRuntime(t *testing.T, conn net.Conn, registrations chan<- *api.RegisterPluginRequest) {
	w := &lastWord{Conn: conn, said: make(chan struct{})}
	mux := multiplex.Multiplex(w)
	defer mux.Close()
	l, err := mux.Listen(multiplex.RuntimeServiceConn)
	server, err2 := ttrpc.NewServer()
	if err := cmp.Or(err, err2); err != nil {
		t.Error(err)
		return
	}
	registered := make(chan *api.RegisterPluginRequest, 1)
	api.RegisterRuntimeService(server, registrar(registered))
	go server.Serve(context.Background(), l)
	<-w.said // What is in the socket is read before its end.
	mux.Close()
	registrations <- <-registered
}

type registrar chan *api.RegisterPluginRequest

func (r registrar) RegisterPlugin(_ context.Context, req *api.RegisterPluginRequest) (*api.Empty, error) {
	r <- req
	return &api.Empty{}, nil
}

func (registrar) UpdateContainers(context.Context, *api.UpdateContainersRequest) (*api.UpdateContainersResponse, error) {
	return nil, errors.New("too early")
}

// lastWord tells of the end of the first frame: a header and what it is of.
type lastWord struct {
	net.Conn
	said   chan struct{}
	writes int
}

func (w *lastWord) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if w.writes++; w.writes == 2 {
		close(w.said)
	}
	return n, err
}
