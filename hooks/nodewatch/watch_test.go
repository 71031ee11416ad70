package nodewatch_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/nodewatch"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// cluster is an API server with two Nodes.
type cluster struct {
	*listserver.Server
	nodes *listserver.Resource
	// big is how many bytes an annotation of the Node has.
	big atomic.Int64
	cfg nodewatch.Config
	// told receives what Set is called with.
	told chan *hookmsg.Node
	log  *guarded.Log
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{told: make(chan *hookmsg.Node, 16), log: guarded.NewLog()}
	c.nodes = &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, Kind: "Node", N: 2}
	c.nodes.Object = func(dst []byte, i, changes int) []byte {
		dst = fmt.Appendf(dst, `{"kind":"Node","metadata":{%%s,"name":"node-%d","labels":{"zone":"a"},"annotations":{"ratio":"1.%d","big":%q}},`, i, changes, strings.Repeat("x", int(c.big.Load())))
		return append(dst, `"status":{"capacity":{"cpu":"8","memory":"32Gi"},"allocatable":{"cpu":"7900m"}}}`...)
	}
	c.Server = listserver.New(c.nodes)
	server := httptest.NewTLSServer(c.Server)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)
	if err := errors.Join(err, os.WriteFile(token, []byte("secret\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	c.cfg = nodewatch.Config{
		Name: "node-1", URL: server.URL, TokenFile: token, CAFile: ca, Logger: slog.New(c.log),
		Sys: machine(t, twoSockets()),
		Set: func(_ context.Context, node *hookmsg.Node) { c.told <- node },
	}
	return c
}

// follow runs a watch until the test ends.
func (c *cluster) follow(t *testing.T) *nodewatch.Watch {
	t.Helper()
	w, err := nodewatch.New(c.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return w
}

func (c *cluster) want(t *testing.T, ratio string) {
	t.Helper()
	want := &hookmsg.Node{
		Name: "node-1", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"ratio": ratio, "big": ""},
		Capacity: map[string]string{"cpu": "8", "memory": "32Gi"}, Allocatable: map[string]string{"cpu": "7900m"},
	}
	var err error
	if want.Topology, err = nodewatch.ReadTopology(c.cfg.Sys); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, <-c.told); diff != "" {
		t.Error(diff)
	}
}

func TestAWatchTellsOfChanges(t *testing.T) {
	c := newCluster(t)
	requests := make(chan string, 16)
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}
		requests <- r.URL.Query().Get("fieldSelector")
		return false
	}
	w := c.follow(t)
	if err := w.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.want(t, "1.0")
	for range 2 {
		if got := <-requests; got != "metadata.name=node-1" {
			t.Errorf("it asks for %q", got)
		}
	}
	c.Touch("nodes", 1)  // A heartbeat.
	c.Change("nodes", 0) // Another node.
	c.Change("nodes", 1)
	c.want(t, "1.1")
	c.Compact()
	c.Change("nodes", 1)
	c.want(t, "1.2")
	if w.Ready() != nil || w.Healthy() != nil || w.Since() != 0 || w.Check(t.Context()) != nil {
		t.Errorf("ready %v, healthy %v, silent for %s, checked %v", w.Ready(), w.Healthy(), w.Since(), w.Check(t.Context()))
	}
}

