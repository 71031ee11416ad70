package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/bench/measure"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// benchService measures calls of extension points that other modules define: small ones by
// guests in C and Go, one with a Pod, and the example that picks one of 1,000 endpoints.
func benchService(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	if err := benchServiceCalls(b, rt); err != nil {
		return err
	}
	return benchPicker(b, rt)
}

func benchServiceCalls(b *bench, rt *host.Runtime) error {
	inGo, err := guestbuild.Build(b.ctx, source("guests/measure"))
	if err != nil {
		return err
	}
	inC, err := buildInC(b, "measure.c")
	if err != nil {
		return err
	}
	numbers := &measure.SumRequest{A: -7, B: 1 << 40, C: 300, D: true, E: 0.5}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"note": strings.Repeat("x", 10_000)},
	}}
	nativeSum := func(req *measure.SumRequest) float64 {
		sum := float64(req.A) + float64(req.B) + float64(req.C) + req.E
		if req.D {
			sum++
		}
		return sum
	}
	for _, g := range []struct {
		name     string
		module   []byte
		sum, pod target
	}{
		{"C guest", inC, target{time: 400}, target{time: 1500}},
		{"Go guest", nil, target{time: 1000}, target{time: 1500}},
	} {
		if g.module == nil && g.name == "C guest" {
			b.add("service, C guest", "there is no clang", "-", "-", 0, "", false)
			continue
		}
		cfg := service.Config{Config: host.Config{Name: g.name, Module: host.ModuleConfig{File: inGo}}}
		if g.module != nil {
			module, err := metadata.AddSection(g.module, abi.SchemaSection, measure.Schema())
			if err != nil {
				return err
			}
			cfg.Module.Source = host.Bytes(module)
		}
		p, err := measure.LoadMeasure(b.ctx, rt, cfg)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		var failed error
		b.compare("service, 5 scalars, "+g.name, g.sum, func(times int) {
			for range times {
				if resp, err := p.Sum(b.ctx, numbers); err != nil || resp.Sum != nativeSum(numbers) {
					failed = fmt.Errorf("sum is %v: %w", resp.Sum, err)
				}
			}
		}, "native", func(times int) {
			for range times {
				if nativeSum(numbers) == 0 {
					failed = fmt.Errorf("the native sum is 0")
				}
			}
		})
		b.compare("service, Pod of 10 KB seen before, "+g.name, g.pod, func(times int) {
			for range times {
				if resp, err := p.Zone(b.ctx, &measure.ZoneRequest{Pod: pod}); err != nil || resp.Zone != "a" {
					failed = fmt.Errorf("zone is %v: %w", resp.Zone, err)
				}
			}
		}, "native", func(times int) {
			for range times {
				if pod.Labels["zone"] != "a" {
					failed = fmt.Errorf("the native zone is another")
				}
			}
		})
		if failed == nil && g.module == nil {
			failed = benchRank(b, p)
		}
		if failed != nil {
			return fmt.Errorf("%s: %w", g.name, failed)
		}
	}
	return nil
}

// benchRank measures a request of 200 messages of 20 fields and two maps, all of which the plugin
// reads. Beside native code it is compared with JSON of the request and the response alone.
func benchRank(b *bench, p *measure.Measure) error {
	req := &measure.RankRequest{}
	for n := range 200 {
		req.Servers = append(req.Servers, measure.Server{
			Name: fmt.Sprint("server-", n), Zone: "eu-west-1a", Model: "llama-70b", Waiting: int32(n % 50), Running: int32(n % 9), Slots: 64,
			Tokens: 1_000_000 + int64(n), Served: int64(n) * 1000, Failed: uint32(n % 3), Cache: 0.5, Load: 0.25, Latency: 0.125, Ready: true,
			Draining: n%10 == 0, Priority: int32(n%5 - 2), Cost: 1.5, Started: 1_700_000_000 + int64(n), Devices: 8, Preferred: n%7 == 0, Memory: 80 << 30,
			Labels:  map[string]string{"pool": []string{"batch", "online"}[n%2], "rack": "r12"},
			Metrics: map[string]float64{"kv_cache": float64(n) / 200, "tokens_per_second": 1234.5},
		})
	}
	native := func(servers []measure.Server) []float64 {
		scores := make([]float64, 0, len(servers))
		for i := range servers {
			s := &servers[i]
			score := float64(len(s.Name)+len(s.Zone)+len(s.Model)) - float64(s.Waiting+s.Running) + float64(s.Slots)
			score += float64(s.Tokens+s.Served) - float64(s.Failed) + s.Cache - s.Load - s.Latency + float64(s.Priority)
			score += float64(s.Started) - s.Cost + float64(s.Devices) + float64(s.Memory)
			if !s.Ready || s.Draining {
				score = -1
			}
			if s.Preferred {
				score *= 2
			}
			score += s.Metrics["kv_cache"]
			if s.Labels["pool"] == "batch" {
				score /= 2
			}
			scores = append(scores, score)
		}
		return scores
	}
	want := native(req.Servers)
	var failed error
	check := func(got []float64, err error) {
		if err != nil || !slices.Equal(got, want) {
			failed = fmt.Errorf("scores are %v: %w", got, err)
		}
	}
	ours := func(times int) {
		for range times {
			resp, err := p.Rank(b.ctx, req)
			if err != nil {
				failed = err
				return
			}
			check(resp.Scores, nil)
		}
	}
	plain := plainRequest{}
	for _, s := range req.Servers {
		plain.Servers = append(plain.Servers, plainServer(s))
	}
	const what = "service, 200 servers of 20 fields and two maps, all read, Go guest"
	b.compareAll(
		comparison{what, target{ratio: 30, allocs: 20}, ours, "native", func(times int) {
			for range times {
				check(native(req.Servers), nil)
			}
		}},
		comparison{what, target{ratio: 1}, ours, "native and JSON both ways", func(times int) {
			for range times {
				check(native(req.Servers), throughJSON(&plain))
			}
		}},
	)
	return failed
}

