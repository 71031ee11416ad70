package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// ready is the metric of readiness.
func ready(t *testing.T, a *agent) float64 {
	t.Helper()
	families, err := a.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var found *dto.MetricFamily
	for _, f := range families {
		if f.GetName() == "kubewasm_agent_ready" {
			found = f
		}
	}
	if found == nil {
		t.Fatal("there is no kubewasm_agent_ready")
	}
	return found.Metric[0].GetGauge().GetValue()
}

// TestNodesThatAreSetUpWrong holds what an operator sees of a node that is set up wrong: an agent
// that does not start or is not ready, a line in the log, what -check says, and the metric. No
// plugin is in force on any of these nodes.
func TestNodesThatAreSetUpWrong(t *testing.T) {
	guest := plugins(t)["/etc/kubewasm/plugins/group-identity.wasm"]
	cache := t.TempDir()
	systemd := func(t *testing.T, root string) {
		if err := os.Rename(filepath.Join(root, "kubepods"), filepath.Join(root, "kubepods.slice")); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			if err := os.RemoveAll(filepath.Join(root, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, c := range map[string]struct {
		// node changes the files of a node that is set up well, with the driver cgroupfs.
		node func(t *testing.T, root string)
		// cgroup, mode and plugins are parts of the configuration.
		cgroup, mode, plugins string
		// refuses is why the agent does not start. Otherwise it starts, check is what -check says,
		// unready what /readyz says, and logged is in a line of the log.
		// ends is why it ends at once, of which -check says nothing.
		refuses, check, unready, logged, ends string
	}{
		"driver systemd on a node with cgroupfs": {
			cgroup: "driver: systemd", check: "the kubelet's cgroup driver is cgroupfs, not systemd",
			unready: "standalone: ", logged: `msg="what the plugins decide is not in force"`,
		},
		"driver cgroupfs on a node with systemd": {
			node: systemd, cgroup: "driver: cgroupfs", check: "the kubelet's cgroup driver is systemd, not cgroupfs",
			unready: "standalone: ", logged: `msg="what the plugins decide is not in force"`,
		},
		"no kubelet and no driver named": {
			node: gone("kubepods"), refuses: "cgroup.driver is not named: find the kubelet's cgroup driver",
		},
		"no kubelet": {
			node: gone("kubepods"), cgroup: "driver: cgroupfs", check: "has no kubepods: is the kubelet running",
			unready: "standalone: ", logged: "has no kubepods",
		},
		"both drivers with pods": {
			node: func(t *testing.T, root string) {
				if err := os.MkdirAll(filepath.Join(root, "kubepods.slice", "kubepods-podx.slice"), 0o755); err != nil {
					t.Fatal(err)
				}
			},
			refuses: "has kubepods and kubepods.slice: name the one",
		},
		"another driver that is none": {cgroup: "driver: docker", refuses: `cgroup.driver "docker" is none of cgroupfs, systemd`},
		"another cgroupRoot": {
			cgroup: "driver: cgroupfs, kubeletRoot: /nodes", check: "has no nodes/kubepods", unready: "standalone: ", logged: "has no nodes/kubepods",
		},
		"no hierarchy of cgroups": {node: gone("cgroup.controllers"), refuses: "open cgroup root"},
		"no directory":            {cgroup: "root: /nowhere", refuses: "open cgroup root: open /nowhere"},
		"controllers that are off": {
			node: func(t *testing.T, root string) {
				for _, file := range []string{"cpu.weight", "cpuset.cpus", "memory.max"} {
					gone("kubepods/"+file)(t, root)
				}
			},
			check: "has no file of the controllers cpu, cpuset and memory", unready: "standalone: cgroups cannot be written", logged: "cgroups cannot be written",
		},
		"pods whose cgroups are elsewhere": {
			node: func(t *testing.T, root string) {
				gone("kubepods/podg")(t, root)
				gone("kubepods/burstable/podb")(t, root)
				gone("kubepods/besteffort/pode")(t, root)
			},
			unready: "standalone: no cgroup of the 3 pods that run", logged: "no cgroup of the 3 pods that run",
		},
		"no list of pods": {
			mode: "standalone: {file: /nowhere/pods.yaml}", check: "open /nowhere/pods.yaml", unready: "standalone: it is not known yet what runs", logged: "open /nowhere/pods.yaml",
		},
		"no token for the kubelet": {
			mode: "standalone: {kubelet: {url: 'https://127.0.0.1:1', tokenFile: /nowhere/token}}", check: "open /nowhere/token", unready: "standalone: it is not known yet", logged: "open /nowhere/token",
		},
		"no kubelet that answers": {
			mode: "standalone: {kubelet: {url: 'https://127.0.0.1:1'}}", check: "connection refused", unready: "standalone: it is not known yet", logged: "connection refused",
		},
		"no certificate of the kubelet's": {
			mode: "standalone: {kubelet: {caFile: /nowhere/ca.crt}}", refuses: "/nowhere/ca.crt",
		},
		"no runtime that answers": {
			mode: "standalone: {cri: /nowhere/containerd.sock}", check: "/nowhere/containerd.sock", unready: "standalone: it is not known yet", logged: "/nowhere/containerd.sock",
		},
		"no runtime for NRI": {
			mode: "nri: {socket: /nowhere/nri.sock}", unready: "nri: not connected", logged: "nowhere/nri.sock",
		},
		"NRI alone with another driver": {
			cgroup: "driver: systemd", mode: "nri: {socket: /nowhere/nri.sock}", check: "driver is cgroupfs, not systemd", unready: "driver is cgroupfs, not systemd", logged: "driver is cgroupfs, not systemd",
		},
		"no mode":    {mode: "dryRun: false", refuses: "none of standalone, nri and runtimeHook"},
		"no plugins": {plugins: "[]", refuses: "the configuration has no plugins: there is nothing to decide"},
		"another agent": {
			node: func(t *testing.T, root string) {
				a, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root})
				if err != nil {
					t.Fatal(err)
				}
				unlock, err := a.Lock()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					unlock()
					a.Close()
				})
			},
			ends: "another agent serves this node",
		},
		"no file of a plugin": {plugins: "[{name: a, file: /nowhere/a.wasm}]", refuses: "stat /nowhere/a.wasm: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
			if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
				t.Fatal(err)
			}
			if c.node != nil {
				c.node(t, root)
			}
			in := c.cgroup
			if !strings.Contains(in, "root: ") {
				in = strings.TrimPrefix(in+", root: "+root, ", ")
			}
			mode := c.mode
			if mode == "" {
				mode = "standalone: {file: " + list + "}"
			}
			loaded := c.plugins
			if loaded == "" {
				loaded = "[{name: identity, file: " + guest + ", levels: [QOS]}]"
			}
			file := filepath.Join(t.TempDir(), "agent.yaml")
			text := fmt.Sprintf("cacheDir: %s\ncgroup: {%s}\n%s\nhttp: {address: '127.0.0.1:0'}\nplugins: %s\n", cache, in, mode, loaded)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			has := func(what, got, want string) {
				t.Helper()
				if !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("%s: got %q, want one with %q", what, got, want)
				}
			}
			check := ""
			if err := run(t.Context(), []string{"-config", file, "-check"}); err != nil {
				check = err.Error()
			}
			if c.refuses != "" {
				has("-check", check, c.refuses)
				err := run(t.Context(), []string{"-config", file})
				has("the end of the agent", fmt.Sprint(err), c.refuses)
				return
			}
			has("-check", check, c.check)
			if c.ends != "" {
				err := run(t.Context(), []string{"-config", file})
				has("the end of the agent", fmt.Sprint(err), c.ends)
				return
			}
			cfg, err := readConfig(file)
			if err != nil {
				t.Fatal(err)
			}
			log := guarded.NewLog()
			a, err := newAgent(t.Context(), cfg, slog.New(log))
			if err != nil {
				t.Fatal(err)
			}
			defer a.close()
			addresses := make(chan net.Addr, 1)
			a.modes[len(a.modes)-1].(*server).listening = func(addr net.Addr) { addresses <- addr }
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- a.run(ctx) }()
			url := "http://" + (<-addresses).String()
			for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
				code, body := get(t, url+"/readyz")
				if code == 503 && strings.Contains(body, c.unready) && strings.Contains(log.String(), c.logged) {
					break
				}
				if time.Since(start) > 20*time.Second {
					t.Fatalf("/readyz is %d %q, want one with %q; the log is\n%s\nwant a line with %q", code, body, c.unready, log.String(), c.logged)
				}
			}
			if ready(t, a) != 0 {
				t.Error("the metric says that it is ready")
			}
			cancel()
			<-ended
		})
	}
}
