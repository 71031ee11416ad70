package sched_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// TestLinesOfAPod holds that a guest that logs or traps for each of 5,000 nodes fills no disk: what
// is dropped is counted, and said once.
func TestLinesOfAPod(t *testing.T) {
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	const nodes, most = 5_000, 64 << 10
	for name, test := range map[string]struct {
		config string
		policy host.FailurePolicy
		tells  string
	}{
		"a guest that logs":                       {"", host.Fail, "the guest logs more than limits.logBytes in a minute"},
		"a guest that traps":                      {"trap", host.Fail, "lines are dropped: there are too many"},
		"a guest that traps, and that is ignored": {"trap", host.Ignore, "lines are dropped: there are too many"},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			p, err := sched.Load(t.Context(), rt, sched.PluginConfig{DisableResultSharing: true, FailurePolicy: test.policy, Config: host.Config{
				Name: "logs", Module: host.ModuleConfig{File: "testdata/logs.wasm"}, GuestConfig: host.GuestConfig(test.config),
				Limits: host.Limits{LogBytes: most, Instances: 1}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			}}, framework.Of(nil))
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close(context.Background())
			// A cycle for each node: one that has failed asks the guest no more.
			for n := range nodes {
				cycle := p.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pending"}})
				p.Filter(cycle, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}}))
			}
			// The budget is spent once, and a part of it again by the end.
			if got := log.Len(); got > 2*most {
				t.Errorf("the log has %d bytes, the budget of a minute is %d", got, most)
			}
			if got := strings.Count(log.String(), test.tells); got == 0 || got > 2 {
				t.Errorf("the log says %d times that lines are dropped", got)
			}
			// Twice as many lines where the failure is ignored with a line of its own.
			if got := p.Stats().LogDropped; got < nodes-1_000 || got > 2*nodes {
				t.Errorf("%d lines are dropped", got)
			}
		})
	}
}
