package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/internal/program/statusz"
	"github.com/kubewasm/kubewasm/internal/testkit/operate"
)

// The rows of docs/operating.md about the policy server.
func TestStatus(t *testing.T) {
	dir, port, probes := t.TempDir(), freePort(t), freePort(t)
	policy := func(id, mode, module string) string {
		return fmt.Sprintf("clusterwide-%s:\n  namespacedName: {Namespace: '', Name: %[1]s}\n  module: file://%s\n  policyMode: %s\n  hostCapabilities: ['*']\n", id, module, mode)
	}
	deny, labels := filepath.Join(dir, "deny.wasm"), filepath.Join(dir, "labels.wasm")
	for name, data := range map[string][]byte{
		deny: saying(t, `{"accepted":false,"message":"not here"}`), labels: saying(t, `{"accepted":true}`),
		filepath.Join(dir, "policies.yml"): []byte(policy("deny", "protect", deny) + policy("labels", "monitor", labels) + policy("absent", "protect", filepath.Join(dir, "absent.wasm"))),
	} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	base := "http://127.0.0.1:" + probes
	operate.Start(t, base+"/metrics", []string{"HOSTNAME=policy-server-default-7d9f", "POD_NAME=policy-server-default-7d9f"}, "-policies", filepath.Join(dir, "policies.yml"), "-addr", "127.0.0.1",
		"-port", port, "-readiness-probe-port", probes, "-ready-timeout", "1ms", "-policies-download-dir", filepath.Join(dir, "downloads"))
	until(t, "both serve", func() bool {
		resp, err := http.Get(base + statusz.Path + "?section=plugins")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Count(string(text), " Serving ") == 2
	})
	for _, id := range []string{"deny", "labels"} {
		if answer, err := post(http.DefaultClient, "http://127.0.0.1:"+port+"/validate/clusterwide-"+id); err != nil || (answer == "allowed") != (id == "labels") {
			t.Fatalf("%s answers %q %v", id, answer, err)
		}
	}
	operate.Ask(t, "../..", "policy-server", base)
	t.Run("a browser", func(t *testing.T) {
		p := operate.NewBrowser(t).Open(base+statusz.Path, 360, 800)
		if len(p.Errors) != 0 || p.Width > 360 || !strings.Contains(p.Text, "clusterwide-labels") {
			t.Errorf("the page is %v pixels wide, with the errors %s\n%s", p.Width, p.Errors, p.Text)
		}
	})
}
