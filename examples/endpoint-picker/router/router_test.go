package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// prefix returns the module of the plugin prefix.
func prefix(t testing.TB) []byte {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../prefix")
	if err != nil {
		t.Fatal(err)
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
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rt.Close(context.Background()) })
	p, err := picker.LoadPicker(t.Context(), rt, service.Config{Config: host.Config{
		Name: "prefix", Source: host.Bytes(prefix(t)), GuestConfig: []byte(config), Grants: []string{"cache"},
	}, FailurePolicy: host.Ignore}, index)
	if err != nil {
		t.Fatal(err)
	}
	return p
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
	tests := []struct {
		name    string
		plugins []Weighted
		change  func(r *picker.PickRequest)
		want    string
	}{
		{"without plugins the first", nil, nil, "a"},
		{"by the queue", []Weighted{{queue, 1}}, nil, "a"},
		{"by the cache", []Weighted{{cache, 1}}, nil, "b"},
		{"the queue counts more", []Weighted{{queue, 3}, {cache, 1}}, nil, "a"},
		{"the cache counts more", []Weighted{{queue, 1}, {cache, 3}}, nil, "b"},
		{"the first filters for the second", []Weighted{{queue, 1}, {cache, 3}}, func(r *picker.PickRequest) { r.Endpoints[1].WaitingQueueSize = 10 }, "a"},
		{"all are busy", []Weighted{{queue, 1}}, func(r *picker.PickRequest) {
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
	router := &Router{[]Weighted{{p, 1}}}
	module := prefix(t)
	other, err := metadata.AddSection(module, "other", []byte{1})
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
	for _, next := range [][]byte{other, module} {
		if err := p.Swap(t.Context(), host.Bytes(next), ""); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	file, config := filepath.Join(dir, "prefix.wasm"), filepath.Join(dir, "config.yaml")
	if err := errors.Join(os.WriteFile(file, prefix(t), 0o644), os.WriteFile(config, []byte("maxQueue: 9"), 0o644)); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	in := strings.NewReader("endpoints: [{name: a, waitingQueueSize: 3}, {name: b}]")
	if err := run(t.Context(), plugins{"prefix=" + file + ":1"}, config, in, &out); err != nil || out.String() != "b\n" {
		t.Errorf("printed %q, error %v", out.String(), err)
	}
	if err := run(t.Context(), plugins{"prefix"}, "", in, &out); err == nil || !strings.Contains(err.Error(), "want name=file:weight") {
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
	router := &Router{[]Weighted{{p, 1}}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := router.Pick(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
