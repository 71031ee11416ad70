package main

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// nodeServer is an API server with the Node of an agent.
type nodeServer struct {
	*listserver.Server
	// config is the agent's, for the Node.
	config string
	// annotations are those of the Node, in JSON.
	annotations atomic.Pointer[[]byte]
}

// newNodeServer returns a server whose Node has some annotations.
func newNodeServer(t *testing.T, annotations map[string]string) *nodeServer {
	t.Helper()
	s := new(nodeServer)
	s.set(t, annotations)
	s.Server = listserver.New(&listserver.Resource{
		GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node", N: 1,
		Object: func(dst []byte, _, _ int) []byte {
			return fmt.Appendf(dst, `{"kind":"Node","apiVersion":"v1","metadata":{%%s,"name":"node-1","labels":{"pool":"fast"},"annotations":%s},"status":{"capacity":{"cpu":"8"},"allocatable":{"cpu":"7900m"}}}`, *s.annotations.Load())
		},
	})
	server := httptest.NewTLSServer(s)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)
	if err := errors.Join(err, os.WriteFile(token, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.config = fmt.Sprintf("{name: node-1, url: '%s', tokenFile: %s, caFile: %s}", server.URL, token, ca)
	return s
}

func (s *nodeServer) set(t *testing.T, annotations map[string]string) {
	t.Helper()
	b, err := json.Marshal(annotations)
	if err != nil {
		t.Fatal(err)
	}
	s.annotations.Store(&b)
}

// annotate changes the annotations of the Node.
func (s *nodeServer) annotate(t *testing.T, annotations map[string]string) {
	t.Helper()
	s.set(t, annotations)
	s.Touch("nodes", 0)
}

// -check and readiness tell of a node that an agent does not get.
func TestANodeThatIsNotTold(t *testing.T) {
	root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	s := newNodeServer(t, nil)
	guest := plugins(t)["/etc/kubewasm/plugins/cpu-normalization.wasm"]
	for _, tt := range []struct {
		name, node, refuses, check string
	}{
		{name: "of another name", node: "node: " + strings.Replace(s.config, "node-1", "node-2", 1) + "\n", check: `there is no Node "node-2"`},
		{name: "without a name", node: "node: " + strings.Replace(s.config, "name: node-1, ", "", 1) + "\n", refuses: "node: the name of the node is missing"},
		{name: "outside of a Pod", node: "node: {name: node-1}\n", refuses: "node: the process is in no Pod, and url is missing"},
		{name: "not followed", refuses: "it reads node_annotations, and the configuration does not have the node followed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NODE_NAME", "")
			file := filepath.Join(t.TempDir(), "agent.yaml")
			text := fmt.Sprintf("%scacheDir: %s\ncgroup: {root: %s}\nstandalone: {file: %s}\nplugins:\n- {name: normalization, file: %s, reads: [resources, node_annotations]}\n", tt.node, t.TempDir(), root, list, guest)
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			want := tt.refuses + tt.check
			if err := run(t.Context(), []string{"-config", file, "-check"}); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("got error %v, want one with %q", err, want)
			}
			if tt.check == "" {
				return
			}
			cfg, err := readConfig(file)
			if err != nil {
				t.Fatal(err)
			}
			a, err := newAgent(t.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer a.close()
			if err := a.all(probed.Ready); err == nil || !strings.Contains(err.Error(), "node: it is not known yet") {
				t.Errorf("ready: %v", err)
			}
		})
	}
}
