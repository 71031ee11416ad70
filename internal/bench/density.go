package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// densityVariable tells a process of the benchmark to load plugins and print what they
// take: a [load] in JSON.
const densityVariable = "KUBEWASM_BENCH_DENSITY"

// load is what one process loads.
type load struct {
	// Policies are loaded from Module; with Different, each from a file with its number, and
	// with Modules, in turn from as many such files.
	Policies  int
	Module    string
	Different bool
	Modules   int
	// Compiled is the digest of the compiled form of Module, empty to use none.
	Compiled []string
	// Native is set for as many policies in Go.
	Native bool
	// Hooks are the modules of a node agent.
	Hooks []string
	Cache string
	// Plain is set to load Module and to measure nothing but this.
	Plain bool
	// Idle is set to measure after the instances that served the calls are closed.
	Idle bool
	// Busy is set to measure after calls to all plugins for four times IdleAfter.
	Busy bool
	// Rounds is how often all are asked for loaded.Ask.
	Rounds int
}

// loaded is what a process says: its resident memory, with the snapshots of guests, and the
// time until all answer.
type loaded struct {
	Bytes uint64
	Ready time.Duration
	// Ask is the processor time of an answer when others were asked since, Again when none was:
	// the means of the cheapest rounds.
	Ask, Again time.Duration
}

// benchDensity measures processes with many plugins.
func benchDensity(b *bench) error {
	policy, err := guestbuild.Build(b.ctx, source("../../examples/admission/required-labels"))
	if err != nil {
		return err
	}
	var agent []string
	for _, name := range []string{"batch-resource", "cpu-normalization", "cpuset", "group-identity"} {
		file, err := guestbuild.Build(b.ctx, source("../../examples/hooks/"+name))
		if err != nil {
			return err
		}
		agent = append(agent, file)
	}
	dir, err := os.MkdirTemp("", "kubewasm-density-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	add := func(what string, l load, native int, mostBytes uint64, mostReady time.Duration) error {
		ours, err := densityOf(b.ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		theirs, err := densityOf(b.ctx, load{Policies: native, Native: true})
		if err != nil {
			return fmt.Errorf("%s: native: %w", what, err)
		}
		r := row{
			what: "density: " + what, ours: ours.String(), against: "the same process, policies compiled in", theirs: theirs.String(),
			ratio: fmt.Sprintf("%.3gx", float64(ours.Bytes)/float64(theirs.Bytes)),
			ok:    (mostBytes == 0 || ours.Bytes <= mostBytes) && (mostReady == 0 || ours.Ready <= mostReady),
		}
		var targets []string
		if mostBytes != 0 {
			targets = append(targets, fmt.Sprintf("<= %d MB", mostBytes/1e6))
		}
		if mostReady != 0 {
			targets = append(targets, "ready in "+mostReady.String())
		}
		r.target = strings.Join(targets, ", ")
		b.rows = append(b.rows, r)
		return nil
	}
	var errs []error
	for _, n := range []int{1, 10, 50, 100} {
		most := uint64(0)
		if n == 50 {
			most = 100e6
		}
		errs = append(errs, add(fmt.Sprintf("%d policies of one Go module, cold", n), load{Policies: n, Module: policy}, n, most, 0))
	}
	errs = append(errs, add("50 policies of one Go module, idle", load{Policies: 50, Module: policy, Idle: true}, 50, 100e6, 0))
	others, err := different(policy, dir, 50)
	if err != nil {
		return err
	}
	errs = append(errs, shippedDensity(b, others, dir, add))
	for _, n := range []int{1, 10, 50} {
		cache := filepath.Join(dir, fmt.Sprint("different-", n))
		most, ready := uint64(0), time.Duration(0)
		if n == 50 {
			most, ready = 250e6, 2*time.Second
		}
		l := load{Policies: n, Module: others, Different: true, Cache: cache}
		errs = append(errs, add(fmt.Sprintf("%d different Go policies, cold", n), l, n, most, 0))
		errs = append(errs, add(fmt.Sprintf("%d different Go policies, warm", n), l, n, most, ready))
		l.Busy = true
		errs = append(errs, add(fmt.Sprintf("%d different Go policies, warm, each asked again and again", n), l, n, most, ready))
		l.Busy, l.Idle = false, true
		errs = append(errs, add(fmt.Sprintf("%d different Go policies, warm, idle", n), l, n, most, ready))
	}
	l := load{Hooks: agent, Cache: filepath.Join(dir, "agent")}
	errs = append(errs, add("a node agent with 4 Go guests, cold", l, 0, 60e6, 0))
	errs = append(errs, add("a node agent with 4 Go guests, warm", l, 0, 60e6, 0))
	l.Busy = true
	errs = append(errs, add("a node agent with 4 Go guests, warm, asked again and again", l, 0, 60e6, 0))
	l.Busy, l.Idle = false, true
	errs = append(errs, add("a node agent with 4 Go guests, warm, idle", l, 0, 60e6, 0))
	return errors.Join(errs...)
}

// shippedDensity starts a policy with an empty cache and its compiled form beside it.
func shippedDensity(b *bench, modules, dir string, add func(string, load, int, uint64, time.Duration) error) error {
	file := modules + ".0"
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	form, err := host.Precompile(b.ctx, module, host.Limits{})
	if err != nil {
		return err
	}
	if err := os.WriteFile(host.CompiledFile(file, host.Platform), form, 0o600); err != nil {
		return err
	}
	return add("1 Go policy, nothing in the cache, its compiled form beside it",
		load{Policies: 1, Module: file, Cache: filepath.Join(dir, "shipped"), Compiled: []string{fmt.Sprintf("%x", sha256.Sum256(form))}}, 1, 0, 0)
}

func (l loaded) String() string {
	return fmt.Sprintf("%.0f MB, ready in %s", float64(l.Bytes)/1e6, short(l.Ready))
}

// densityOf measures in a process of its own.
func densityOf(ctx context.Context, l load) (loaded, error) {
	self, err := os.Executable()
	if err != nil {
		return loaded{}, err
	}
	text, err := json.Marshal(l)
	if err != nil {
		return loaded{}, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), densityVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return loaded{}, err
	}
	var result loaded
	return result, json.Unmarshal(out, &result)
}

