package clustercache_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/admission/webhook/clustercache"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/publicerr"
)

var widgetKind = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// changing is an API server with Pods, with an aggregated group that never answers, and with
// Widgets whose CustomResourceDefinition and rights come and go.
type changing struct {
	mu sync.Mutex
	served
	// ended is closed when watches end that may not go on.
	ended chan struct{}
	looks int
}

// served is what the server has.
type served struct {
	// widgets is whether there is a CRD, namespaced its scope.
	widgets, namespaced bool
	// unavailable is whether the group of Widgets answers 503, forbidden whether nothing may
	// be listed.
	unavailable, forbidden bool
}

// set changes the server. The watches end, as those of what is gone.
func (c *changing) set(change func(*changing)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
	close(c.ended)
	c.ended = make(chan struct{})
}

func (c *changing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	state, ended := c.served, c.ended
	if strings.HasPrefix(r.URL.Path, "/apis/example.com/v1") && strings.Count(r.URL.Path, "/") == 3 {
		c.looks++
	}
	c.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	refuse := func(code int, reason metav1.StatusReason) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason})
	}
	resources := func(gv string, list ...metav1.APIResource) {
		answer(200, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv, APIResources: list})
	}
	path := r.URL.Path
	isWidget := strings.HasSuffix(path, "/widgets")
	switch {
	case path == "/api/v1":
		resources("v1", metav1.APIResource{Name: "pods/status", Kind: "Pod", Namespaced: true}, metav1.APIResource{Name: "pods", Kind: "Pod", Namespaced: true})
	case strings.HasPrefix(path, "/apis/example.com") && !state.widgets:
		refuse(404, metav1.StatusReasonNotFound)
	case path == "/apis/example.com/v1" && state.unavailable:
		refuse(503, metav1.StatusReasonServiceUnavailable)
	case path == "/apis/example.com/v1":
		resources("example.com/v1", metav1.APIResource{Name: "widgets", Kind: "Widget", Namespaced: state.namespaced})
	case isWidget && !state.widgets:
		refuse(404, metav1.StatusReasonNotFound)
	case (isWidget || strings.HasSuffix(path, "/pods")) && state.forbidden:
		refuse(403, metav1.StatusReasonForbidden)
	case r.URL.Query().Get("sendInitialEvents") != "":
		refuse(422, metav1.StatusReasonInvalid)
	case r.URL.Query().Get("watch") != "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	case isWidget || strings.HasSuffix(path, "/pods"):
		kind, apiVersion, metadata := "Pod", "v1", map[string]any{"name": "one", "namespace": "d", "resourceVersion": "5"}
		if isWidget {
			kind, apiVersion = "Widget", "example.com/v1"
			if !state.namespaced {
				delete(metadata, "namespace")
			}
		}
		answer(200, map[string]any{
			"kind": kind + "List", "apiVersion": apiVersion, "metadata": map[string]any{"resourceVersion": "10"},
			"items": []any{map[string]any{"kind": kind, "apiVersion": apiVersion, "metadata": metadata}},
		})
	default: // The aggregated group as well, and all lists of groups.
		refuse(503, metav1.StatusReasonServiceUnavailable)
	}
}

