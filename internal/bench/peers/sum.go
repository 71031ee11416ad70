package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	extism "github.com/extism/go-sdk"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/protobuf/proto"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/bench/measure"
	"github.com/kubewasm/kubewasm/internal/bench/peers/sumpb"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// wantSum is what the plugins return for the numbers.
const wantSum = -7 + 1<<40 + 300 + 1 + 0.5

// loadServiceInGo and loadServiceInC load the guests of package measure, which add five
// numbers.
func loadServiceInGo(ctx context.Context) (*peer, error) {
	file, err := guestbuild.Build(ctx, source("../guests/measure"))
	if err != nil {
		return nil, err
	}
	return loadService(ctx, "kubewasm, guest in Go", host.File(file))
}

func loadServiceInC(ctx context.Context) (*peer, error) {
	module, err := buildInC(ctx, source("../guests/measure.c"))
	if err != nil {
		return nil, err
	}
	if module, err = metadata.AddSection(module, abi.SchemaSection, measure.Schema()); err != nil {
		return nil, err
	}
	return loadService(ctx, "kubewasm, guest in C", host.Bytes(module))
}

func loadService(ctx context.Context, name string, module host.Source) (*peer, error) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return nil, err
	}
	p, err := measure.LoadMeasure(ctx, rt, service.Config{Config: host.Config{Name: "measure", Module: host.ModuleConfig{Source: module}}})
	if err != nil {
		return nil, errors.Join(err, rt.Close(ctx))
	}
	req := &measure.SumRequest{A: -7, B: 1 << 40, C: 300, D: true, E: 0.5}
	return &peer{
		name: name,
		call: func() error {
			resp, err := p.Sum(ctx, req)
			if err == nil && resp.Sum != wantSum {
				err = fmt.Errorf("the sum is %v", resp.Sum)
			}
			return err
		},
		close: func() error { return rt.Close(context.WithoutCancel(ctx)) },
	}, nil
}

// buildInC builds a guest in C.
func buildInC(ctx context.Context, file string, flags ...string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "kubewasm-peers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	args := append([]string{"--target=wasm32", "-O2", "-fno-builtin", "-nostdlib", "-Wl,--no-entry", "-o", out, file}, flags...)
	if text, err := exec.CommandContext(ctx, "clang", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", file, err, text)
	}
	return os.ReadFile(out)
}

// loadExtismSum loads the guest of Extism, which takes the message in protobuf, too.
func loadExtismSum(ctx context.Context) (*peer, error) {
	module, err := buildInC(ctx, source("extismguest/sum.c"))
	if err != nil {
		return nil, err
	}
	p, err := extism.NewPlugin(ctx, extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: module}}}, extism.PluginConfig{}, nil)
	if err != nil {
		return nil, fmt.Errorf("load the guest of Extism: %w", err)
	}
	req := &sumpb.SumRequest{A: -7, B: 1 << 40, C: 300, D: true, E: 0.5}
	return &peer{
		name: "Extism Go SDK, guest in C, protobuf",
		call: func() error {
			in, err := proto.Marshal(req)
			if err != nil {
				return err
			}
			_, out, err := p.CallWithContext(ctx, "sum", in)
			if err != nil {
				return err
			}
			resp := new(sumpb.SumResponse)
			if err = proto.Unmarshal(out, resp); err == nil && resp.Sum != wantSum {
				err = fmt.Errorf("the sum is %v", resp.Sum)
			}
			return err
		},
		close: func() error { return p.Close(context.WithoutCancel(ctx)) },
	}, nil
}

// loadGRPC builds and starts the plugin of go-plugin, a process that is called over gRPC.
func loadGRPC(ctx context.Context) (*peer, error) {
	dir, err := os.MkdirTemp("", "kubewasm-peers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "sumplugin")
	build := exec.CommandContext(ctx, "go", "build", "-o", file, "./sumplugin")
	build.Dir = source(".")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the plugin of go-plugin: %w: %s", err, out)
	}
	c := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig: sumpb.Handshake, Plugins: sumpb.Plugins, Cmd: exec.Command(file),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, Logger: hclog.NewNullLogger(),
	})
	rpc, err := c.Client()
	if err != nil {
		c.Kill()
		return nil, fmt.Errorf("start the plugin of go-plugin: %w", err)
	}
	raw, err := rpc.Dispense("measure")
	if err != nil {
		c.Kill()
		return nil, err
	}
	m, req := raw.(sumpb.Measure), &sumpb.SumRequest{A: -7, B: 1 << 40, C: 300, D: true, E: 0.5}
	return &peer{
		name: "go-plugin (hashicorp), a process, gRPC",
		call: func() error {
			resp, err := m.Sum(ctx, req)
			if err == nil && resp.Sum != wantSum {
				err = fmt.Errorf("the sum is %v", resp.Sum)
			}
			return err
		},
		close: func() error {
			c.Kill()
			return nil
		},
	}, nil
}
