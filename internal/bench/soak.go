package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

const (
	soakPolicies = 50
	// soakPause is how long each policy rests between two calls: the soak is about what stays
	// behind, and leaves the processors to others.
	soakPause = 50 * time.Millisecond
	soakSwaps = 200 * time.Millisecond
	// soakGrowth is by how much memory may grow from the second quarter of the time to the last.
	soakGrowth = 1.05
)

// soakCalls are the Pods that policies are asked about, and what becomes of it. One in twenty
// ends in a trap, at the limit of its fuel, or at that of its memory.
var soakCalls = func() (calls []soakCall) {
	for range 16 {
		calls = append(calls, soakCall{name: "keep", allowed: true})
	}
	return append(calls, soakCall{name: "deny", text: "the Pod deny is not wanted"}, soakCall{name: "deny", text: "the Pod deny is not wanted"},
		soakCall{name: "deny", text: "the Pod deny is not wanted"}, soakCall{name: "fail"})
}()

var soakFailures = []string{"trap", "loop", "grow"}

type soakCall struct {
	name    string
	allowed bool
	text    string
}

// benchSoak lets policies decide, trap, loop and be swapped for a while. Each call must have
// its own answer, and the memory must stay as it is.
func benchSoak(b *bench) error {
	module, err := guestbuild.Build(b.ctx, source("guests/soak"))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kubewasm-soak-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, err := different(module, dir, 2*soakPolicies) // Two for each policy.
	if err != nil {
		return err
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: filepath.Join(dir, "cache"), IdleAfter: time.Second})
	if err != nil {
		return err
	}
	defer rt.Close(context.WithoutCancel(b.ctx))
	var policies []*admission.Plugin
	for n := range soakPolicies {
		p, err := admission.Load(b.ctx, rt, admission.PluginConfig{Config: host.Config{
			Name: fmt.Sprint("policy-", n), Module: host.ModuleConfig{File: fmt.Sprint(files, ".", n)},
			Limits: host.Limits{Fuel: 5e6, MemoryBytes: 16 << 20, Instances: 4},
		}})
		if err != nil {
			return err
		}
		policies = append(policies, p)
	}
	s := &soak{}
	start := time.Now()
	ctx, cancel := context.WithTimeout(b.ctx, b.soak)
	defer cancel()
	var working sync.WaitGroup
	for n, p := range policies {
		working.Go(func() { s.call(ctx, admission.NewEngine(p), rand.New(rand.NewPCG(uint64(n), 1))) })
	}
	working.Go(func() { s.swap(ctx, policies, files) })
	var memory []float64
	var goroutines int
	tick := time.NewTicker(max(b.soak/100, 100*time.Millisecond))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			debug.FreeOSMemory()
			bytes, err := resident()
			if err != nil {
				return err
			}
			memory, goroutines = append(memory, float64(bytes)), max(goroutines, runtime.NumGoroutine())
		}
	}
	working.Wait()
	took := time.Since(start).Round(time.Second)
	if len(memory) < 8 {
		return fmt.Errorf("%d looks at the memory in %s are too few; %d calls, %d lost: %w", len(memory), took, s.calls.Load(), s.lost.Load(), errors.Join(s.errs...))
	}
	quarter := len(memory) / 4
	before, after := median(memory[quarter:2*quarter]), median(memory[3*quarter:])
	b.rows = append(b.rows, row{
		what: fmt.Sprintf("soak: %d policies for %s, %d calls, %d swaps, %d traps", soakPolicies, took, s.calls.Load(), s.swaps.Load(), s.failed.Load()),
		ours: fmt.Sprintf("%.0f MB, %d lost", after/1e6, s.lost.Load()), against: "the memory in the second quarter", theirs: fmt.Sprintf("%.0f MB, %d goroutines", before/1e6, goroutines),
		ratio: fmt.Sprintf("%.3gx", after/before), target: fmt.Sprintf("<= %.3gx, 0 lost", soakGrowth),
		ok: after <= soakGrowth*before && s.lost.Load() == 0 && s.swaps.Load() > 0,
	})
	return s.first()
}

// soak counts what happens.
type soak struct {
	calls, swaps, failed, lost atomic.Int64
	mu                         sync.Mutex
	errs                       []error
}

// first returns an error with the first calls that were lost.
func (s *soak) first() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d calls were lost: %w", s.lost.Load(), s.errs[0])
}

func (s *soak) lose(format string, args ...any) {
	s.lost.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs = append(s.errs[:min(len(s.errs), 10)], fmt.Errorf(format, args...))
}

// call asks a policy until ctx ends.
func (s *soak) call(ctx context.Context, engine *admission.Engine, random *rand.Rand) {
	for ctx.Err() == nil {
		call := soakCalls[random.IntN(len(soakCalls))]
		if call.name == "fail" {
			call.name = soakFailures[random.IntN(len(soakFailures))]
			s.failed.Add(1)
		}
		p := pod()
		p.Name = call.name
		body, err := review(p)
		if err != nil {
			s.lose("%w", err)
			return
		}
		request, err := admission.DecodeReview(body)
		if err != nil {
			s.lose("%w", err)
			return
		}
		response := engine.Validate(context.WithoutCancel(ctx), request)
		s.calls.Add(1)
		text := ""
		if response.Result != nil {
			text = response.Result.Message
		}
		if failed := call.text == "" && !call.allowed; response.Allowed != call.allowed || !strings.Contains(text, call.text) || failed && !strings.Contains(text, "policy-") {
			s.lose("a Pod %s was allowed %v: %q", call.name, response.Allowed, text)
		}
		pause(ctx, time.Duration(random.Int64N(int64(2*soakPause))))
	}
}

// swap gives one policy after the other its other module.
func (s *soak) swap(ctx context.Context, policies []*admission.Plugin, files string) {
	for n := 0; ctx.Err() == nil; n++ {
		which := n % soakPolicies
		if n/soakPolicies%2 == 0 {
			which += soakPolicies
		}
		if err := policies[n%soakPolicies].Guest().Swap(context.WithoutCancel(ctx), host.File(fmt.Sprint(files, ".", which)), ""); err != nil {
			s.lose("swap: %w", err)
			continue
		}
		s.swaps.Add(1)
		pause(ctx, soakSwaps)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
