package clusterplugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/clusterplugins"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/internal/testkit/listserver"
)

// cluster is an API server with NodeHooks.
type cluster struct {
	*listserver.Server
	client *apiserver.Client
	// texts are the objects after their metadata's versions, as format strings.
	texts [3]atomic.Pointer[string]
	// lists and watches count requests.
	lists, watches atomic.Int64
	fault          atomic.Pointer[func(http.ResponseWriter, *http.Request) bool]
}

func newCluster(t *testing.T, n int) *cluster {
	t.Helper()
	c := new(cluster)
	c.Server = listserver.New(&listserver.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "kubewasm.dev", Version: "v1alpha1", Resource: "nodehooks"}, Kind: "NodeHook", N: n,
		Object: func(dst []byte, i, _ int) []byte { return append(dst, *c.texts[i].Load()...) },
	})
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "" {
			c.watches.Add(1)
		} else if r.Method == http.MethodGet {
			c.lists.Add(1)
		}
		fault := c.fault.Load()
		return fault != nil && (*fault)(w, r)
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	c.client = apiserver.Wrap(server.URL, server.Client())
	return c
}

// set changes object i: its uid, generation, pin and module.
func (c *cluster) set(i int, uid string, generation int, pin, module string) {
	c.texts[i].Store(new(fmt.Sprintf(`{"metadata":{%%s,"name":"hook-%d","uid":%q,"generation":%d},"spec":{"module":{"oci":%q}},"status":{%s}}`, i, uid, generation, module, pin)))
	c.Change("nodehooks", i)
}

