package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/oci"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
)

// plugins builds the guests of deploy/agent.yaml.
func plugins(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range []string{"group-identity", "cpuset", "batch-resource", "cpu-normalization"} {
		file, err := guestbuild.Build(t.Context(), "../../examples/hooks/"+name)
		if err != nil {
			t.Fatal(err)
		}
		files["/etc/kubewasm/plugins/"+name+".wasm"] = file
	}
	return files
}

// tree makes the cgroups of a node, of cgroup v2 in a directory, with a pod of
// each class.
func tree(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	make := func(cgroup string) {
		dir := filepath.Join(root, cgroup)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"cpu.weight": "100\n", "cpu.max": "max 100000\n", "cpu.bvt_warp_ns": "0\n", "cpuset.cpus": "\n", "memory.max": "max\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(root, "cgroup.controllers"), []byte("cpu cpuset memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, cgroup := range []string{
		"", "burstable", "besteffort", "podg", "podg/gc", "burstable/podb", "burstable/podb/bc", "besteffort/pode", "besteffort/pode/ec",
	} {
		make("kubepods/" + cgroup)
	}
	// As the kubelet and the runtime have made them of the limits in pods.
	for cgroup, limit := range map[string]string{"podg": "200000", "podg/gc": "200000", "burstable/podb": "120000", "burstable/podb/bc": "120000"} {
		if err := os.WriteFile(filepath.Join(root, "kubepods", cgroup, "cpu.max"), []byte(limit+" 100000\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const pods = `
kind: PodList
items:
- metadata: {namespace: shop, name: g, uid: g, annotations: {scheduling.koordinator.sh/resource-status: '{"cpuset": "0-1"}'}}
  spec: {containers: [{name: c, resources: {limits: {cpu: "2", memory: 1Gi}}}]}
  status: {qosClass: Guaranteed, containerStatuses: [{name: c, containerID: "containerd://gc", state: {running: {}}}]}
- metadata: {namespace: shop, name: b, uid: b}
  spec: {containers: [{name: c, resources: {requests: {cpu: 500m}, limits: {cpu: 1200m}}}]}
  status: {qosClass: Burstable, containerStatuses: [{name: c, containerID: "containerd://bc", state: {running: {}}}]}
- metadata:
    namespace: shop
    name: e
    uid: e
    labels: {koordinator.sh/qosClass: BE}
    annotations:
      node.koordinator.sh/extended-resource-spec: |
        {"containers": {"c": {"requests": {"kubernetes.io/batch-cpu": "250"}, "limits": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "4Ki"}}}}
  spec: {containers: [{name: c}]}
  status: {qosClass: BestEffort, containerStatuses: [{name: c, containerID: "containerd://ec", state: {running: {}}}]}
`

// The configuration that is handed out, on a node of files, with its four
// plugins: only what is this machine's is put in its place.
func TestTheAgentAsItIsHandedOut(t *testing.T) {
	b, err := os.ReadFile("deploy/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	replace := func(from, to string) {
		t.Helper()
		if !strings.Contains(text, from) {
			t.Fatalf("deploy/agent.yaml has no %s", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	for from, to := range plugins(t) {
		replace(from, to)
	}
	replace("/var/cache/kubewasm", filepath.Join(t.TempDir(), "cache"))
	replace("/sys/fs/cgroup", root)
	kubelet := text[strings.Index(text, "  kubelet:"):strings.Index(text, "nri:")]
	replace(kubelet, "  file: "+list+"\n")
	replace(`":9808"`, "127.0.0.1:0")
	const ratio = "node.koordinator.sh/cpu-normalization-ratio"
	api := newNodeServer(t, map[string]string{ratio: "1.20"})
	replace("node: {}", "node: "+api.config)
	socket := filepath.Join(t.TempDir(), "nri.sock")
	if l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket}); err != nil {
		t.Fatal(err)
	} else {
		l.SetUnlinkOnClose(false) // The runtime is away, and comes back.
		l.Close()
	}
	replace("nri:\n", fmt.Sprintf("nri:\n  socket: %s\n", socket))
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := run(t.Context(), []string{"-config", file, "-check"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, []string{"-config", file}) }()
	until := func(name, want string) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
			b, err := os.ReadFile(filepath.Join(root, "kubepods", name))
			if err != nil {
				t.Fatal(err)
			}
			if strings.TrimSpace(string(b)) == want {
				break
			}
			if time.Since(start) > 20*time.Second {
				t.Fatalf("%s is %q, want %s", name, b, want)
			}
		}
	}
	for name, want := range map[string]string{
		"besteffort/cpu.bvt_warp_ns":      "-1",
		"burstable/cpu.bvt_warp_ns":       "2",
		"besteffort/pode/cpu.bvt_warp_ns": "-1",
		"podg/gc/cpuset.cpus":             "0-1",
		"burstable/podb/bc/cpu.max":       "100000 100000",
		"burstable/podb/cpu.max":          "100000 100000",
		"besteffort/pode/ec/cpu.max":      "50000 100000",
		"besteffort/pode/ec/memory.max":   "4096",
		"besteffort/pode/cpu.max":         "50000 100000",
		"besteffort/pode/ec/cpu.weight":   "35",
		"podg/cpu.bvt_warp_ns":            "2",
	} {
		until(name, want)
	}
	// The annotation of the Node changes what is in force on a container that runs, and its end
	// gives the kubelet's quota back: long before the next resync.
	api.annotate(t, map[string]string{ratio: "1.50"})
	until("burstable/podb/bc/cpu.max", "80000 100000")
	until("burstable/podb/cpu.max", "80000 100000")
	api.annotate(t, nil)
	until("burstable/podb/bc/cpu.max", "120000 100000")
	api.annotate(t, map[string]string{ratio: "1.20"})
	until("burstable/podb/bc/cpu.max", "100000 100000")
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the agent ended with %v", err)
	}

	// Its decisions are taken back before it is removed.
	if err := run(t.Context(), []string{"-config", file, "-restore"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"besteffort/cpu.bvt_warp_ns":      "0",
		"besteffort/pode/cpu.bvt_warp_ns": "0",
		"burstable/podb/bc/cpu.max":       "120000 100000",
		"burstable/podb/cpu.max":          "120000 100000",
		"besteffort/pode/ec/cpu.max":      "max 100000",
		"besteffort/pode/ec/memory.max":   "max",
		"besteffort/pode/ec/cpu.weight":   "1",
	} {
		if b, err := os.ReadFile(filepath.Join(root, "kubepods", name)); err != nil || strings.TrimSpace(string(b)) != want {
			t.Errorf("restored, %s is %q, error %v, want %s", name, b, err, want)
		}
	}
}

// get returns the status and the body of an answer.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// The agent tells what it decides and repairs, and is ready when all modes are.
func TestMetricsAndProbes(t *testing.T) {
	root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	guest, cache := plugins(t)["/etc/kubewasm/plugins/group-identity.wasm"], t.TempDir()
	for name, test := range map[string]struct {
		more, unready string
	}{
		"standalone":                    {},
		"beside a runtime that is away": {more: "nri: {socket: " + filepath.Join(t.TempDir(), "no.sock") + "}\n", unready: "nri: not connected"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := new(config)
			text := fmt.Sprintf("%scacheDir: %s\ncgroup: {root: %s}\nstandalone: {file: %s}\nhttp: {address: '127.0.0.1:0'}\nplugins:\n- {name: identity, module: {file: %s}, levels: [QOS], shadow: {module: {file: %s}, rate: 1}}\n", test.more, cache, root, list, guest, guest)
			if err := yaml.UnmarshalStrict([]byte(text), cfg); err != nil {
				t.Fatal(err)
			}
			a, err := newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer a.close()
			if err := a.all(probed.Ready); err == nil || !strings.Contains(err.Error(), "standalone: the running pods are unknown so far") {
				t.Errorf("before it runs: %v", err)
			}
			addresses := make(chan net.Addr, 1)
			a.modes[len(a.modes)-1].(*server).listening = func(addr net.Addr) { addresses <- addr }
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- a.run(ctx) }()
			url := "http://" + (<-addresses).String()
			until := func(path string, enough func(code int, body string) bool) {
				t.Helper()
				for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
					code, body := get(t, url+path)
					if enough(code, body) {
						return
					}
					if time.Since(start) > 20*time.Second {
						t.Fatalf("%s is %d %s", path, code, body)
					}
				}
			}
			until("/readyz", func(code int, body string) bool {
				if test.unready != "" {
					return code == http.StatusServiceUnavailable && strings.HasPrefix(body, test.unready) && !strings.Contains(body, "standalone")
				}
				return code == http.StatusOK && body == "ok\n"
			})
			for a.engine.Shadow("identity").Status().State == shadow.Loading {
				time.Sleep(5 * time.Millisecond)
			}
			if status := a.engine.Shadow("identity").Status(); status.State == shadow.Stopped {
				t.Errorf("the shadow has stopped: %s", status.Reason)
			}
			if code, body := get(t, url+"/healthz"); code != http.StatusOK {
				t.Errorf("/healthz is %d %s", code, body)
			}
			has := func(lines ...string) func(int, string) bool {
				return func(_ int, body string) bool {
					return !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(body, "\n"+line+"\n") })
				}
			}
			until("/metrics", has(
				`kubewasm_hooks_writes_total{field="cpu_bvt"} 2`, `kubewasm_hooks_cgroups 3`, `kubewasm_hooks_drifts_total{field="cpu_bvt"} 0`,
				`kubewasm_plugin_disabled{plugin="identity"} 0`,
				`kubewasm_agent_ready `+map[bool]string{true: "1", false: "0"}[test.unready == ""],
				`kubewasm_agent_foreign_cgroups_total{mode="standalone"} 0`,
				`kubewasm_agent_inotify_watches{mode="standalone"} 9`,
				`kubewasm_agent_inotify_full{mode="standalone"} 0`,
			))
			for _, class := range []string{"burstable", "besteffort"} {
				// os.WriteFile empties the file first, which may be seen as another drift.
				f, err := os.OpenFile(filepath.Join(root, "kubepods", class, "cpu.bvt_warp_ns"), os.O_WRONLY, 0)
				if err != nil {
					t.Fatal(err)
				}
				_, err = f.Write([]byte("0\n"))
				if err := errors.Join(err, f.Close()); err != nil {
					t.Fatal(err)
				}
			}
			until("/metrics", has(`kubewasm_hooks_drifts_total{field="cpu_bvt"} 2`, `kubewasm_hooks_repairs_total{field="cpu_bvt"} 2`))
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the agent ended with %v", err)
			}
			for _, class := range []string{"burstable", "besteffort"} {
				if err := os.WriteFile(filepath.Join(root, "kubepods", class, "cpu.bvt_warp_ns"), []byte("0"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestTheConfigurationReportsEveryMistake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	text := `
cgroup: {driver: docker, weight: cubic, kubeletWeight: cubic}
plugins:
- {name: a, module: {file: a.wasm}}
- {name: b, module: {oci: 'ghcr.io/Acme:'}}
- {name: c, module: {oci: 'ghcr.io/acme/cpu:1', file: c.wasm}}
registries: {cacheBytes: -1, registries: [{host: 'https://ghcr.io/', caFile: none.pem}], trust: [{repositories: ['ghcr.io/*/x']}]}
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := readConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
	for _, want := range []string{
		`cgroup.driver "docker" is none of cgroupfs, systemd`, `cgroup.weight "cubic" is none of quadratic, linear`, `cgroup.kubeletWeight "cubic" is none of quadratic, linear`,
		`plugin "c": module has file and oci, want one of them`, "cacheBytes is -1, less than 0",
		`registry "https://ghcr.io/": host is a name`, "caFile: open none.pem", "trust[0]: allOf and anyOf are empty", `repository "ghcr.io/*/x": want a name`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v\nwant one with %s", err, want)
		}
	}
	for text, want := range map[string]string{
		"plugin: []": "unknown field", "{}": "none of standalone, nri and runtimeHook", "standalone: {}": "standalone has 0 of kubelet, cri and file", "standalone: {cri: x, file: z}": "standalone has 2 of",
		"{nri: {}, plugins: [{name: a, module: {oci: 'ghcr.io/acme/cpu:1'}}]}": `plugin "a": module: source ghcr.io/acme/cpu:1: nothing vouches for what the tag leads to`,
		"runtimeHook: {}": "socket is missing", "nri: {index: x}": `index "x"`, "{nri: {}, http: {}}": `http.address ""`,
		"{nri: {}, plugins: [{name: a, module: {oci: 'ghcr.io/Acme:'}}]}": `plugin "a": module: source oci: reference "ghcr.io/Acme:": tag is empty`,
		"plugins: [{name: a, stages: [Lunch], levels: [Node], selector: {qosClasses: [Best]}, limits: {timeout: 1}}]": `
plugins[0].levels[0] is "Node": want QOS, Pod, Container
plugins[0].selector.qosClasses[0] is "Best": want Guaranteed, Burstable, BestEffort
plugins[0].limits.timeout is the number 1, want a duration such as 100ms`,
		"{nri: {}, plugins: [{name: a, module: {file: a.wasm}, failurePolicy: Panic}]}":                                       `failurePolicy is "Panic", want Fail, Ignore or KeepLast`,
		"{nri: {}, plugins: [{name: a, module: {file: a.wasm}, shadow: {cpu: 2}}]}":                                           `plugin "a": shadow.cpu is 2`,
		"plugins: [{name: a, module: {file: a.wasm}, decisionGrants: {mount: []}}]":                                           "unknown field",
		"{nri: {}, plugins: [{name: a, module: {file: a.wasm}, decisionGrants: {env: ['*'], devices: [/dev/**]}}]}":           `plugin "a": decisionGrants: env "*" is not a name`,
		"{nri: {}, plugins: [{name: a, module: {file: a.wasm}, owns: ['container_envs[GOGC]'], decisionGrants: {env: [A]}}]}": `plugin "a": owns: container_envs[GOGC] is not granted: env does not name it; decisionGrants {"env":["GOGC"]} would allow it`,
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), []string{"-config", file, "-check"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %s", text, err, want)
		}
	}
}

// What the configuration has as an example of registries is one.
func TestTheRegistriesOfTheExample(t *testing.T) {
	b, err := os.ReadFile("deploy/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, line, ok := strings.Cut(string(b), "\n# registries: ")
	if !ok {
		t.Fatal("there are no registries")
	}
	line, _, _ = strings.Cut(line, "\n")
	cfg := new(config)
	if err := yaml.UnmarshalStrict([]byte("registries: "+line), cfg); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	signer := &cfg.Registries.Trust[0].AnyOf[0]
	if signer.KeyFile == "" || cfg.Registries.CacheDir == "" {
		t.Errorf("registries are %+v", cfg.Registries)
	}
	cfg.Registries.CacheDir, signer.KeyFile = t.TempDir(), ""
	signer.Key = string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	artifacts, err := oci.New(cfg.Registries)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{Sources: host.Sources{OCI: artifacts.Source}})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	if _, err := rt.Source(host.ModuleConfig{OCI: "ghcr.io/acme/cpuset:1.2"}, "module"); err != nil {
		t.Error(err)
	}
}

// The grants that the configuration has as an example are ones, and -check loads a
// plugin with them.
func TestTheGrantsOfTheExample(t *testing.T) {
	b, err := os.ReadFile("deploy/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(b)) {
		if line, ok := strings.CutPrefix(line, "#   "); ok {
			text.WriteString("  " + line)
		}
	}
	cfg := new(config)
	plugin := "- name: p\n  module: {file: " + plugins(t)["/etc/kubewasm/plugins/group-identity.wasm"] + "}\n"
	if err := yaml.UnmarshalStrict([]byte("nri: {}\nhostRoot: "+t.TempDir()+"\nplugins:\n"+plugin+text.String()), cfg); err != nil {
		t.Fatal(err)
	}
	g := cfg.Plugins[0].DecisionGrants
	if len(g.Env) == 0 || len(g.Annotations) == 0 || len(g.CDI) == 0 || len(g.Mounts) == 0 || len(g.Devices) == 0 {
		t.Errorf("the example has %+v", g)
	}
	cfg.Cgroup.Root = tree(t)
	a, err := newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
}

// TestChart loads the configuration that charts/kubewasm has in the ConfigMap of its manifests. It
// runs the plugins of deploy/agent.yaml.
func TestChart(t *testing.T) {
	text, err := os.ReadFile("../../charts/manifests/agent/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var held corev1.ConfigMap
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind != "ConfigMap" {
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), &held); err != nil {
			t.Fatal(err)
		}
	}
	got, err := parseConfig("agent.yaml", []byte(held.Data["agent.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	want, err := readConfig("deploy/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Plugins) != len(want.Plugins) {
		t.Fatalf("there are %d plugins, want %d", len(got.Plugins), len(want.Plugins))
	}
	for i := range got.Plugins {
		got, want := &got.Plugins[i], &want.Plugins[i]
		if base := filepath.Base(want.Module.File); got.Module.File != "/plugins/"+base {
			t.Errorf("%s is in %s", got.Name, got.Module.File)
		}
		want.Module = got.Module
		gotJSON, errGot := json.Marshal(got)
		wantJSON, errWant := json.Marshal(want)
		if err := errors.Join(errGot, errWant); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(wantJSON), string(gotJSON)); diff != "" {
			t.Errorf("plugin %s (-deploy/agent.yaml +chart):\n%s", got.Name, diff)
		}
	}
	// The configuration as a whole, with the modules of a machine.
	config := held.Data["agent.yaml"]
	for from, to := range plugins(t) {
		config = strings.ReplaceAll(config, strings.Replace(from, "/etc/kubewasm", "", 1), to)
	}
	kubelet := config[strings.Index(config, "  kubelet:"):strings.Index(config, "  resync:")]
	list := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	api := newNodeServer(t, nil)
	config = strings.NewReplacer("/var/cache/kubewasm", t.TempDir(), "node: {}", "node: "+api.config, kubelet, "  file: "+list+"\n").Replace(config)
	cfg, err := parseConfig("agent.yaml", []byte(config))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Cgroup.Root = tree(t)
	a, err := newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.close(); err != nil {
		t.Error(err)
	}
}

// TestContainerdConfiguration holds that the runtime's configuration requires the agent by its name,
// and tolerates the annotation that the agent's own Pod has.
func TestContainerdConfiguration(t *testing.T) {
	runtime, err := os.ReadFile("deploy/containerd.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`required_plugins = ["kubewasm"]`, `tolerate_missing_plugins_annotation = "kubewasm.dev/tolerate-no-agent"`} {
		if !strings.Contains(string(runtime), want) {
			t.Errorf("there is no %s in %s", want, runtime)
		}
	}
	chart, err := os.ReadFile("../../charts/manifests/agent/agent.yaml")
	if err != nil || !strings.Contains(string(chart), `kubewasm.dev/tolerate-no-agent: "true"`) {
		t.Errorf("the agent's own Pod is not tolerated without the agent: %v", err)
	}
}

// takesArguments fails unless the command knows the flags.
func takesArguments(t *testing.T, args []string) {
	t.Helper()
	args = slices.Clone(args)
	i := slices.Index(args, "/etc/kubewasm/agent.yaml")
	if i < 0 {
		t.Fatalf("%v names no configuration", args)
	}
	args[i] = filepath.Join(t.TempDir(), "nothing")
	if err := run(t.Context(), args); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with %v: %v", args, err)
	}
}

