package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	nrilog "github.com/containerd/nri/pkg/log"
	"github.com/containerd/nri/pkg/stub"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// The decision on a container by its pod's annotation, through kubewasm's engine,
// a plugin of NRI at the other end of a socket, and NRI's own plugins in
// WebAssembly.

// creation is a container of a pod, about 2 KB.
func creation() *api.CreateContainerRequest {
	labels, annotations := map[string]string{}, map[string]string{"kubewasm.dev/cpu": "1500m"}
	for i := range 10 {
		labels["app.kubernetes.io/label-"+strconv.Itoa(i)] = "a value of the usual length"
		annotations["shop.example.com/annotation-"+strconv.Itoa(i)] = "a value of the usual length"
	}
	c := &api.Container{Id: strings.Repeat("4b1f", 16), PodSandboxId: "s1", Name: "web", Linux: &api.LinuxContainer{CgroupsPath: "/kubepods/burstable/podu1/4b1f"}}
	for i := range 24 {
		c.Env = append(c.Env, fmt.Sprintf("SHOP_FEATURE_%d_SETTING=a value of the usual length", i))
	}
	return &api.CreateContainerRequest{
		Pod:       &api.PodSandbox{Id: "s1", Namespace: "shop", Name: "web", Uid: "u1", Labels: labels, Annotations: annotations},
		Container: c,
	}
}

func checkAdjustment(resp *api.CreateContainerResponse, err error) error {
	if err == nil && resp.GetAdjust().GetLinux().GetResources().GetCpu().GetShares().GetValue() != 1536 {
		err = fmt.Errorf("unexpected answer %v", resp)
	}
	return err
}

// loadHooks loads the guest of the examples, without a socket: the work of a
// plugin alone.
func loadHooks(ctx context.Context) (*peer, error) {
	file, err := guestbuild.Build(ctx, source("../../../examples/hooks/cpu-from-annotation"))
	if err != nil {
		return nil, err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return nil, err
	}
	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "cpu", Module: host.ModuleConfig{File: file}}}}})
	if err != nil {
		return nil, errors.Join(err, rt.Close(ctx))
	}
	in := creation()
	request := &hookmsg.Request{
		Stage: abi.PreCreateContainer, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{Namespace: in.Pod.Namespace, Name: in.Pod.Name, UID: in.Pod.Uid},
		Container: hookmsg.ContainerMeta{Name: in.Container.Name, ID: in.Container.Id}, PodLabels: in.Pod.Labels, PodAnnotations: in.Pod.Annotations,
	}
	for _, env := range in.Container.Env {
		name, value, _ := strings.Cut(env, "=")
		request.ContainerEnvs = append(request.ContainerEnvs, hookmsg.Env{Name: name, Value: value})
	}
	return &peer{
		name: "kubewasm's engine, guest in Go",
		call: func() error {
			d, err := engine.Decide(ctx, request)
			if err == nil && (d.Resources == nil || *d.Resources.CPUShares != 1536) {
				err = fmt.Errorf("unexpected decision %+v", d)
			}
			return err
		},
		close: func() error { return rt.Close(context.WithoutCancel(ctx)) },
	}, nil
}

// quiet drops what NRI logs of each connection.
type quiet struct{}

func (quiet) Debugf(context.Context, string, ...any) {}
func (quiet) Infof(context.Context, string, ...any)  {}
func (quiet) Warnf(context.Context, string, ...any)  {}
func (quiet) Errorf(_ context.Context, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "nri: "+format+"\n", args...)
}

// newNRI starts a runtime's side of NRI with the plugins in a directory.
func newNRI(dir string) (a *adaptation.Adaptation, socket string, synced chan bool, err error) {
	nrilog.Set(quiet{})
	synced = make(chan bool, 10)
	socket = filepath.Join(dir, "nri.sock")
	a, err = adaptation.New("peers", "v1", func(ctx context.Context, sync adaptation.SyncCB) error {
		_, err := sync(ctx, nil, nil)
		synced <- true
		return err
	}, func(context.Context, []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) { return nil, nil },
		adaptation.WithSocketPath(socket), adaptation.WithPluginPath(filepath.Join(dir, "plugins")), adaptation.WithPluginConfigPath(filepath.Join(dir, "conf")))
	if err == nil {
		err = a.Start()
	}
	return a, socket, synced, err
}

// native is a plugin of NRI in Go.
type native struct{}

func (native) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	milli, err := strconv.ParseInt(strings.TrimSuffix(pod.GetAnnotations()["kubewasm.dev/cpu"], "m"), 10, 64)
	if err != nil {
		return nil, nil, err
	}
	a := &api.ContainerAdjustment{}
	a.SetLinuxCPUShares(uint64(milli * 1024 / 1000))
	a.SetLinuxCPUPeriod(100_000)
	a.SetLinuxCPUQuota(milli * 100)
	return a, nil, nil
}

// loadNRIStub connects a native plugin over NRI's socket.
func loadNRIStub(ctx context.Context) (*peer, error) {
	dir, err := os.MkdirTemp("", "kubewasm-peers-")
	if err != nil {
		return nil, err
	}
	a, socket, synced, err := newNRI(dir)
	if err != nil {
		return nil, err
	}
	<-synced
	s, err := stub.New(native{}, stub.WithPluginName("native"), stub.WithPluginIdx("10"), stub.WithSocketPath(socket), stub.WithOnClose(func() {}), stub.WithLogger(quiet{}))
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	select {
	case <-synced:
		a.BlockPluginSync().Unblock()
	case <-time.After(10 * time.Second):
		return nil, errors.New("the plugin of NRI does not connect")
	}
	in := creation()
	return &peer{
		name: "NRI, native plugin over ttrpc",
		call: func() error { return checkAdjustment(a.CreateContainer(ctx, in)) },
		close: func() error {
			s.Stop()
			a.Stop()
			return os.RemoveAll(dir)
		},
	}, nil
}

// loadNRIWasm builds a plugin with NRI's SDK and loads it by NRI's own means.
func loadNRIWasm(ctx context.Context) (*peer, error) {
	dir, err := os.MkdirTemp("", "kubewasm-peers-")
	if err != nil {
		return nil, err
	}
	for _, sub := range []string{"plugins", "conf"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, err
		}
	}
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-o", filepath.Join(dir, "plugins", "10-cpu.wasm"), "./nriguest")
	build.Dir = source(".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest of NRI: %w: %s", err, out)
	}
	// NRI loads what may be executed.
	if err := os.Chmod(filepath.Join(dir, "plugins", "10-cpu.wasm"), 0o755); err != nil {
		return nil, err
	}
	a, _, _, err := newNRI(dir)
	if err != nil {
		return nil, err
	}
	in := creation()
	return &peer{
		name: "NRI, its own plugin in WebAssembly",
		call: func() error { return checkAdjustment(a.CreateContainer(ctx, in)) },
		close: func() error {
			a.Stop()
			return os.RemoveAll(dir)
		},
	}, nil
}