// What an API server does wrong is logged, and the watch goes on.
func TestAWatchOutlivesItsServer(t *testing.T) {
	for _, tt := range []struct {
		name string
		// fault answers the first requests.
		fault  func(w http.ResponseWriter, r *http.Request)
		watch  bool // Only watches.
		logged string
	}{
		{name: "no right", fault: func(w http.ResponseWriter, _ *http.Request) {
			listserver.Fail(w, http.StatusForbidden, "Forbidden", "nodes is forbidden")
		}, logged: "nodes is forbidden"},
		{name: "a redirect", fault: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		}, logged: "302 Found"},
		{name: "no JSON", fault: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, logged: "invalid character"},
		{name: "no version", fault: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }, logged: "no resourceVersion"},
		{name: "a list that ends in the middle", fault: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"metadata":`) }, logged: "unexpected EOF"},
		{name: "a list without end", fault: func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<20)); err != nil {
					return
				}
			}
		}, logged: "more than 4194304 bytes"},
		{name: "a version that is too old", watch: true, fault: func(w http.ResponseWriter, _ *http.Request) {
			listserver.Fail(w, http.StatusGone, "Expired", "too old resource version")
		}, logged: "too old resource version"},
		{name: "a connection that is closed", watch: true, fault: func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, logged: "EOF"},
		{name: "an event without end", watch: true, fault: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, `{"type":"`)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat("x", 1<<20)); err != nil {
					return
				}
			}
		}, logged: "more than 4194304 bytes"},
		{name: "watches that end at once", watch: true, fault: func(http.ResponseWriter, *http.Request) {}, logged: "ends watches at once"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t)
			var faults atomic.Int64
			c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if tt.watch && r.URL.Query().Get("watch") == "" || faults.Add(1) > 1 {
					return false
				}
				tt.fault(w, r)
				return true
			}
			w := c.follow(t)
			c.want(t, "1.0")
			c.Change("nodes", 1)
			c.want(t, "1.1")
			if !strings.Contains(c.log.String(), tt.logged) {
				t.Errorf("logged %s, want %q", c.log.String(), tt.logged)
			}
			if err := w.Ready(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Of the objects of a resource the node's own is told, as it changes and until it goes.
func TestAWatchTellsOfObjects(t *testing.T) {
	c := newCluster(t)
	slos := &listserver.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "slo.koordinator.sh", Version: "v1alpha1", Resource: "nodeslos"}, Kind: "NodeSLO", N: 2}
	slos.Object = func(dst []byte, i, changes int) []byte {
		return fmt.Appendf(dst, `{"kind":"NodeSLO","metadata":{%%s,"name":"node-%d","managedFields":[{"manager":"x"}]},"spec":{"n":%d}}`, i, changes)
	}
	server := listserver.New(c.nodes, slos)
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		server.ServeHTTP(w, r)
		return true
	}
	told := make(chan string, 16)
	const resource = "slo.koordinator.sh/v1alpha1/nodeslos"
	c.cfg.Objects = []string{resource}
	c.cfg.SetObject = func(of, name string, object []byte) error {
		var o struct {
			Metadata map[string]any `json:"metadata"`
			Spec     struct{ N int }
		}
		if object == nil {
			told <- of + " " + name + " gone"
			return nil
		}
		if err := json.Unmarshal(object, &o); err != nil {
			return err
		}
		told <- fmt.Sprint(of, " ", name, " ", o.Metadata["name"], " ", o.Spec.N, " ", o.Metadata["managedFields"])
		return nil
	}
	w := c.follow(t)
	if err := w.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := func(text string) {
		t.Helper()
		if got := <-told; got != resource+" node-1 "+text {
			t.Errorf("got %s, want %s", got, text)
		}
	}
	want("node-1 0 <nil>")
	server.Change("nodeslos", 0)
	server.Change("nodeslos", 1)
	want("node-1 1 <nil>")
	server.Delete("nodeslos", 1)
	want("gone")
}

// A resource that is not installed has no object, until it is.
func TestAResourceThatIsNotInstalled(t *testing.T) {
	c := newCluster(t)
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/nodes") {
			return false
		}
		http.NotFound(w, r)
		return true
	}
	told := make(chan bool, 16)
	c.cfg.Objects = []string{"example.com/v1/rules"}
	c.cfg.SetObject = func(_, _ string, object []byte) error {
		told <- object == nil
		return nil
	}
	w := c.follow(t)
	if err := w.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if none := <-told; !none {
		t.Error("an object is told")
	}
	if err := w.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestANodeThatIsNotThere(t *testing.T) {
	c := newCluster(t)
	c.Delete("nodes", 1)
	w := c.follow(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it was waited for with %v", err)
	}
	if err := w.Check(t.Context()); err == nil || !strings.Contains(err.Error(), `there is no Node "node-1"`) {
		t.Errorf("got error %v", err)
	}
	if err := w.Ready(); err == nil || !strings.Contains(err.Error(), "node: it is unknown so far") {
		t.Errorf("got error %v", err)
	}
}

func TestMistakesOfAConfiguration(t *testing.T) {
	c := newCluster(t)
	for _, tt := range []struct {
		name   string
		change func(*nodewatch.Config)
		want   string
	}{
		{"no name", func(cfg *nodewatch.Config) { cfg.Name = "" }, "the name of the node is missing"},
		{"no one to tell of objects", func(cfg *nodewatch.Config) { cfg.Objects = []string{"example.com/v1/a"} }, "setObject is missing"},
		{"objects that are none", func(cfg *nodewatch.Config) {
			cfg.Objects, cfg.SetObject = []string{"NodeSLO"}, func(string, string, []byte) error { return nil }
		}, "is not version/resource"},
		{"nobody to tell", func(cfg *nodewatch.Config) { cfg.Set = nil }, "set is missing"},
		{"outside of a Pod", func(cfg *nodewatch.Config) { cfg.URL = "" }, "url is missing"},
		{"without TLS", func(cfg *nodewatch.Config) { cfg.URL = "http://127.0.0.1" }, "no address of https"},
		{"without certificates", func(cfg *nodewatch.Config) { cfg.CAFile = filepath.Join(t.TempDir(), "none") }, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := c.cfg
			tt.change(&cfg)
			if _, err := nodewatch.New(cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}
