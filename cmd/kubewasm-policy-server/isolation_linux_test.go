//go:build amd64 || arm64

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewasm/kubewasm/internal/testkit/self"
)

// guestProcesses returns the number of children of this process that run guests.
func guestProcesses(t *testing.T) (n int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(lists) == 0 {
		t.Fatalf("the kernel lists no children: %v", err)
	}
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for pid := range strings.FieldsSeq(string(pids)) {
			line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if strings.HasPrefix(string(line), "kubewasm-guest\x00") {
				n++
			}
		}
	}
	return n
}

// gauges returns the values of a gauge of plugins by their names.
func gauges(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.Metric {
				values[m.Label[0].GetValue()] = m.Gauge.GetValue()
			}
		}
	}
	return values
}

// The stages of TestIsolation in a process to which the kernel refuses files in memory.
const (
	stageVariable = "KUBEWASM_TEST_STAGE"
	stageRefuse   = "refuse"
	stageServe    = "serve"
)

// Policies run in processes unless the operator says otherwise, those of a namespace and those of the
// cluster in others. On a system without such processes they run in the server, which says so.
func TestIsolation(t *testing.T) {
	t.Setenv("KUBEWASM_DEBUG", "")
	if self.Emulated() {
		t.Skip("an emulator runs this test")
	}
	switch os.Getenv(stageVariable) {
	case stageRefuse:
		refuseFiles(t)
	case stageServe:
		registry, out, isolated := serveIsolated(t, nil)
		missing := gauges(t, registry, "kubewasm_plugin_isolation_missing")
		if len(isolated) != 3 || isolated["clusterwide-a"] != 0 || missing["clusterwide-a"] != 1 || guestProcesses(t) != 0 {
			t.Errorf("isolated are %v, missing %v, with %d processes", isolated, missing, guestProcesses(t))
		}
		if log := out.String(); strings.Count(log, "run in this process, not in one of their own") != 1 || !strings.Contains(log, "operation not permitted") {
			t.Errorf("the log is\n%s", log)
		}
		return
	}
	all := map[string]float64{"clusterwide-a": 1, "namespaced-shop-a": 1, "namespaced-bank-a": 1}
	none := map[string]float64{"clusterwide-a": 0, "namespaced-shop-a": 0, "namespaced-bank-a": 0}
	for _, test := range []struct {
		name string
		env  map[string]string
		want map[string]float64
	}{
		{"by default", nil, all},
		{"a minimum of none", map[string]string{"KUBEWASM_MINIMUM_ISOLATION": "none"}, none},
		{"a minimum of process", map[string]string{"KUBEWASM_MINIMUM_ISOLATION": "process"}, all},
		{"guests without", map[string]string{"KUBEWASM_GUESTS": "isolation: none"}, none},
		{"a policy without", map[string]string{"KUBEWASM_GUESTS": "policies: {clusterwide-a: {isolation: none}}"}, map[string]float64{"clusterwide-a": 0, "namespaced-shop-a": 1, "namespaced-bank-a": 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, out, isolated := serveIsolated(t, test.env)
			if diff := cmp.Diff(test.want, isolated); diff != "" {
				t.Errorf("isolated are (-want +got):\n%s", diff)
			}
			want := 0
			for _, is := range test.want {
				want += int(is) // All have one module, in a process of each domain.
			}
			if got := guestProcesses(t); got != want {
				t.Errorf("there are %d processes, want %d", got, want)
			}
			if strings.Contains(out.String(), "run in this process") {
				t.Errorf("the log is\n%s", out)
			}
		})
	}
	t.Run("a system without files in memory", func(t *testing.T) {
		cmd := self.Command(t, []string{stageVariable + "=" + stageRefuse}, "-test.run=^TestIsolation$", "-test.v")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestIsolation") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// serveIsolated serves three policies with a module, and returns which of them are isolated.
func serveIsolated(t *testing.T, more map[string]string) (registry *prometheus.Registry, out *output, isolated map[string]float64) {
	t.Helper()
	dir := t.TempDir()
	policies := fmt.Appendf(nil, `{
	"clusterwide-a": {"module": "file://%[1]s/allow.wasm"},
	"namespaced-shop-a": {"namespacedName": {"Namespace": "shop", "Name": "a"}, "module": "file://%[1]s/allow.wasm"},
	"namespaced-bank-a": {"namespacedName": {"Namespace": "bank", "Name": "a"}, "module": "file://%[1]s/allow.wasm"}}`, dir)
	for name, text := range map[string][]byte{"allow.wasm": saying(t, `{"accepted":true}`), "policies.yml": policies} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{
		"KUBEWARDEN_BIND_ADDRESS": "127.0.0.1", "KUBEWARDEN_PORT": freePort(t), "KUBEWARDEN_READINESS_PROBE_PORT": freePort(t), "KUBEWASM_DRAIN_DELAY": "0s",
		"KUBEWARDEN_POLICIES": filepath.Join(dir, "policies.yml"), "KUBEWARDEN_POLICIES_DOWNLOAD_DIR": dir,
	}
	for name, value := range more {
		env[name] = value
	}
	registry = prometheus.NewRegistry()
	out = startWith(t, env, registry)
	for _, id := range []string{"clusterwide-a", "namespaced-shop-a", "namespaced-bank-a"} {
		if got, err := post(http.DefaultClient, "http://127.0.0.1:"+env["KUBEWARDEN_PORT"]+"/validate/"+id); err != nil || got != "allowed" {
			t.Errorf("%s answers %q, error %v", id, got, err)
		}
	}
	return registry, out, gauges(t, registry, "kubewasm_plugin_isolated")
}

// refuseFiles runs this test in a process that the kernel refuses files in memory.
func refuseFiles(t *testing.T) {
	runtime.LockOSThread()
	call := map[string]uint32{"amd64": 319, "arm64": 279}[runtime.GOARCH]
	filter := []syscall.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS},
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, K: call, Jf: 1},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: 0x50000 | uint32(syscall.EPERM)},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: 0x7fff0000},
	}
	prog := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, 38, 1, 0, 0, 0, 0); errno != 0 { // PR_SET_NO_NEW_PRIVS
		t.Fatal(errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, 22, 2, uintptr(unsafe.Pointer(&prog))); errno != 0 { // PR_SET_SECCOMP
		t.Fatal(errno)
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, stageVariable+"=") })
	t.Fatal(syscall.Exec("/proc/self/exe", os.Args, append(env, stageVariable+"="+stageServe)))
}
