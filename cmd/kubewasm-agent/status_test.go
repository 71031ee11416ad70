package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/internal/testkit/operate"
)

// The rows of docs/operating.md about the agent.
func TestStatus(t *testing.T) {
	dir, root := t.TempDir(), tree(t)
	scripted, err := guestbuild.Build(t.Context(), "../../hooks/testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for name, text := range map[string]string{
		"pods.yaml": `
kind: PodList
items:
- metadata: {namespace: shop, name: web, uid: g, annotations: {p: error no room}}
  spec: {containers: [{name: c, resources: {limits: {cpu: "2", memory: 1Gi}}}]}
  status: {qosClass: Guaranteed, containerStatuses: [{name: c, containerID: "containerd://gc", state: {running: {}}}]}
`,
		"agent.yaml": fmt.Sprintf(`
cacheDir: %[1]s/cache
cgroup: {root: %[2]s, driver: cgroupfs}
standalone: {file: %[1]s/pods.yaml}
http: {address: '%[3]s'}
plugins:
- {name: identity, levels: [QOS], module: {file: %[4]s}}
- {name: limits, levels: [Container], module: {file: %[5]s}}
- {name: cpuset, levels: [Pod], failurePolicy: KeepLast, module: {file: /nowhere/cpuset.wasm}}
`, dir, root, address, plugins(t)["/etc/kubewasm/plugins/group-identity.wasm"], scripted),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	operate.Start(t, "http://"+address+"/healthz", []string{"NODE_NAME=node-1"}, "-config", filepath.Join(dir, "agent.yaml"))
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, body := get(t, "http://"+address+statusz.Path+"?section=refusals"); strings.Contains(body, "limits") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is refused")
		}
	}
	operate.Ask(t, "../..", "agent", "http://"+address)
	t.Run("a browser", func(t *testing.T) {
		p := operate.NewBrowser(t).Open("http://"+address+statusz.Path, 360, 800)
		if len(p.Errors) != 0 || p.Width > 360 {
			t.Errorf("the page is %v pixels wide, with the errors %s", p.Width, p.Errors)
		}
	})
}
