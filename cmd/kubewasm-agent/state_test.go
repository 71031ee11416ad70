package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/runtime/hookstate"
	"github.com/kubewasm/kubewasm/internal/apiserver"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// configured returns an agent of a configuration.
func configured(t *testing.T, text string, logger *slog.Logger) (*config, *agent) {
	t.Helper()
	cfg := new(config)
	if err := yaml.UnmarshalStrict([]byte(text), cfg); err != nil {
		t.Fatal(err)
	}
	a, err := newAgent(t.Context(), cfg, logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.close() })
	return cfg, a
}

// The agent's own command asks the agent that runs, which answers its node alone.
func TestTheStateOfAPod(t *testing.T) {
	root, list := tree(t), filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(list, []byte(pods), 0o644); err != nil {
		t.Fatal(err)
	}
	guest := plugins(t)["/etc/kubewasm/plugins/cpu-normalization.wasm"]
	text := fmt.Sprintf("cacheDir: %s\ncgroup: {root: %s}\nstandalone: {file: %s}\nhttp: {address: '127.0.0.1:0'}\nplugins:\n- {name: normalization, module: {file: %s}, levels: [Container], selector: {qosClasses: [Burstable]}, guestConfig: {ratioPercent: 120}}\n", t.TempDir(), root, list, guest)
	cfg, a := configured(t, text, slog.New(slog.DiscardHandler))
	addresses := make(chan net.Addr, 1)
	a.modes[len(a.modes)-1].(*server).listening = func(addr net.Addr) { addresses <- addr }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.run(ctx) }()
	defer func() {
		cancel()
		<-ended
	}()
	cfg.HTTP.Address = (<-addresses).String()

	const quota = "kubepods/burstable/podb/bc/cpu.max"
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if b, err := os.ReadFile(filepath.Join(root, quota)); err == nil && strings.TrimSpace(string(b)) == "100000 100000" {
			break
		}
		if time.Since(start) > time.Minute {
			t.Fatal("nothing is decided")
		}
	}
	var out bytes.Buffer
	if err := printState(t.Context(), cfg, "shop/b/c", &out); err != nil {
		t.Fatal(err)
	}
	var node hookstate.Node
	if err := json.Unmarshal(out.Bytes(), &node); err != nil || len(node.Pods) != 1 || len(node.Pods[0].Containers) != 1 {
		t.Fatalf("got %s, error %v", &out, err)
	}
	var got hookstate.Field
	for _, f := range node.Pods[0].Containers[0].Fields {
		if f.Name == "cfs_quota_us" {
			got = f
		}
	}
	want := hookstate.Field{Name: "cfs_quota_us", Asked: "120000", Plugin: "normalization", Decided: "100000", Enforced: true, File: quota, InForce: "100000 100000"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(want, "Since")); diff != "" || got.Since == nil {
		t.Error(diff)
	}

	for of, wrong := range map[string]string{
		"shop/none":     "404",
		"shop/b/none":   "404",
		"shop":          `"shop" is neither all nor namespace/pod nor namespace/pod/container`,
		"shop/b/c/more": "neither all",
		"/b":            "neither all",
	} {
		if err := printState(t.Context(), cfg, of, io.Discard); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: got error %v, want one with %q", of, err, wrong)
		}
	}
	for _, tt := range []struct {
		name, state, remote string
		want                int
	}{
		{"a process of the node by default", "", "127.0.0.1:1", http.StatusOK},
		{"a process of the node by its address", "state: Node, ", "192.0.2.7:1", http.StatusOK},
		{"by IPv6", "state: Node, ", "[::1]:1", http.StatusOK},
		{"a pod", "state: Node, ", "10.0.0.5:1", http.StatusForbidden},
		{"an address that is none", "state: Node, ", "pipe", http.StatusForbidden},
		{"a pod, if anyone may ask", "state: Anyone, ", "10.0.0.5:1", http.StatusOK},
		{"nobody", "state: None, ", "127.0.0.1:1", http.StatusNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, b := configured(t, strings.Replace(text, "http: {", "http: {"+tt.state, 1), slog.New(slog.DiscardHandler))
			r := httptest.NewRequest(http.MethodGet, "/state", nil)
			r.RemoteAddr = tt.remote
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 9808}))
			w := httptest.NewRecorder()
			b.modes[len(b.modes)-1].(*server).http.Handler.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.want)
			}
		})
	}
}

// apiServer keeps Events.
type apiServer struct {
	*httptest.Server
	caFile string

	mu     sync.Mutex
	events map[string]*corev1.Event // By path.
	// refuse is the status of all answers, 0 for none.
	refuse int
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{events: map[string]*corev1.Event{}, caFile: filepath.Join(t.TempDir(), "ca.crt")}
	s.Server = httptest.NewTLSServer(s)
	t.Cleanup(s.Close)
	if err := os.WriteFile(s.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o644); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var event corev1.Event
	switch known := s.events[r.URL.Path]; {
	case r.Header.Get("Authorization") != "Bearer secret":
		w.WriteHeader(http.StatusUnauthorized)
	case s.refuse != 0:
		w.WriteHeader(s.refuse)
	case r.Method == http.MethodPost && err == nil && json.Unmarshal(body, &event) == nil:
		s.events[r.URL.Path+"/"+event.Name] = &event
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPatch && known == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPatch && err == nil && r.Header.Get("Content-Type") == "application/merge-patch+json" && json.Unmarshal(body, known) == nil:
	default:
		w.WriteHeader(http.StatusBadRequest)
	}
}

