package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/audit"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

const (
	auditedPods  = 100_000
	auditChanged = auditedPods / 100
	// auditMemory is the most that an audit may add to the process.
	auditMemory = 160 << 20
)

// benchAudit measures audits of 100,000 Pods of 4 KB by three policies, with its state in a
// file: the first one, and one after a Pod of a hundred has changed. The server makes the Pods
// when it sends them, in the same process. One Pod of twenty has no team.
func benchAudit(b *bench) error {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		return err
	}
	defer rt.Close(b.ctx)
	var policies []admission.Policy
	for _, p := range []struct{ name, guest, config string }{
		{"labels", "required-labels", `{"labels": ["app", "team"]}`},
		{"registries", "required-labels", `{"registries": ["registry.example.com/"]}`},
		{"defaults", "resource-defaults", `{"cpu": "100m", "memory": "128Mi"}`},
	} {
		file, err := guestbuild.Build(b.ctx, source("../../examples/admission/"+p.guest))
		if err != nil {
			return err
		}
		policy, err := admission.Load(b.ctx, rt, admission.PluginConfig{
			Config: host.Config{Name: p.name, Module: host.ModuleConfig{File: file}, GuestConfig: []byte(p.config)}, AllowedToMutate: p.guest == "resource-defaults",
			PolicyRules: admission.PolicyRules{Match: admission.Match{Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}}}},
		})
		if err != nil {
			return err
		}
		policies = append(policies, policy)
	}
	engine := admission.NewEngine(policies...)
	defer engine.Close(b.ctx)

	members, bytesOfPod, err := podWithoutMetadata()
	if err != nil {
		return err
	}
	server := listserver.New(&listserver.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Kind: "Pod", Namespaced: true, Status: true, N: auditedPods,
		Object: func(dst []byte, i, changes int) []byte {
			label := "team"
			if i%20 == 0 && changes == 0 {
				label = "squad"
			}
			dst = fmt.Appendf(dst, `{"metadata":{%%s,"name":"web-7d4b9c6f5-%06d","namespace":"shop-%d","uid":"1b4e28ba-2fa1-11d2-883f-%012d","labels":{"app":"web","change":"%d",%q:"shop"}},`, i, i%200, i, changes, label)
			return append(dst, members...)
		},
	})
	listening := httptest.NewServer(server)
	defer listening.Close()
	dir, err := os.MkdirTemp("", "kubewasm-audit-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	run := func() (result *audit.Result, took time.Duration, peak uint64, err error) {
		runtime.GC()
		debug.FreeOSMemory()
		before, err := resident()
		if err != nil {
			return nil, 0, 0, err
		}
		stop, sampled := make(chan struct{}), make(chan uint64)
		go func() {
			var most uint64
			for {
				if now, err := resident(); err == nil {
					most = max(most, now)
				}
				select {
				case <-stop:
					sampled <- most - min(most, before)
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
		}()
		start := time.Now()
		auditor, err := audit.New(audit.Config{
			Engine: engine, Client: &rest.Config{Host: listening.URL}, QPS: 1e6, Burst: 1e6, StateFile: filepath.Join(dir, "state"),
		})
		if err == nil {
			result, err = auditor.Run(b.ctx)
			took = time.Since(start)
			close(stop)
			peak = <-sampled
			err = errors.Join(err, auditor.Close())
		}
		return result, took, peak, err
	}
	first, firstTook, peak, err := run()
	if err != nil {
		return err
	}
	if first.Objects != auditedPods || !first.Complete() {
		return fmt.Errorf("%d objects, errors %v, %+v", first.Objects, first.Errors, first.Policies)
	}
	// The median of some.
	var took []time.Duration
	var second *audit.Result
	for n := range 5 {
		for i := range auditChanged {
			server.Change("pods", (i*97+n)%auditedPods)
		}
		var t time.Duration
		if second, t, _, err = run(); err != nil {
			return err
		}
		if second.Seen != auditChanged || second.Asked != 3*auditChanged {
			return fmt.Errorf("%d seen and %d asked of %d that have changed", second.Seen, second.Asked, auditChanged)
		}
		took = append(took, t)
	}
	slices.Sort(took)
	secondTook := took[len(took)/2]
	ratio := float64(secondTook) / float64(firstTook)
	b.rows = append(b.rows,
		row{
			what: "audit of 100,000 Pods by 3 policies, objects per second", ours: fmt.Sprintf("%.0f", auditedPods/firstTook.Seconds()),
			against: "API requests", theirs: fmt.Sprint(first.Requests), target: "a page of 500 each", ok: first.Requests <= auditedPods/500+10,
		},
		row{
			what: "audit after 1 % has changed, state read from its file", ours: short(secondTook), against: fmt.Sprintf("the first, with %d requests for %d", second.Requests, first.Requests),
			theirs: short(firstTook), ratio: fmt.Sprintf("%.3gx", ratio), target: "<= 0.05x", ok: ratio <= 0.05,
		},
		row{
			what: "audit of 100,000 Pods, memory at its peak", ours: fmt.Sprintf("%.0f MB", float64(peak)/1e6), against: "the Pods in JSON",
			theirs: fmt.Sprintf("%.0f MB", float64(auditedPods*bytesOfPod)/1e6), target: fmt.Sprintf("<= %d MB", auditMemory>>20), ok: peak <= auditMemory,
		},
	)
	return nil
}

// podWithoutMetadata returns the members of a Pod after its metadata, and how long it is with
// them.
func podWithoutMetadata() (members []byte, n int, err error) {
	text, err := json.Marshal(pod())
	if err != nil {
		return nil, 0, err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil {
		return nil, 0, err
	}
	delete(object, "metadata")
	if members, err = json.Marshal(object); err != nil {
		return nil, 0, err
	}
	return bytes.TrimPrefix(members, []byte("{")), len(text), nil
}
