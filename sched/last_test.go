package sched_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched"
)

// TestASchedulerStartsOnItsLastModule restarts two replicas of a scheduler while the file of a
// followed module holds one that is refused, or is gone. Both go on with the module before.
func TestASchedulerStartsOnItsLastModule(t *testing.T) {
	built, err := guestbuild.Build(t.Context(), "testdata/extensions")
	if err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plugin.wasm")
	for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
		t.Run(string(policy), func(t *testing.T) {
			caches := []string{t.TempDir(), t.TempDir()}
			start := func(cache string) (state host.State, log string, err error) {
				rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: cache, KeepModules: true})
				if err != nil {
					t.Fatal(err)
				}
				defer rt.Close(context.WithoutCancel(t.Context()))
				var lines bytes.Buffer
				args := fmt.Sprintf(`{"module": {"file": %q, "follow": true}, "grants": ["events", "waiting-pods", "objects"], "failurePolicy": %q}`, file, policy)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				p, err := sched.LoadArgs(ctx, rt, "extensions", &apiruntime.Unknown{Raw: []byte(args)}, sched.Framework{}, func(c *sched.PluginConfig) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
				if err != nil {
					return "", "", err
				}
				if err := p.Close(t.Context()); err != nil { // Nothing logs from here on.
					t.Fatal(err)
				}
				return p.Stats().State, lines.String(), nil
			}
			write := func(module []byte) {
				t.Helper()
				if err := os.WriteFile(file, module, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write(good)
			for _, cache := range caches {
				if state, _, err := start(cache); err != nil || state != host.Serving {
					t.Fatalf("first start: %s, %v", state, err)
				}
			}
			for what, change := range map[string]func(){
				"refused": func() { write([]byte("\x00asm\x01\x00\x00\x00")) },
				"gone":    func() { _ = os.Remove(file) },
			} {
				change()
				for replica, cache := range caches {
					state, log, err := start(cache)
					if err != nil || state != host.Stale || !strings.Contains(log, "the declared module is not in service") {
						t.Errorf("%s: replica %d is %s, %v, and logs\n%s", what, replica, state, err, log)
					}
				}
				if _, _, err := start(t.TempDir()); err == nil {
					t.Errorf("%s: a replica without a last module has started", what)
				}
			}
		})
	}
}
