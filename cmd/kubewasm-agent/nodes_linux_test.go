package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/fulldisk"
	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

var update = flag.Bool("update", false, "write the table of docs/operating.md anew")

// asAgent is set in the environment of a process of this binary that is the agent. With noExecutable
// as its value, the process forbids itself executable memory first.
const asAgent, noExecutable = "KUBEWASM_TEST_NODE_AGENT", "no executable memory"

func TestMain(m *testing.M) {
	switch os.Getenv(asAgent) {
	case "":
		os.Exit(m.Run())
	case noExecutable:
		// PR_SET_MDWE with PR_MDWE_REFUSE_EXEC_GAIN, as systemd's MemoryDenyWriteExecute.
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, 65, 1, 0, 0, 0, 0); errno != 0 {
			fmt.Fprintln(os.Stderr, "prctl:", errno)
			os.Exit(2)
		}
	}
	main()
}

// output is what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// process returns the agent as a process of its own, which has printed nothing yet. With a program,
// a copy of this binary, it has no rights.
func process(t *testing.T, c *setup, program string, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	how := c.how
	if how == "" {
		how = "1"
	}
	cmd := self.Command(t, append([]string{asAgent + "=" + how, "NODE_NAME=" + c.nodeName, "KUBERNETES_SERVICE_HOST="}, c.env...), args...)
	if program != "" {
		if !self.Emulated() {
			cmd.Path, cmd.Args[0] = program, program
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	out := new(output)
	cmd.Stdout, cmd.Stderr = out, out
	return cmd, out
}

// wrong is a node that is set up well, with the driver cgroupfs, before it is changed.
type wrong struct {
	// root is that of the cgroups, list a list of pods, dir a directory for other files.
	root, list, dir string
}

func (n *wrong) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(n.root, name)); err != nil {
		t.Fatal(err)
	}
}

