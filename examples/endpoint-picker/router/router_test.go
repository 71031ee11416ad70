package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/examples/endpoint-picker/picker"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/host/service/servicetest"
)

// module returns the module of a plugin.
func module(t testing.TB, dir string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "plugin.wasm")
	from, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "run", "-C", "../../../cmd/kubewasm", ".", "build", "--output-file", file, from)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// load returns the plugin prefix with a configuration.
func load(t testing.TB, config string, index *Index) *picker.Picker {
	t.Helper()
	load := func(ctx context.Context, rt *host.Runtime, cfg service.Config) (*picker.Picker, error) {
		cfg.FailurePolicy = host.Ignore
		return picker.LoadPicker(ctx, rt, cfg, index)
	}
	return servicetest.Load(t, "../prefix", load).Configure(t, config)
}

// TestRouter asks fakes, which answer what no plugin should.
func TestRouter(t *testing.T) {
	fake := func(resp *picker.PickResponse, err error) Weighted {
		return Weighted{"fake", &picker.PickerFake{PickFunc: func(context.Context, *picker.PickRequest) (*picker.PickResponse, error) { return resp, err }}, 1}
	}
	failure := errors.New("out of fuel")
	for _, test := range []struct {
		name    string
		plugins []Weighted
		want    string
	}{
		{"the highest score", []Weighted{fake(&picker.PickResponse{Scores: []float64{0, 1, 0.5}}, nil)}, "b"},
		{"two plugins", []Weighted{fake(&picker.PickResponse{Scores: []float64{0, 1, 0.5}}, nil), fake(&picker.PickResponse{Scores: []float64{0, 0, 0.9}}, nil)}, "c"},
		{"no opinion", []Weighted{fake(&picker.PickResponse{}, nil)}, "a"},
		{"a failure that is ignored", []Weighted{fake(&picker.PickResponse{}, fmt.Errorf("%w: %w", service.ErrIgnored, failure))}, "a"},
		{"a failure", []Weighted{fake(nil, failure)}, "out of fuel"},
		{"a plugin without the method", []Weighted{{"empty", &picker.PickerFake{}, 1}}, "the plugin does not have the method"},
		{"too few scores", []Weighted{fake(&picker.PickResponse{Scores: []float64{1}}, nil)}, `plugin "fake": 1 scores for 3 endpoints`},
		{"nothing is left", []Weighted{fake(&picker.PickResponse{Scores: []float64{-1, -1, -1}, Reason: "all drain"}, nil)}, `plugin "fake": no endpoint is left: all drain`},
	} {
		t.Run(test.name, func(t *testing.T) {
			endpoint, err := (&Router{test.plugins}).Pick(t.Context(), &picker.PickRequest{Endpoints: []picker.Endpoint{{Name: "a"}, {Name: "b"}, {Name: "c"}}})
			got := fmt.Sprint(err)
			if err == nil {
				got = endpoint.Name
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestPluginsAreChained(t *testing.T) {
	index := NewIndex()
	index.Add("b", 7, 8)
	index.Add("c", 8)
	queue := load(t, `{"maxQueue": 9}`, index)
	cache := load(t, `{"maxQueue": 99, "cacheWeight": 1}`, index)
	req := func() *picker.PickRequest {
		return &picker.PickRequest{PrefixHashes: []uint64{7, 8}, Endpoints: []picker.Endpoint{
			{Name: "a"}, {Name: "b", WaitingQueueSize: 5}, {Name: "c", WaitingQueueSize: 1},
		}}
	}
	// weighted returns the plugins whose weight is not 0.
	weighted := func(weights ...float64) (all []Weighted) {
		for i, p := range []*picker.Picker{queue, cache} {
			if weights[i] != 0 {
				all = append(all, Weighted{p.Name(), p, weights[i]})
			}
		}
		return all
	}
	tests := []struct {
		name    string
		plugins []Weighted
		change  func(r *picker.PickRequest)
		want    string
	}{
		{"without plugins the first", nil, nil, "a"},
		{"by the queue", weighted(1, 0), nil, "a"},
		{"by the cache", weighted(0, 1), nil, "b"},
		{"the queue counts more", weighted(3, 1), nil, "a"},
		{"the cache counts more", weighted(1, 3), nil, "b"},
		{"the first filters for the second", weighted(1, 3), func(r *picker.PickRequest) { r.Endpoints[1].WaitingQueueSize = 10 }, "a"},
		{"all are busy", weighted(1, 0), func(r *picker.PickRequest) {
			for i := range r.Endpoints {
				r.Endpoints[i].WaitingQueueSize = 10
			}
		}, "no endpoint is left: every server is busy or draining"},
		{"there are none", nil, func(r *picker.PickRequest) { r.Endpoints = nil }, "no endpoint is left"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := req()
			if test.change != nil {
				test.change(r)
			}
			endpoint, err := (&Router{test.plugins}).Pick(t.Context(), r)
			got := fmt.Sprint(err)
			if err == nil {
				got = endpoint.Name
			} else if !errors.Is(err, ErrNoEndpoint) {
				t.Errorf("got %v, want ErrNoEndpoint", err)
			}
			if !strings.HasSuffix(got, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// TestSwapUnderLoad swaps the plugin while requests are served. Each is answered by one of the
// versions, which give the same answers.
func TestSwapUnderLoad(t *testing.T) {
	p := load(t, `{"maxQueue": 9, "drainLabel": "drain"}`, NewIndex())
	router := &Router{[]Weighted{{p.Name(), p, 1}}}
	original := module(t, "../prefix")
	other, err := metadata.AddSection(original, "other", []byte{1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := range 60 {
				best := fmt.Sprint("e", (g+i)%5)
				req := &picker.PickRequest{}
				for n := range 5 {
					e := picker.Endpoint{Name: fmt.Sprint("e", n), Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", n)}}}
					if e.Name != best {
						e.Pod.Labels = map[string]string{"drain": ""}
					}
					req.Endpoints = append(req.Endpoints, e)
				}
				if got, err := router.Pick(t.Context(), req); err != nil || got.Name != best {
					t.Errorf("got %v, %v, want %s", got, err, best)
				}
			}
		})
	}
	for _, next := range [][]byte{other, original} {
		if err := p.Swap(t.Context(), host.Bytes(next), ""); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	queue, adapter := "prefix="+file("prefix.wasm", module(t, "../prefix")), "adapter="+file("adapter.wasm", module(t, "../adapter"))
	configs := values{"prefix=" + file("prefix.yaml", []byte("maxQueue: 9"))}
	const request = `{model: sql, endpoints: [
		{name: a, waitingQueueSize: 5, activeModels: [sql], maxActiveModels: 1}, {name: b, maxActiveModels: 1},
		{name: c, waitingQueueSize: 10, activeModels: [sql], maxActiveModels: 1}]}`
	for _, test := range []struct {
		name    string
		plugins values
		want    string
	}{
		{"the queue counts more than the adapter", values{adapter + ":1", queue + ":1"}, "b\n"},
		{"the adapter counts more than the queue", values{adapter + ":9", queue + ":1"}, "a\n"},
	} {
		var out strings.Builder
		if err := run(t.Context(), test.plugins, configs, strings.NewReader(request), &out); err != nil || out.String() != test.want {
			t.Errorf("%s: printed %q, error %v, want %q", test.name, out.String(), err, test.want)
		}
	}
	if err := run(t.Context(), nil, configs, strings.NewReader(request), io.Discard); err == nil || err.Error() != `configuration of "prefix": there is no such plugin` {
		t.Errorf("got %v", err)
	}
	if err := run(t.Context(), values{"prefix"}, nil, strings.NewReader(request), io.Discard); err == nil || !strings.Contains(err.Error(), "want name=file:weight") {
		t.Errorf("got %v", err)
	}
}

func BenchmarkPick(b *testing.B) {
	p := load(b, `{"maxQueue": 99, "drainLabel": "drain"}`, NewIndex())
	req := &picker.PickRequest{Model: "llama"}
	for n := range 1000 {
		req.Endpoints = append(req.Endpoints, picker.Endpoint{
			Name: fmt.Sprint("endpoint-", n), WaitingQueueSize: int32(n % 50), KvCacheUsage: 0.5,
			Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", n), Labels: map[string]string{"app": "vllm"}}},
		})
	}
	router := &Router{[]Weighted{{p.Name(), p, 1}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := router.Pick(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