// plainServer and plainRequest are messages that package json reads by itself.
type (
	plainServer  measure.Server
	plainRequest struct {
		Servers []plainServer `json:"servers,omitempty"`
	}
)

// throughJSON writes and reads a request, and a response of as many numbers.
func throughJSON(req *plainRequest) error {
	scores := make([]float64, len(req.Servers))
	for _, m := range []struct{ from, to any }{{req, new(plainRequest)}, {scores, new([]float64)}} {
		text, err := json.Marshal(m.from)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, m.to); err != nil {
			return err
		}
	}
	return nil
}

// noCache is the host service of the picker where nothing is cached.
type noCache struct{ picker.Cache }

// benchPicker measures the example endpoint-picker: of 1,000 endpoints every tenth is too busy,
// the others get a score, and the best is picked.
func benchPicker(b *bench, rt *host.Runtime) error {
	file, err := guestbuild.Build(b.ctx, source("../../examples/endpoint-picker/prefix"))
	if err != nil {
		return err
	}
	module, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const maxQueue = 44
	for _, row := range []struct {
		name, label string
		pods        bool
		target      target
	}{
		{"picker, 1,000 endpoints, Go guest", "", false, target{time: 60_000}},
		{"picker, 1,000 endpoints with Pods that are not read, Go guest", "", true, target{}},
		{"picker, 1,000 endpoints and a label of each one's Pod, Go guest", "drain", true, target{}},
	} {
		p, err := picker.LoadPicker(b.ctx, rt, service.Config{Config: host.Config{
			Name: "prefix", Module: host.ModuleConfig{Bytes: module}, Grants: []string{"cache"},
			GuestConfig: fmt.Appendf(nil, `{"maxQueue": %d, "drainLabel": %q}`, maxQueue, row.label),
		}}, noCache{})
		if err != nil {
			return err
		}
		req := &picker.PickRequest{Model: "llama"}
		for n := range 1000 {
			e := picker.Endpoint{Name: fmt.Sprint("endpoint-", n), WaitingQueueSize: int32((n*7 + 3) % 50), RunningQueueSize: int32(n % 9), KvCacheUsage: 0.5, MaxActiveModels: 4}
			if row.pods {
				e.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", n), Labels: map[string]string{"app": "vllm"}}}
			}
			req.Endpoints = append(req.Endpoints, e)
		}
		var failed error
		native := func() int {
			scores := make([]float64, 0, len(req.Endpoints))
			for i := range req.Endpoints {
				e, score := &req.Endpoints[i], -1.0
				drains := false
				if row.label != "" {
					_, drains = e.Pod.Labels[row.label]
				}
				if e.WaitingQueueSize <= maxQueue && !drains {
					score = 1 - float64(e.WaitingQueueSize)/(maxQueue+1)
				}
				scores = append(scores, score)
			}
			return best(scores)
		}
		want := native()
		b.compare(row.name, row.target, func(times int) {
			for range times {
				resp, err := p.Pick(b.ctx, req)
				if err != nil {
					failed = err
				} else if got := best(resp.Scores); got != want {
					failed = fmt.Errorf("picked endpoint %d, want %d", got, want)
				}
			}
		}, "native", func(times int) {
			for range times {
				if native() != want {
					failed = fmt.Errorf("the native picker picks another")
				}
			}
		})
		if failed != nil {
			return failed
		}
	}
	return nil
}

// best returns the first of the highest scores.
func best(scores []float64) int {
	at, most := 0, math.Inf(-1)
	for i, score := range scores {
		if score > most {
			at, most = i, score
		}
	}
	return at
}
