package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/internal/testkit/operate"
)

// The rows of docs/operating.md about the scheduler. Its API server is away, so it has loaded its
// plugins and waits.
func TestStatus(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds a kube-scheduler")
	}
	dir := t.TempDir()
	zone, err := guestbuild.Build(t.Context(), "../../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	var ports []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports = append(ports, port)
		l.Close()
	}
	for name, text := range map[string]string{
		"kubeconfig": "{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u}], contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}\n",
		"config.yaml": fmt.Sprintf(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %[1]s/kubeconfig}
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: zone}]}}
  pluginConfig:
  - {name: zone, args: {module: {file: %[2]s}, guestConfig: {defaultZones: [a]}}}
  - {name: spare, args: {module: {file: %[2]s}}}
- schedulerName: batch
  plugins: {multiPoint: {enabled: [{name: zone}]}}
  pluginConfig:
  - {name: zone, args: {module: {file: %[2]s}, guestConfig: {defaultZones: [b]}, failurePolicy: Ignore}}
`, dir, zone),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	operate.Start(t, "https://127.0.0.1:"+ports[0]+"/livez", []string{"POD_NAME=kubewasm-scheduler-7d9f"}, "--config", filepath.Join(dir, "config.yaml"), "--bind-address=127.0.0.1", "--secure-port", ports[0],
		"--cert-dir", filepath.Join(dir, "certs"), "--plugin-cache-dir", filepath.Join(dir, "cache"), "--plugin-status-address", ":"+ports[1])
	base := "http://localhost:" + ports[1]
	operate.Ask(t, "../..", "scheduler", base)
	t.Run("a browser", func(t *testing.T) {
		p := operate.NewBrowser(t).Open(base+statusz.Path, 360, 800)
		if len(p.Errors) != 0 || p.Width > 360 {
			t.Errorf("the page is %v pixels wide, with the errors %s", p.Width, p.Errors)
		}
	})
}