// Kinds, scopes and rights that come, change and go are seen without a restart. What is gone is
// an error that says so, and not an old answer.
func TestDiscoveryHeals(t *testing.T) {
	type step struct {
		name   string
		change func(*changing)
		kind   schema.GroupVersionKind
		// namespace is asked for, and want is an object in it or a part of the error.
		namespace, want string
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"a kind whose CRD comes later", []step{
			{"Pods", func(*changing) {}, podKind, "d", "d/one"},
			{"without the CRD", func(*changing) {}, widgetKind, "", "the cluster has no such kind"},
			{"with the CRD", func(c *changing) { c.widgets = true }, widgetKind, "", "/one"},
		}},
		{"a group that answers 503 for a while", []step{
			{"away", func(c *changing) { c.widgets, c.unavailable = true, true }, widgetKind, "", "the API server is busy"},
			{"back", func(c *changing) { c.unavailable = false }, widgetKind, "", "/one"},
			{"away again, which takes nothing that is known", func(c *changing) { c.unavailable = true }, widgetKind, "", "/one"},
		}},
		{"a CRD that is made again with another scope", []step{
			{"of the cluster", func(c *changing) { c.widgets = true }, widgetKind, "", "/one"},
			{"deleted", func(c *changing) { c.widgets = false }, widgetKind, "", "the cluster has no such kind"},
			{"with namespaces", func(c *changing) { c.widgets, c.namespaced = true, true }, widgetKind, "d", "d/one"},
			{"at once of the cluster again", func(c *changing) { c.namespaced = false }, widgetKind, "d", "it has no namespaces"},
		}},
		{"a right that is taken away and given back", []step{
			{"given", func(*changing) {}, podKind, "d", "d/one"},
			{"taken away", func(c *changing) { c.forbidden = true }, podKind, "d", "RBAC does not allow it"},
			{"given back", func(c *changing) { c.forbidden = false }, podKind, "d", "d/one"},
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			api := &changing{ended: make(chan struct{})}
			server := httptest.NewServer(api)
			t.Cleanup(server.Close)
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			c, err := clustercache.NewForConfig(ctx, &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			now := time.Now()
			c.SetClock(func() time.Time { mu.Lock(); defer mu.Unlock(); return now })
			for _, step := range test.steps {
				api.set(step.change)
				until(t, step.want, func() string {
					mu.Lock()
					now = now.Add(time.Second)
					mu.Unlock()
					list, err := c.List(t.Context(), step.kind, step.namespace, labels.Everything(), fields.Everything())
					if err != nil {
						if strings.Contains(publicerr.Words(err), step.want) {
							return step.want
						}
						return publicerr.Words(err)
					}
					var names []string
					for _, raw := range list {
						var o metav1.PartialObjectMetadata
						if err := json.Unmarshal(raw, &o); err != nil {
							t.Fatal(err)
						}
						names = append(names, o.Namespace+"/"+o.Name)
					}
					return strings.Join(names, " ")
				})
			}
		})
	}
}

// However often a kind is asked for, discovery is asked once in a while.
func TestDiscoveryIsBounded(t *testing.T) {
	api := &changing{ended: make(chan struct{})}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := clustercache.NewForConfig(t.Context(), &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c.SetClock(func() time.Time { return now })
	for range 100 {
		if _, err := c.Resource(t.Context(), widgetKind); err == nil {
			t.Fatal("a kind that is not there was found")
		}
	}
	if api.looks != 1 {
		t.Errorf("discovery was asked %d times at one time", api.looks)
	}
}

func TestAgesTellWhatIsNotWatched(t *testing.T) {
	api := &changing{ended: make(chan struct{})}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	c, err := clustercache.NewForConfig(t.Context(), &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000})
	if err != nil {
		t.Fatal(err)
	}
	pods := c.Keep(schema.GroupVersionResource{Version: "v1", Resource: "pods"}, "", host.ObjectQuery{})
	if err := pods.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	old := func() string {
		ages := c.Ages()
		if len(ages) != 1 || ages[0].Resource != "v1/pods" || ages[0].Namespace != "" {
			t.Fatalf("ages are %+v", ages)
		}
		if slices.ContainsFunc(ages, func(a clustercache.Age) bool { return a.Age > 0 }) {
			return "old"
		}
		return "watched"
	}
	until(t, "watched", old)
	api.set(func(c *changing) { c.forbidden = true })
	until(t, "old", old)
	if _, err := pods.Snapshot(); err == nil || !strings.Contains(publicerr.Words(err), "RBAC does not allow it") {
		t.Errorf("a snapshot of what may not be seen any more: %v", err)
	}
	api.set(func(c *changing) { c.forbidden = false })
	until(t, "watched", old)
	if got := snapshot(t, pods); got != "d/one=" {
		t.Errorf("got %s", got)
	}
	pods.Close()
	if ages := c.Ages(); len(ages) != 0 {
		t.Errorf("what nobody keeps has the ages %+v", ages)
	}
}