// The unit has the sections and assignments of systemd.syntax(7), and starts the
// command with flags that it knows.
func TestSystemdUnit(t *testing.T) {
	b, err := os.ReadFile("deploy/kubewasm-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	section, settings := "", map[string][]string{}
	for line := range strings.Lines(string(b)) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "["):
			section = line
		default:
			key, value, ok := strings.Cut(line, "=")
			if !ok || section == "" || strings.TrimSpace(key) != key {
				t.Errorf("%s: %q", section, line)
			}
			settings[section+key] = append(settings[section+key], value)
		}
	}
	for _, key := range []string{"[Unit]StartLimitIntervalSec", "[Service]ExecStart", "[Service]ReadWritePaths", "[Service]ConfigurationDirectory", "[Service]Restart", "[Install]WantedBy"} {
		if len(settings[key]) != 1 {
			t.Errorf("%s is %q", key, settings[key])
		}
	}
	command := strings.Fields(settings["[Service]ExecStart"][0])
	if command[0] != "/usr/local/bin/kubewasm-agent" {
		t.Errorf("it runs %s", command[0])
	}
	takesArguments(t, command[1:])
	// What each mode writes outside of the cache: the directory of a registration is there before
	// the file system is made read-only.
	writable := strings.Fields(settings["[Service]ReadWritePaths"][0])
	for _, path := range []string{"/sys/fs/cgroup", "/run", "/etc/runtime/hookserver.d"} {
		if !slices.Contains(writable, path) && !slices.Contains(writable, "-"+path) {
			t.Errorf("%s is not writable", path)
		}
	}
	if settings["[Service]ConfigurationDirectory"][0] != "runtime/hookserver.d" {
		t.Errorf("it makes the directories %s", settings["[Service]ConfigurationDirectory"])
	}
}
