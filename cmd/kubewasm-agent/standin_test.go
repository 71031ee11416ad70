package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestAPluginThatCannotBeLoadedStopsNoOther starts an agent after a reboot, when the module of one
// plugin is away. The others decide, and that one does once its module is there.
func TestAPluginThatCannotBeLoadedStopsNoOther(t *testing.T) {
	dir := t.TempDir()
	root, list, file, missing := tree(t), filepath.Join(dir, "pods.yaml"), filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "cpuset.wasm")
	guests := plugins(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	text := fmt.Sprintf(`
cacheDir: %s
cgroup: {root: %s, driver: cgroupfs}
standalone: {file: %s}
http: {address: %q}
plugins:
- {name: identity, module: {file: %s}, levels: [QOS]}
- {name: cpuset, module: {file: %s}, levels: [Container]}
`, filepath.Join(dir, "cache"), root, list, address, guests["/etc/kubewasm/plugins/group-identity.wasm"], missing)
	for name, text := range map[string]string{list: pods, file: text} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{"-config", file, "-check"}); err == nil || !strings.Contains(err.Error(), `plugin "cpuset": fetch module`) {
		t.Errorf("check: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- start(ctx, file, false, new(slog.LevelVar), slog.New(slog.DiscardHandler)) }()
	until := func(what string, holds func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
			select {
			case err := <-ended:
				t.Fatalf("%s: the agent has ended: %v", what, err)
			default:
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: not after a minute", what)
			}
		}
	}
	wrote := func(name, want string) func() bool {
		return func() bool {
			b, err := os.ReadFile(filepath.Join(root, "kubepods", name))
			return err == nil && strings.TrimSpace(string(b)) == want
		}
	}
	answers := func(path string, code int, part string) func() bool {
		return func() bool {
			resp, err := http.Get("http://" + address + path)
			if err != nil {
				return false // It does not listen yet.
			}
			resp.Body.Close()
			got, body := get(t, "http://"+address+path)
			return got == code && strings.Contains(body, part)
		}
	}
	until("the other plugin decides", wrote("besteffort/cpu.bvt_warp_ns", "-1"))
	until("not ready", answers("/readyz", http.StatusServiceUnavailable, `plugin "cpuset" is not available`))
	until("the metric", answers("/metrics", http.StatusOK, `kubewasm_plugin_state{plugin="cpuset",state="Unavailable"} 1`))
	module, err := os.ReadFile(guests["/etc/kubewasm/plugins/cpuset.wasm"])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(missing+".next", module, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(missing+".next", missing); err != nil {
		t.Fatal(err)
	}
	until("the plugin decides", wrote("podg/gc/cpuset.cpus", "0-1"))
	until("ready", answers("/readyz", http.StatusOK, "ok"))

	// Once it has served, a source that is away costs nothing, neither now nor at the next start.
	if err := os.Remove(missing); err != nil {
		t.Fatal(err)
	}
	until("still ready", answers("/readyz", http.StatusOK, "ok"))
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ended with %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "kubepods/podg/gc/cpuset.cpus"), []byte("\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() { ended <- start(ctx, file, false, new(slog.LevelVar), slog.New(slog.DiscardHandler)) }()
	until("the last module decides", wrote("podg/gc/cpuset.cpus", "0-1"))
	until("the metric", answers("/metrics", http.StatusOK, `kubewasm_plugin_state{plugin="cpuset",state="Stale"} 1`))
	cancel()
	<-ended
}
