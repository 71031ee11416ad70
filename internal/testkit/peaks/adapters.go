package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

var (
	//go:embed testdata/questions.wasm
	questionsGuest []byte
	//go:embed testdata/logs.wasm
	logsGuest []byte
	//go:embed testdata/endless.wasm
	endlessGuest []byte
)

// filter loads a scheduler plugin and calls its Filter about nodes.
func filter(ctx context.Context, cfg host.Config, nodes int) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(ctx)
	handle := framework.Of(&framework.Handle{Informers: framework.NewInformers()})
	p, err := sched.Load(ctx, rt, sched.PluginConfig{DisableResultSharing: true, Config: cfg}, handle)
	if err != nil {
		return err
	}
	defer p.Close(ctx)
	cycle := p.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pending"}})
	for n := range nodes {
		status := p.Filter(cycle, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}}))
		if status != nil {
			return fmt.Errorf("node %d: %s", n, status.Message())
		}
	}
	return nil
}

func questions(ctx context.Context, _ string) error {
	return filter(ctx, host.Config{
		Name: "questions", Module: host.ModuleConfig{Bytes: questionsGuest}, Grants: []string{sched.GrantWaitingPods},
		Limits: host.Limits{Timeout: time.Minute}, // A machine under load takes longer than the default to keep them.
	}, 1)
}

// logs tells how long the log is.
func logs(nodes int) func(context.Context, string) error {
	return func(ctx context.Context, dir string) error {
		file, err := os.Create(filepath.Join(dir, "log"))
		if err != nil {
			return err
		}
		defer file.Close()
		logger := slog.New(slog.NewTextHandler(file, nil))
		if err := filter(ctx, host.Config{Name: "logs", Module: host.ModuleConfig{Bytes: logsGuest}, Logger: logger}, nodes); err != nil {
			return err
		}
		size, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		return note(fmt.Sprintf("a log of %.1f MB", float64(size)/1e6))
	}
}

// serve serves a policy, and returns what sends it a review with so many bytes.
func serve(ctx context.Context, cfg admission.PluginConfig) (send func(bytes int) error, p *admission.Plugin, end func(), err error) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.Config.Name, cfg.Config.Module.Source, cfg.Config.Logger = "policy", host.Bytes(endlessGuest), slog.New(slog.DiscardHandler)
	if p, err = admission.Load(ctx, rt, cfg); err != nil {
		return nil, nil, nil, err
	}
	server := httptest.NewServer(&admission.Handler{Validator: admission.NewEngine(p), Bodies: admission.NewBodies(admission.BodyLimits{})})
	send = func(n int) error {
		const before, after = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u",` +
			`"kind":{"group":"","version":"v1","kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},` +
			`"name":"web","namespace":"shop","operation":"CREATE","userInfo":{"username":"alice"},` +
			`"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"},"spec":{"hostname":"`, `"}},"options":{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1"}}}`
		body := io.MultiReader(strings.NewReader(before), io.LimitReader(letters{}, int64(n)), strings.NewReader(after))
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/?timeout=10s", body)
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = int64(len(before) + n + len(after))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && !bytes.Contains(answer, []byte(`"allowed":true`)) {
			err = fmt.Errorf("answer %d: %.200s", resp.StatusCode, answer)
		}
		return err
	}
	return send, p, func() {
		server.Close()
		_ = p.Close(ctx)
		_ = rt.Close(ctx)
	}, nil
}

// letters is a text without end.
type letters struct{}

func (letters) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// shadowed sends reviews to a policy whose candidate never decides.
func shadowed(reviews, size int) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		send, p, end, err := serve(ctx, admission.PluginConfig{Config: host.Config{
			Limits: host.Limits{Fuel: 1 << 60, Timeout: 10 * time.Second},
		}, Shadow: &shadow.Config{
			Module: host.ModuleConfig{Bytes: endlessGuest}, GuestConfig: host.GuestConfig("for ever"), Rate: 1, CPU: 1, Queue: 2 * reviews, Failures: 2 * reviews,
		}})
		if err != nil {
			return err
		}
		defer end()
		for p.Shadow().Status().State == shadow.Loading {
			time.Sleep(time.Millisecond)
		}
		for n := range reviews {
			if err := send(size); err != nil {
				return fmt.Errorf("review %d: %w", n, err)
			}
		}
		status := p.Shadow().Status()
		return note(fmt.Sprintf("the shadow is %s and has dropped %d reviews", status.State, status.Dropped))
	}
}

// monitored sends reviews to a policy that monitors and never decides, and tells how long they
// take, and how long for one that decides at once.
func monitored(reviews, atOnce, size int) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		endless, err := medianReview(ctx, "for ever", reviews, atOnce, size)
		if err != nil {
			return err
		}
		decides, err := medianReview(ctx, "", reviews, atOnce, size)
		if err != nil {
			return err
		}
		return note(fmt.Sprintf("p50 of the requests %.2g s, %.2g s for a policy that decides", endless.Seconds(), decides.Seconds()))
	}
}

// medianReview sends reviews to a policy that monitors, and returns the median of how long they
// take.
func medianReview(ctx context.Context, config string, reviews, atOnce, size int) (time.Duration, error) {
	send, _, end, err := serve(ctx, admission.PluginConfig{PolicyRules: admission.PolicyRules{Mode: host.Monitor}, Config: host.Config{
		GuestConfig: host.GuestConfig(config), Limits: host.Limits{Fuel: 1 << 60, Timeout: 5 * time.Second},
	}})
	if err != nil {
		return 0, err
	}
	defer end()
	took, errs := make([]time.Duration, reviews), make([]error, reviews)
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for n := range next {
				start := time.Now()
				errs[n] = send(size)
				took[n] = time.Since(start)
			}
		})
	}
	for n := range reviews {
		next <- n
	}
	close(next)
	all.Wait()
	for n, err := range errs {
		if err != nil {
			return 0, fmt.Errorf("review %d: %w", n, err)
		}
	}
	slices.Sort(took)
	return took[reviews/2], nil
}