func (s *apiServer) list() (events []corev1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		events = append(events, *e)
	}
	return events
}

// A container that a plugin refuses has an Event on its Pod, and no decision waits for it.
func TestARefusalIsAnEvent(t *testing.T) {
	api := newAPIServer(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	guest, err := guestbuild.Build(t.Context(), "../../hooks/testdata/scripted")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NODE_NAME", "node-1")
	var log bytes.Buffer
	_, a := configured(t, fmt.Sprintf(
		"cgroup: {root: %s}\nruntimeHook: {socket: %s}\nevents: {url: '%s', tokenFile: %s, caFile: %s}\nplugins:\n- {name: p, module: {file: %s}}\n",
		tree(t), filepath.Join(t.TempDir(), "hook.sock"), api.URL, token, api.caFile, guest,
	), slog.New(slog.NewTextHandler(&log, nil)))
	e := a.modes[0].(*events)
	request := func(stage abi.Stage, script string) *hookmsg.Request {
		return &hookmsg.Request{
			Stage: stage, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"}, Container: hookmsg.ContainerMeta{Name: "nginx", ID: "c1"},
			PodAnnotations: map[string]string{"p": script}, ContainerEnvs: []hookmsg.Env{{Name: "TOKEN", Value: "hunter2hunter2"}},
		}
	}
	refuse := func(stage abi.Stage, script string) {
		t.Helper()
		if _, err := a.engine.Decide(t.Context(), request(stage, script)); err == nil {
			t.Fatal("it is not refused")
		}
	}

	// Nothing takes them: the decisions do not wait.
	for range queuedEvents + 3 {
		refuse(abi.PreCreateContainer, "error no room for hunter2hunter2")
	}
	if n := e.dropped.Load(); n != 3 {
		t.Errorf("%d were dropped, want 3", n)
	}
	// At these stages a runtime goes on.
	for _, stage := range []abi.Stage{abi.Reconcile, abi.PostStopContainer} {
		refuse(stage, "error x")
	}
	if n := e.dropped.Load(); n != 3 {
		t.Errorf("%d were dropped, want 3: nothing was refused", n)
	}
	first := <-e.queue
	for len(e.queue) != 0 {
		<-e.queue
	}

	e.handle(t.Context(), first)
	again := first
	again.at = first.at.Add(eventAgain / 2) // Too soon for another request.
	e.handle(t.Context(), again)
	want := corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop"},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "u1"},
		Reason:         "RefusedByRuntimeHook", Type: corev1.EventTypeWarning, Count: 1,
		Message: `runtime hook "p" refused container "nginx" (status): plugin "p": hook returned Error: no room for xxxxxxxxxxxxxx`,
		Source:  corev1.EventSource{Component: component, Host: "node-1"}, ReportingController: component, ReportingInstance: "node-1",
	}
	check := func(want ...corev1.Event) {
		t.Helper()
		ignore := cmp.Options{cmpopts.IgnoreFields(want[0], "FirstTimestamp", "LastTimestamp", "Name"), cmpopts.SortSlices(func(a, b corev1.Event) bool { return a.Count < b.Count })}
		if diff := cmp.Diff(want, api.list(), ignore); diff != "" {
			t.Error(diff)
		}
	}
	check(want)
	again.at = first.at.Add(2 * eventAgain)
	e.handle(t.Context(), again)
	want.Count = 3
	check(want)

	// The API server has forgotten it.
	clear(api.events)
	again.at = first.at.Add(100 * eventAgain)
	e.handle(t.Context(), again)
	want.Count = 1
	check(want)

	// It takes no more: a line, and the next refusal tries it again.
	api.refuse = http.StatusForbidden
	other := first
	other.container = "sidecar"
	e.handle(t.Context(), other)
	if line := log.String(); e.failed.Load() != 1 || !strings.Contains(line, "the Event of a refusal was not written") || !strings.Contains(line, "403") {
		t.Errorf("%d have failed, the log is %s", e.failed.Load(), line)
	}
	api.refuse = 0
	e.handle(t.Context(), other)
	second := want
	second.Count, second.Message = 2, strings.Replace(want.Message, "nginx", "sidecar", 1)
	check(want, second)

	// A flood of Pods costs what is left of the burst, and bounded memory.
	for i := range 2 * knownEvents {
		flood := first
		flood.pod.UID = fmt.Sprint(i)
		e.handle(t.Context(), flood)
	}
	if n := len(api.list()); n > eventBurst || len(e.known) > knownEvents {
		t.Errorf("there are %d Events, and %d are known", n, len(e.known))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
}

func TestMistakesOfEvents(t *testing.T) {
	api := newAPIServer(t)
	none := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		name string
		cfg  apiserver.Config
		want string
	}{
		{"outside of a Pod", apiserver.Config{CAFile: api.caFile}, "url is missing"},
		{"without TLS", apiserver.Config{URL: "http://127.0.0.1:6443", CAFile: api.caFile}, "no address of https"},
		{"without certificates", apiserver.Config{URL: api.URL, CAFile: none}, "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := newEvents(tt.cfg, "", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
		})
	}
}
