// Command peers measures kubewasm and its peers in one run and in turns. It makes a
// call that does nothing through kubewasm's host and through the other plugin
// systems on wazero, adds five numbers of a message through kubewasm's services, Extism and
// go-plugin with gRPC, and decides on a container through kubewasm's hooks and NRI.
//
//	cd internal/bench/peers && go run .
//
// It is a module of its own, so that kubewasm's own does not depend on the
// peers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	extism "github.com/extism/go-sdk"
	"github.com/knqyf263/go-plugin/examples/helloworld/greeting"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		stop()
		os.Exit(1)
	}
}

// peer is a plugin system with a guest loaded.
type peer struct {
	name  string
	call  func() error
	close func() error

	times  []float64 // Nanoseconds of a call, one for each round.
	allocs float64   // Of a call.
}

func run(ctx context.Context, out io.Writer) error {
	err := compare(ctx, out, "NO-OP CALL", 2000, loadKubewasm, loadExtism, loadGoPlugin)
	if err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := compare(ctx, out, "SUM OF 5 SCALARS", 2000, loadServiceInC, loadServiceInGo, loadExtismSum, loadGRPC); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return compare(ctx, out, "DECISION ON A CONTAINER", 200, loadHooks, loadNRIStub, loadNRIWasm)
}

// compare measures the same work through several systems, in turns.
func compare(ctx context.Context, out io.Writer, what string, calls int, loads ...func(context.Context) (*peer, error)) error {
	var peers []*peer
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	for _, load := range loads {
		p, err := load(ctx)
		if err != nil {
			return err
		}
		peers = append(peers, p)
	}
	const rounds = 21
	for range rounds {
		for _, p := range peers {
			if err := p.measure(calls, rounds); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, what+"\tTIME\tALLOCS\tOURS IS")
	for _, p := range peers {
		ratio := median(peers[0].times) / median(p.times)
		fmt.Fprintf(t, "%s\t%s\t%.3g\t%.3gx\n", p.name, time.Duration(median(p.times)), p.allocs, ratio)
	}
	return t.Flush()
}

func (p *peer) measure(calls, rounds int) error {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range calls {
		if err := p.call(); err != nil {
			return err
		}
	}
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	p.times = append(p.times, float64(took)/float64(calls))
	p.allocs += float64(after.Mallocs-before.Mallocs) / float64(calls) / float64(rounds)
	return nil
}

func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// loadKubewasm loads the no-op guest of the host's tests.
func loadKubewasm(ctx context.Context) (*peer, error) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return nil, err
	}
	plugin, err := rt.Load(ctx, host.Config{
		Name: "noop", Module: host.ModuleConfig{File: source("../../../host/testdata/noop.wasm")},
	}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return nil, errors.Join(err, rt.Close(ctx))
	}
	return &peer{
		name: "kubewasm, metered: acquire, call, release",
		call: func() error {
			inst, err := plugin.Acquire(ctx)
			if err != nil {
				return err
			}
			defer inst.Release()
			_, err = inst.Call(ctx, abi.Filter, 1, 2, 3)
			return err
		},
		close: func() error { return rt.Close(context.WithoutCancel(ctx)) },
	}, nil
}

// loadExtism loads the least guest that Extism can call, () -> i32 without input
// and output.
func loadExtism(ctx context.Context) (*peer, error) {
	module := []byte("\x00asm\x01\x00\x00\x00\x01\x05\x01\x60\x00\x01\x7f\x03\x02\x01\x00" +
		"\x07\x08\x01\x04noop\x00\x00\x0a\x06\x01\x04\x00\x41\x00\x0b")
	plugin, err := extism.NewPlugin(ctx,
		extism.Manifest{Wasm: []extism.Wasm{extism.WasmData{Data: module}}}, extism.PluginConfig{}, nil)
	if err != nil {
		return nil, fmt.Errorf("load the guest of Extism: %w", err)
	}
	return &peer{
		name: "Extism Go SDK",
		call: func() error {
			_, _, err := plugin.CallWithContext(ctx, "noop", nil)
			return err
		},
		close: func() error { return plugin.Close(context.WithoutCancel(ctx)) },
	}, nil
}

// loadGoPlugin builds and loads the guest that go-plugin has for an example: a
// call with a message of one empty string that answers with another. Its
// generated code has no call without messages.
func loadGoPlugin(ctx context.Context) (*peer, error) {
	dir, err := os.MkdirTemp("", "kubewasm-peers-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "morning.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-o", file,
		"github.com/knqyf263/go-plugin/examples/helloworld/plugin-morning")
	build.Dir = source(".")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest of go-plugin: %w: %s", err, out)
	}
	greeter, err := greeting.NewGreeterPlugin(ctx)
	if err != nil {
		return nil, err
	}
	plugin, err := greeter.Load(ctx, file)
	if err != nil {
		return nil, fmt.Errorf("load the guest of go-plugin: %w", err)
	}
	request := &greeting.GreetRequest{}
	return &peer{
		name: "go-plugin, greeting of standard Go",
		call: func() error {
			_, err := plugin.Greet(ctx, request)
			return err
		},
		close: func() error { return plugin.Close(context.WithoutCancel(ctx)) },
	}, nil
}

// source is a path beside this file.
func source(path string) string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), path)
}