func (n *wrong) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// certificate writes one that signs nothing here.
func (n *wrong) certificate(t *testing.T, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	n.write(t, name, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
}

// kubelet serves as the kubelet does, and writes its certificate and a token.
func (n *wrong) kubelet(t *testing.T, status int, body string) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	n.write(t, "kubelet.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	n.write(t, "token", "secret\n")
	return s.URL
}

// stale makes a socket that nobody listens on.
func stale(t *testing.T, name string) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		err = errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: name}), syscall.Close(fd))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// readOnly mounts a directory for reading.
func readOnly(t *testing.T, dir string) {
	t.Helper()
	err := syscall.Mount(dir, dir, "", syscall.MS_BIND, "")
	if err == nil {
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		err = syscall.Mount("", dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// setup is a node that is set up wrong, with what an operator sees of it.
type setup struct {
	name string
	// node changes the node, and returns what takes the place of $1 in the configuration.
	node func(t *testing.T, n *wrong) string
	// cgroup, mode, plugins and more are parts of the configuration; text is all of it. $ROOT, $LIST
	// and $DIR are the node's, $GUEST is a plugin that works.
	cgroup, mode, plugins, more, text string
	how, nodeName                     string
	env                               []string
	// unprivileged is set for a process without rights.
	unprivileged bool

	// ends is why the agent ends.
	ends string
	// check is what -check prints, and fails is set if it fails.
	check string
	fails bool
	// logged is in a line of the log.
	logged string
	// unready is what /readyz answers, empty if the agent is ready. A metric has the value that
	// follows its name.
	unready, metric string
}

const notReady = "kubewasm_agent_ready 0"

// setups are the rows of the table in docs/operating.md, in its order.
var setups = []setup{
	// The configuration.
	{name: "no agent.yaml", text: "-", ends: "agent.yaml: no such file or directory"},
	{name: "agent.yaml is empty", text: "\n", ends: "the configuration has none of standalone, nri and runtimeHook"},
	{
		name: "agent.yaml is cut off in a line", text: "cgroup: {root: $ROOT}\nstandalone: {file: $LIST}\nplugins:\n- {name: identity, module: {file: /etc/kube",
		ends: "agent.yaml: yaml: line ",
	},
	{
		name: "agent.yaml is cut off before its plugins", text: "cgroup: {root: $ROOT}\nstandalone: {file: $LIST}\nhttp: {address: '127.0.0.1:0'}\n",
		ends: "the configuration has no plugins",
	},
	{name: "agent.yaml has a word that is none", more: "dryrun: true", ends: `unknown field "dryrun"`},
	{name: "agent.yaml has no mode", mode: "dryRun: false", ends: "none of standalone, nri and runtimeHook"},
	{name: "agent.yaml has a stage that is none", plugins: "[{name: identity, module: {file: $GUEST}, stages: [Lunch]}]", ends: `plugins[0].stages[0] is "Lunch": want PreRunPodSandbox`},

	// Cgroups.
	{
		name: "the driver systemd, where the kubelet uses cgroupfs", cgroup: "driver: systemd",
		check: "the kubelet's cgroup driver is cgroupfs, not systemd", fails: true,
		logged: `msg="decisions of the plugins are not in force"`, unready: "the kubelet's cgroup driver is cgroupfs, not systemd", metric: notReady,
	},
	{
		name: "the driver cgroupfs, where the kubelet uses systemd", cgroup: "driver: cgroupfs",
		node: func(t *testing.T, n *wrong) string {
			if err := os.Rename(filepath.Join(n.root, "kubepods"), filepath.Join(n.root, "kubepods.slice")); err != nil {
				t.Fatal(err)
			}
			return ""
		},
		check: "the kubelet's cgroup driver is systemd, not cgroupfs", fails: true,
		logged: `msg="decisions of the plugins are not in force"`, unready: "the kubelet's cgroup driver is systemd, not cgroupfs", metric: notReady,
	},
	{
		name: "both drivers' cgroups have pods, and none is named",
		node: func(t *testing.T, n *wrong) string {
			if err := os.MkdirAll(filepath.Join(n.root, "kubepods.slice", "kubepods-podx.slice"), 0o755); err != nil {
				t.Fatal(err)
			}
			return ""
		},
		ends: "has kubepods and kubepods.slice: name the one",
	},
	{name: "a driver that is none", cgroup: "driver: docker", ends: `cgroup.driver "docker" is none of cgroupfs, systemd`},
	{
		name: "no kubelet has started, and no driver is named",
		node: func(t *testing.T, n *wrong) string { n.remove(t, "kubepods"); return "" },
		ends: "cgroup.driver is not named: find the kubelet's cgroup driver",
	},
	{
		name: "no kubelet has started", cgroup: "driver: cgroupfs",
		node:  func(t *testing.T, n *wrong) string { n.remove(t, "kubepods"); return "" },
		check: "has no kubepods: check that the kubelet runs", fails: true, logged: "has no kubepods: check that the kubelet runs", unready: "has no kubepods", metric: notReady,
	},
	{
		name: "the kubelet has another cgroupRoot", cgroup: "driver: cgroupfs, kubeletRoot: /nodes",
		check: "has no nodes/kubepods", fails: true, logged: "has no nodes/kubepods", unready: "has no nodes/kubepods", metric: notReady,
	},
	{
		name: "cgroup.root is no hierarchy of cgroups",
		node: func(t *testing.T, n *wrong) string { n.remove(t, "cgroup.controllers"); return "" },
		ends: "open cgroup root",
	},
	{name: "cgroup.root does not exist", cgroup: "root: /nowhere", ends: "open cgroup root: open /nowhere: no such file or directory"},
	{
		name:  "the hierarchy is mounted for reading",
		node:  func(t *testing.T, n *wrong) string { readOnly(t, n.root); return "" },
		check: "read-only file system (a container must be privileged or have the hierarchy mounted for writing)", fails: true,
		logged: "cgroups cannot be written", unready: "read-only file system", metric: notReady,
	},
	{
		name: "the process has no right to write cgroups", unprivileged: true, plugins: "[{name: identity, module: {file: $DIR/identity.wasm}, levels: [QOS]}]",
		check: "permission denied (requires root or CAP_DAC_OVERRIDE, and a security module that allows it)", fails: true,
		logged: "cgroups cannot be written", unready: "permission denied", metric: notReady,
	},
	{
		name: "the controllers are off",
		node: func(t *testing.T, n *wrong) string {
			for _, file := range []string{"cpu.weight", "cpuset.cpus", "memory.max"} {
				n.remove(t, "kubepods/"+file)
			}
			return ""
		},
		check: "has no file of the controllers cpu, cpuset and memory", fails: true, logged: "cgroups cannot be written", unready: "cgroups cannot be written", metric: notReady,
	},
	{
		name: "the kernel has no cpu.bvt_warp_ns, which a plugin owns",
		node: func(t *testing.T, n *wrong) string {
			for _, class := range []string{"", "burstable/", "besteffort/"} {
				n.remove(t, "kubepods/"+class+"cpu.bvt_warp_ns")
			}
			return ""
		},
		plugins: "[{name: identity, module: {file: $GUEST}, levels: [QOS], owns: [cpu_bvt]}]",
		check:   `msg="the node has no cgroup file for fields that plugins own; these decisions are not in force" fields=cpu_bvt`,
		logged:  `msg="the node has no cgroup file for a decided field; further cgroups are only counted" fields=cpu_bvt`,
		metric:  `kubewasm_hooks_refusals_total{cause="unsupported"} 3`,
	},
	{
		name: "another agent serves the node",
		node: func(t *testing.T, n *wrong) string {
			a, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: n.root})
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
			return ""
		},
		ends: "another agent serves this node",
	},

	// What runs.
	{
		name: "the pods' cgroups are elsewhere",
		node: func(t *testing.T, n *wrong) string {
			for _, pod := range []string{"podg", "burstable/podb", "besteffort/pode"} {
				n.remove(t, "kubepods/"+pod)
			}
			return ""
		},
		check: "none of the 3 running pods has its cgroup in the layout's place", fails: true,
		logged: "none of the 3 running pods", unready: "standalone: none of the 3 running pods", metric: notReady,
	},
	{
		name: "the kubelet cannot be reached", mode: "standalone: {kubelet: {url: 'https://127.0.0.1:1'}}",
		check: "connection refused", fails: true, logged: "connection refused", unready: "standalone: the running pods are unknown so far", metric: notReady,
	},
	{
		name: "the kubelet has another certificate", mode: "standalone: {kubelet: {url: $1, tokenFile: $DIR/token, caFile: $DIR/other.crt}}",
		node: func(t *testing.T, n *wrong) string {
			n.certificate(t, "other.crt")
			return n.kubelet(t, http.StatusOK, pods)
		},
		check: "certificate signed by unknown authority", fails: true, logged: "certificate signed by unknown authority", unready: "standalone: the running pods are unknown so far", metric: notReady,
	},
	{
		name: "the kubelet's certificate has another name", nodeName: "node-1", mode: "standalone: {kubelet: {url: $1, tokenFile: $DIR/token, caFile: $DIR/kubelet.crt}}",
		node:  func(t *testing.T, n *wrong) string { return n.kubelet(t, http.StatusOK, pods) },
		check: "not node-1", fails: true, logged: "not node-1", unready: "standalone: the running pods are unknown so far", metric: notReady,
	},
	{
		name: "the certificate's file is missing", mode: "standalone: {kubelet: {caFile: /nowhere/ca.crt}}", ends: "/nowhere/ca.crt",
	},
	{
		name: "the token's file is missing", mode: "standalone: {kubelet: {url: 'https://127.0.0.1:1', tokenFile: /nowhere/token}}",
		check: "open /nowhere/token", fails: true, logged: "open /nowhere/token", unready: "standalone: the running pods are unknown so far", metric: notReady,
	},
	{
		name: "the account may not get nodes/pods", mode: "standalone: {kubelet: {url: $1, tokenFile: $DIR/token, caFile: $DIR/kubelet.crt, serverName: example.com}}",
		node: func(t *testing.T, n *wrong) string {
			return n.kubelet(t, http.StatusForbidden, "Forbidden (user=system:serviceaccount:kube-system:kubewasm-agent, verb=get, resource=nodes, subresource(s)=[pods])")
		},
		check: "403 Forbidden", fails: true, logged: "403 Forbidden", unready: "standalone: the running pods are unknown so far", metric: notReady,
	},
	{
		name: "the runtime's CRI socket is missing", mode: "standalone: {cri: /nowhere/containerd.sock}",
		check: "/nowhere/containerd.sock", fails: true, logged: "/nowhere/containerd.sock", unready: "standalone: the running pods are unknown so far", metric: notReady,
	},
	{
		name: "the runtime's NRI socket is missing: NRI is off", mode: "nri: {socket: /nowhere/nri.sock}",
		check: "stat /nowhere/nri.sock: no such file or directory: is the runtime running, and is NRI enabled in its configuration?", fails: true,
		logged: "/nowhere/nri.sock", unready: "nri: not connected", metric: notReady,
	},
	{
		name: "nobody listens on the NRI socket", mode: "nri: {socket: $DIR/nri.sock}",
		node:   func(t *testing.T, n *wrong) string { stale(t, filepath.Join(n.dir, "nri.sock")); return "" },
		logged: "connection refused", unready: "nri: not connected", metric: notReady,
	},
	{
		name: "the directory in which Koordinator's proxy looks is missing", mode: "runtimeHook: {socket: $DIR/hook.sock, registration: /nowhere/hookserver.d/kubewasm.json}",
		ends: "runtimehook: register: open /nowhere/hookserver.d/", check: "stat /nowhere/hookserver.d: no such file or directory", fails: true,
	},
	{
		name: "NRI alone, with the other driver", cgroup: "driver: systemd", mode: "nri: {socket: $DIR/nri.sock}",
		node:  func(t *testing.T, n *wrong) string { stale(t, filepath.Join(n.dir, "nri.sock")); return "" },
		check: "driver is cgroupfs, not systemd", fails: true, logged: "driver is cgroupfs, not systemd", unready: "driver is cgroupfs, not systemd", metric: notReady,
	},
	{
		name: "the API server cannot be reached, with node", more: "node: {name: node-1, url: 'https://127.0.0.1:1', tokenFile: $DIR/token, caFile: $DIR/api.crt}",
		node: func(t *testing.T, n *wrong) string {
			n.certificate(t, "api.crt")
			n.write(t, "token", "secret\n")
			return ""
		},
		check: "connection refused", fails: true, logged: `msg="the API server does not send the node"`, unready: "node: it is unknown so far", metric: notReady,
	},
	{
		name: "the API server cannot be reached, with nodeSelector", plugins: "[{name: identity, module: {file: $GUEST}, nodeSelector: pool=fast}]",
		more: "node: {name: node-1, url: 'https://127.0.0.1:1', tokenFile: $DIR/token, caFile: $DIR/api.crt}",
		node: func(t *testing.T, n *wrong) string {
			n.certificate(t, "api.crt")
			n.write(t, "token", "secret\n")
			return ""
		},
		ends: "select the plugins for this node: ",
	},

	// Plugins.
	{name: "a module is missing", plugins: "[{name: identity, module: {file: /nowhere/identity.wasm}}]", check: "stat /nowhere/identity.wasm: no such file", fails: true, unready: "stat /nowhere/identity.wasm: no such file", logged: `msg="the plugin is not available"`, metric: `kubewasm_plugin_state{plugin="identity",state="Unavailable"} 1`},
	{
		name: "a module is cut off", plugins: "[{name: identity, module: {file: $DIR/identity.wasm}}]",
		node: func(t *testing.T, n *wrong) string {
			n.write(t, "identity.wasm", "\x00asm\x01\x00\x00\x00\x01\x7f")
			return ""
		},
		check: `plugin "identity"`, fails: true, unready: `plugin "identity"`, logged: `msg="the plugin is not available"`, metric: `kubewasm_plugin_state{plugin="identity",state="Unavailable"} 1`,
	},
	{
		name: "a module is an error page", plugins: "[{name: identity, module: {file: $DIR/identity.wasm}}]",
		node:  func(t *testing.T, n *wrong) string { n.write(t, "identity.wasm", "<html>404</html>"); return "" },
		check: `want the preamble "\x00asm\x01\x00\x00\x00", have "<html>40"`, fails: true, unready: `want the preamble "\x00asm\x01\x00\x00\x00", have "<html>40"`, logged: `msg="the plugin is not available"`, metric: `kubewasm_plugin_state{plugin="identity",state="Unavailable"} 1`,
	},
	{
		name: "the digest of a module differs from the pinned one", plugins: "[{name: identity, module: {file: $GUEST, sha256: " + strings.Repeat("ab", 32) + "}}]",
		check: "sha256 of the module is", fails: true, unready: "sha256 of the module is", logged: `msg="the plugin is not available"`, metric: `kubewasm_plugin_state{plugin="identity",state="Unavailable"} 1`,
	},
	{
		name: "a module is no hook", plugins: "[{name: identity, module: {file: $1}}]",
		node: func(t *testing.T, _ *wrong) string {
			file, err := guestbuild.Build(t.Context(), "../../examples/sched/zone")
			if err != nil {
				t.Fatal(err)
			}
			return file
		},
		check: `plugin "identity"`, fails: true, unready: `plugin "identity"`, logged: `msg="the plugin is not available"`, metric: `kubewasm_plugin_state{plugin="identity",state="Unavailable"} 1`,
	},

	// The machine.
	{
		name: "the disk for recordings is full", plugins: "[{name: identity, module: {file: $GUEST}, levels: [QOS], record: {path: $1}}]",
		node: func(t *testing.T, _ *wrong) string {
			dir := fulldisk.New(t, "64k")
			fulldisk.Fill(t, dir)
			return filepath.Join(dir, "recording")
		},
		logged: "no space left on device", metric: `kubewasm_recording_failures_total{path="$1"} 1`,
	},
	{
		name: "the cache of compiled modules cannot be written", more: "cacheDir: /proc/cache",
		check: `msg="the agent runs without its cache"`, logged: `msg="the agent runs without its cache"`, metric: "kubewasm_agent_cache_unusable 1",
	},
	{
		name: "executable memory is forbidden", how: noExecutable,
		check: "calls of plugins take about 50 times as long", logged: "calls of plugins take about 50 times as long",
		metric: `kubewasm_engine_info{engine="interpreter"} 1`,
	},
	{name: "executable memory is forbidden, with engine: compiler", how: noExecutable, more: "engine: compiler", ends: "MemoryDenyWriteExecute"},
	{name: "another process has the port", more: "http: {address: '$1'}", node: func(t *testing.T, _ *wrong) string {
		s := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}, ends: "address already in use"},
}

// TestNodesThatAreSetUpWrong holds what an operator sees of a node that is set up wrong, by the
// agent as a process: it ends, or is not ready, or is ready and says what is not in force.
func TestNodesThatAreSetUpWrong(t *testing.T) {
	whole := t
	guest := plugins(t)["/etc/kubewasm/plugins/group-identity.wasm"]
	cache := t.TempDir()
	address := regexp.MustCompile(`msg="serving metrics and probes" address=(\S+)`)
	for i := range setups {
		c := &setups[i]
		t.Run(c.name, func(t *testing.T) {
			n := &wrong{root: tree(whole), dir: whole.TempDir()} // Their names have no commas.
			n.list = filepath.Join(n.dir, "pods.yaml")
			n.write(t, "pods.yaml", pods)
			first := ""
			if c.node != nil {
				first = c.node(t, n)
			}
			fill := strings.NewReplacer("$ROOT", n.root, "$LIST", n.list, "$DIR", n.dir, "$GUEST", guest, "$1", first).Replace
			text := c.text
			if text == "" {
				or := func(part, otherwise string) string {
					if part == "" {
						return otherwise
					}
					return part
				}
				where := c.cgroup
				if !strings.Contains(where, "root: ") {
					where = strings.TrimPrefix(where+", root: $ROOT", ", ")
				}
				text = fmt.Sprintf("cgroup: {%s}\n%s\nplugins: %s\n%s\n", where, or(c.mode, "standalone: {file: $LIST}"), or(c.plugins, "[{name: identity, module: {file: $GUEST}, levels: [QOS]}]"), c.more)
				if !strings.Contains(text, "http: ") {
					text += "http: {address: '127.0.0.1:0'}\n"
				}
				if !strings.Contains(text, "cacheDir: ") && !c.unprivileged {
					text += "cacheDir: " + cache + "\n"
				}
			}
			file := filepath.Join(n.dir, "agent.yaml")
			if text != "-" {
				n.write(t, "agent.yaml", fill(text))
			}
			program := ""
			if c.unprivileged { // It may read this node, and nothing else of the test's.
				program = copyFile(t, self.Command(t, nil).Path, filepath.Join(n.dir, "kubewasm-agent"))
				copyFile(t, guest, filepath.Join(n.dir, "identity.wasm"))
				if err := os.Chmod(filepath.Dir(n.dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			has := func(what, got, want string) {
				t.Helper()
				if !strings.Contains(got, want) {
					t.Errorf("%s: got\n%s\nwant a line with %q", what, got, want)
				}
			}

			cmd, out := process(t, c, program, "-config", file, "-log-format", "text", "-check")
			err := cmd.Run()
			wantCheck, fails := c.check, c.fails
			if c.ends != "" && c.check == "" && !checkPasses[c.name] {
				wantCheck, fails = c.ends, true
			}
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if (err != nil) != fails {
				t.Errorf("-check ends with %v:\n%s", err, out)
			}
			has("-check", out.String(), wantCheck)

			cmd, out = process(t, c, program, "-config", file, "-log-format", "text")
			if c.ends != "" {
				if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 1 {
					t.Errorf("the agent ends with %v", err)
				}
				has("the end of the agent", out.String(), c.ends)
				return
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = cmd.Wait()
			}()
			until := func(what string, enough func() bool) {
				t.Helper()
				for start := time.Now(); !enough(); {
					select {
					case <-ended:
						t.Fatalf("the agent ended before %s:\n%s", what, out)
					case <-time.After(5 * time.Millisecond):
					}
					if time.Since(start) > time.Minute {
						t.Fatalf("no %s:\n%s", what, out)
					}
				}
			}
			url := ""
			until("its address", func() bool {
				if found := address.FindStringSubmatch(out.String()); found != nil {
					url = "http://" + found[1]
				}
				return url != ""
			})
			until(fmt.Sprintf("/readyz with %q", c.unready), func() bool {
				code, body := get(t, url+"/readyz")
				return c.unready == "" && code == http.StatusOK || c.unready != "" && code == http.StatusServiceUnavailable && strings.Contains(body, c.unready)
			})
			until(fmt.Sprintf("line with %q", c.logged), func() bool { return strings.Contains(out.String(), c.logged) })
			until("metric "+c.metric, func() bool {
				_, body := get(t, url+"/metrics")
				return strings.Contains("\n"+body, "\n"+fill(c.metric)+"\n")
			})
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			<-ended
			if code := cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("after SIGTERM the agent ends with %d:\n%s", code, out)
			}
		})
	}
}

// checkPasses are the rows that end the agent in spite of -check, which an operator runs beside the
// agent that serves.
var checkPasses = map[string]bool{"another agent serves the node": true, "another process has the port": true}

// copyFile returns the copy of a program or a module.
func copyFile(t *testing.T, from, to string) string {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// The table of the guide has the rows of the test.
func TestTheGuideHasTheTableOfNodes(t *testing.T) {
	const file, begin, end = "../../docs/operating.md", "| The node | The agent | `-check` | Log | `/readyz` | Metric |\n|---|---|---|---|---|---|\n", "\n\n"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	rows, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no table with the head\n%s", file, begin)
	}
	var want []string
	for i := range setups {
		c := &setups[i]
		cell := func(text string) string {
			if text == "" {
				return "–"
			}
			return "`" + strings.NewReplacer("$1", "…", "|", `\|`).Replace(text) + "`"
		}
		agent, check := "runs, and is ready", c.check
		switch {
		case c.ends != "":
			agent = "ends"
			if check == "" && !checkPasses[c.name] {
				check = c.ends
			}
		case c.unready != "":
			agent = "runs, and is not ready"
		}
		checked := cell(check)
		if check == "" {
			checked = "passes"
		} else if c.ends == "" && !c.fails {
			checked = "passes, and logs " + checked
		}
		logged := c.logged
		if c.ends != "" {
			logged = c.ends
		}
		want = append(want, "| "+strings.Join([]string{c.name, agent, checked, cell(logged), cell(c.unready), cell(c.metric)}, " | ")+" |")
	}
	table := strings.Join(want, "\n")
	if table == rows {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+table+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the table of %s differs; go test . -run TheTableOfNodes -update writes\n%s", file, table)
}