// follow follows the objects until the test ends, and returns what is applied, as text.
func (c *cluster) follow(t *testing.T) (watch *clusterplugins.Watch, applied <-chan string) {
	t.Helper()
	all := make(chan string, 64)
	watch = clusterplugins.New(clusterplugins.Config{Client: c.client, Resources: []clusterplugins.Resource{clusterplugins.NodeHooks}, Logger: slog.New(slog.DiscardHandler), Apply: func(objects []clusterplugins.Object) {
		var list []string
		for _, o := range objects {
			list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %d %s", o.Plugin(), o.UID, o.Generation, o.Pinned)))
		}
		all <- strings.Join(list, ", ")
	}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { watch.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return watch, all
}

// wants waits until something is applied: changes may be collected.
func wants(t *testing.T, applied <-chan string, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	last := "nothing"
	for last != want {
		select {
		case last = <-applied:
		case <-deadline:
			t.Fatalf("applied %s, want %s", last, want)
		}
	}
}

func TestObjectsAreAppliedByTheirGenerations(t *testing.T) {
	one, two := "example.com/r@sha256:"+strings.Repeat("1", 64), "example.com/r@sha256:"+strings.Repeat("2", 64)
	pin := func(generation int, reference string) string {
		return fmt.Sprintf(`"pin":{"generation":%d,"reference":%q}`, generation, reference)
	}
	c := newCluster(t, 3)
	c.set(0, "a", 1, "", "example.com/r:1")
	c.set(1, "b", 1, pin(1, one), "example.com/r:1")
	c.set(2, "c", 1, "", "example.com/r:1")
	c.Delete("nodehooks", 2)
	watch, applied := c.follow(t)
	wants(t, applied, "hook-0 a 1, hook-1 b 1 "+one)
	if err := watch.Err(); err != nil || watch.Silent() != 0 {
		t.Errorf("error %v, silent for %s", err, watch.Silent())
	}
	// What is no other generation or pin is not applied again.
	c.Touch("nodehooks", 0)
	c.set(0, "a", 1, `"ready":"1/1"`, "example.com/r:1")
	c.set(0, "a", 2, "", "example.com/r:2")
	wants(t, applied, "hook-0 a 2, hook-1 b 1 "+one)
	select {
	case again := <-applied:
		t.Errorf("applied %s", again)
	default:
	}
	// A generation whose module is about to be resolved waits for that; an object of its name does
	// not.
	c.set(1, "b", 2, pin(1, one), "example.com/r:2")
	c.set(0, "a", 3, "", "example.com/r:3")
	wants(t, applied, "hook-0 a 3, hook-1 b 1 "+one)
	c.set(1, "b", 2, pin(2, two), "example.com/r:2")
	wants(t, applied, "hook-0 a 3, hook-1 b 2 "+two)
	// One of another repository, or of another digest than the declared, is none.
	c.set(1, "d", 1, pin(1, "example.com/other@sha256:"+strings.Repeat("2", 64)), "example.com/r:2")
	wants(t, applied, "hook-0 a 3, hook-1 d 1")
	c.set(1, "e", 1, pin(1, one), two)
	wants(t, applied, "hook-0 a 3, hook-1 e 1")
	c.set(1, "d", 1, "", "example.com/r:2")
	wants(t, applied, "hook-0 a 3, hook-1 d 1")
	c.Delete("nodehooks", 0)
	wants(t, applied, "hook-1 d 1")
}

// A watch that breaks off continues without a list, and a version that is too old needs one.
func TestAWatchContinues(t *testing.T) {
	c := newCluster(t, 1)
	c.set(0, "a", 1, "", "r:1")
	var faults atomic.Int64
	fault := func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" || faults.Add(1) > 3 {
			return false
		}
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	c.fault.Store(&fault)
	_, applied := c.follow(t)
	wants(t, applied, "hook-0 a 1")
	c.set(0, "a", 2, "", "r:2")
	wants(t, applied, "hook-0 a 2")
	if lists, watches := c.lists.Load(), c.watches.Load(); lists != 0 || watches < 4 {
		t.Errorf("%d lists and %d watches", lists, watches)
	}
}

// TestInitialEvents has API servers that begin watches in other ways.
func TestInitialEvents(t *testing.T) {
	object := func(kind, name string, generation int) string {
		return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"resourceVersion":"%d","name":%q,"uid":"u","generation":%d},"spec":{"module":{"oci":"r:1"}}}}`+"\n", kind, 2000+generation, name, generation)
	}
	end := `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3000","annotations":{"k8s.io/initial-events-end":"true"}}}}`
	for _, tt := range []struct {
		name string
		// begins answers the watches that ask for initial events.
		begins func(w http.ResponseWriter, r *http.Request, n int64)
		want   string
		lists  int64
	}{
		{name: "changes before their end", begins: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, object("ADDED", "a", 1)+object("ADDED", "b", 1)+object("MODIFIED", "a", 2)+object("DELETED", "b", 1)+object("ADDED", "c", 3)+end)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, want: "a u 2, c u 3"},
		{name: "the first ends in the middle", begins: func(w http.ResponseWriter, r *http.Request, n int64) {
			_, _ = io.WriteString(w, object("ADDED", "a", 1))
			_ = http.NewResponseController(w).Flush()
			if n == 1 {
				panic(http.ErrAbortHandler)
			}
			_, _ = io.WriteString(w, object("ADDED", "b", 1)+end)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, want: "a u 1, b u 1"},
		{name: "none: it refuses them", begins: func(w http.ResponseWriter, _ *http.Request, _ int64) {
			listserver.Fail(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		}, want: "hook-0 a 1", lists: 1},
		{name: "none: it ignores the request", begins: func(w http.ResponseWriter, r *http.Request, _ int64) {
			_, _ = io.WriteString(w, object("ADDED", "a", 1)+`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"3000"}}}`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, want: "hook-0 a 1", lists: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 1)
			c.set(0, "a", 1, "", "r:1")
			var n atomic.Int64
			fault := func(w http.ResponseWriter, r *http.Request) bool {
				begins := r.URL.Query().Get("sendInitialEvents") != ""
				if begins {
					tt.begins(w, r, n.Add(1))
				}
				return begins
			}
			c.fault.Store(&fault)
			watch, applied := c.follow(t)
			wants(t, applied, tt.want)
			if got := c.lists.Load(); got != tt.lists {
				t.Errorf("%d lists, want %d", got, tt.lists)
			}
			if err := watch.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Resources that are not installed have no objects, and may come later.
func TestResourcesThatComeLater(t *testing.T) {
	c := newCluster(t, 1)
	c.set(0, "a", 1, "", "r:1")
	var installed atomic.Bool
	fault := func(w http.ResponseWriter, _ *http.Request) bool {
		if !installed.Load() {
			http.NotFound(w, nil)
		}
		return !installed.Load()
	}
	c.fault.Store(&fault)
	_, applied := c.follow(t)
	wants(t, applied, "")
	installed.Store(true)
	wants(t, applied, "hook-0 a 1")
}

func TestReports(t *testing.T) {
	c := newCluster(t, 0)
	var mu sync.Mutex
	states := []clusterplugins.State{{Kind: "NodeHook", Name: "a", Generation: 1, State: "Serving"}, {Kind: "NodeHook", Name: "b", Generation: 2, State: "Refused", Message: "why"}}
	const path = "/apis/kubewasm.dev/v1alpha1/namespaces/n/pluginreports/p"
	var puts atomic.Int64
	fault := func(w http.ResponseWriter, r *http.Request) bool {
		if n := puts.Add(1); r.Method == http.MethodPatch && n == 1 {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	c.fault.Store(&fault)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		clusterplugins.Report(ctx, c.client, clusterplugins.Process{Component: "kubewasm-agent", Version: "v1", Engine: "compiler", Name: "p", Namespace: "n", UID: "u", Node: "node"}, func() []clusterplugins.State {
			mu.Lock()
			defer mu.Unlock()
			return states
		}, slog.New(slog.DiscardHandler))
	})
	defer func() {
		cancel()
		running.Wait()
	}()
	type report struct {
		Serving, Others int
		Plugins         []clusterplugins.State
	}
	stored := func(holds func(report, []byte) bool) {
		t.Helper()
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			var got report
			text := c.Stored()[path]
			if text != nil {
				if err := json.Unmarshal(text, &got); err != nil {
					t.Fatal(err)
				}
				if holds(got, text) {
					return
				}
			}
			if time.Since(start) > 30*time.Second {
				t.Fatalf("the report is %.1000s", text)
			}
		}
	}
	stored(func(got report, text []byte) bool {
		return cmp.Equal(got, report{1, 1, states}) && strings.Contains(string(text), `"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]`)
	})
	// However many there are, and whatever they say, an API server stores it.
	var many []clusterplugins.State
	for i := range 20_000 {
		many = append(many, clusterplugins.State{Kind: "NodeHook", Name: fmt.Sprintf("hook-%05d-%s", i, strings.Repeat("x", 50)), State: "Unavailable", Message: strings.Repeat("\x00<>", 1000)})
	}
	mu.Lock()
	states = many
	mu.Unlock()
	stored(func(got report, text []byte) bool {
		return got.Others == 20_000 && len(got.Plugins) > 4000 && len(text) <= 1<<20
	})
	mu.Lock()
	states = many[:500]
	mu.Unlock()
	stored(func(got report, text []byte) bool {
		return got.Others == 500 && len(got.Plugins) == 500 && strings.HasPrefix(got.Plugins[0].Message, "\x00<>") && len(text) <= 1<<20
	})
}