// runDensity is the process that is measured.
func runDensity(ctx context.Context, text string) error {
	var l load
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		return err
	}
	body, err := review(pod())
	if err != nil {
		return err
	}
	if l.Plain {
		return runLoad(ctx, l)
	}
	start := time.Now()
	cfg := host.RuntimeConfig{CacheDir: l.Cache}
	if l.Idle || l.Busy {
		cfg.IdleAfter = time.Second
	}
	rt, err := host.NewRuntime(cfg)
	if err != nil {
		return err
	}
	var ask []func() error
	switch {
	case l.Native:
		for range l.Policies {
			ask = append(ask, func() error { _, err := nativeValidate(body); return err })
		}
	case len(l.Hooks) != 0:
		var cfg hooks.Config
		for _, file := range l.Hooks {
			cfg.Plugins = append(cfg.Plugins, hooks.PluginConfig{Config: host.Config{Name: filepath.Base(file), Module: host.ModuleConfig{File: file}}, FailurePolicy: host.Ignore})
		}
		engine, err := hooks.NewEngine(ctx, rt, cfg)
		if err != nil {
			return err
		}
		ask = append(ask, func() error { _, err := engine.Decide(ctx, hookRequest()); return err })
	default:
		if ask, err = loadPolicies(ctx, rt, l, body); err != nil {
			return err
		}
	}
	if err := all(ask); err != nil {
		return err
	}
	result := loaded{Ready: time.Since(start)}
	if l.Rounds != 0 {
		if len(l.Hooks) != 0 {
			ask = slices.Repeat(ask, 2*scalePods)
		}
		if result.Ask, err = cheapest(l.Rounds, func() error { return all(ask) }); err != nil {
			return err
		}
		if result.Again, err = cheapest(l.Rounds, func() error { return all(slices.Repeat(ask[:1], len(ask))) }); err != nil {
			return err
		}
		result.Ask, result.Again = result.Ask/time.Duration(len(ask)), result.Again/time.Duration(len(ask))
	}
	for end := time.Now().Add(4 * cfg.IdleAfter); l.Busy && time.Now().Before(end); {
		if err := all(ask); err != nil {
			return err
		}
	}
	if l.Idle {
		time.Sleep(3 * cfg.IdleAfter)
	}
	debug.FreeOSMemory()
	if result.Bytes, err = resident(); err != nil {
		return err
	}
	runtime.KeepAlive(ask)
	return json.NewEncoder(os.Stdout).Encode(result)
}

// runLoad is the process that loads one module.
func runLoad(ctx context.Context, l load) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: l.Cache})
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	start := time.Now()
	_, err = rt.Load(ctx, host.Config{Name: "plain", Module: host.ModuleConfig{File: l.Module}}, host.Adapter{Kind: abi.KindScheduler})
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(loaded{Ready: time.Since(start)})
}

// all calls each function.
func all(ask []func() error) error {
	for _, f := range ask {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// loadPolicies loads policies, as many at a time as there are processors, and returns what
// asks them about a Pod.
func loadPolicies(ctx context.Context, rt *host.Runtime, l load, body []byte) ([]func() error, error) {
	ask, errs := make([]func() error, l.Policies), make([]error, l.Policies)
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for n := range l.Policies {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			module := l.Module
			if l.Different {
				module = fmt.Sprint(l.Module, ".", n)
			} else if l.Modules != 0 {
				module = fmt.Sprint(l.Module, ".", n%l.Modules)
			}
			policy, err := admission.Load(ctx, rt, admission.PluginConfig{Config: host.Config{
				Name: fmt.Sprint("policy-", n), Module: host.ModuleConfig{File: module, Compiled: l.Compiled}, Logger: slog.Default(),
				GuestConfig: fmt.Appendf(nil, `{"labels": ["app", "team"], "registries": ["registry-%d.example.com/"]}`, n),
			}})
			if err != nil {
				errs[n] = err
				return
			}
			engine := admission.NewEngine(policy)
			ask[n] = func() error {
				request, err := admission.DecodeReview(body)
				if err == nil {
					engine.Validate(ctx, request)
				}
				return err
			}
		})
	}
	wg.Wait()
	return ask, errors.Join(errs...)
}

// different writes n modules with one more custom section, which is another in each.
// Nothing that is made of one is shared with the others.
func different(file, dir string, n int) (name string, err error) {
	module, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, "policy.wasm")
	for i := range n {
		other := append(bytes.Clone(module), 0, 4, 1, 'n', byte(i), byte(i>>8))
		if err := os.WriteFile(fmt.Sprint(name, ".", i), other, 0o600); err != nil {
			return "", err
		}
	}
	return name, nil
}
