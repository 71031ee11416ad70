package informers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/objects"
)

var load = schema.GroupVersionResource{Group: "metrics.kubewasm.dev", Version: "v1", Resource: "load"}

// vector is an answer of Prometheus with the given series.
func vector(series ...string) string {
	return `{"status": "success", "data": {"resultType": "vector", "result": [` + strings.Join(series, ",") + `]}}`
}

func series(labels, value string) string {
	return fmt.Sprintf(`{"metric": {%s}, "value": [1785000000.5, %q]}`, labels, value)
}

// describeAll returns the objects in a line each.
func describeAll(list []unstructured.Unstructured) (lines []string) {
	for _, u := range list {
		lines = append(lines, strings.TrimSpace(fmt.Sprint(u.GetKind(), " ", u.GetNamespace(), "/", u.GetName(), "=", u.Object["value"], " ", u.Object["timestamp"], " ",
			strings.Join(slices.Sorted(maps.Keys(u.GetLabels())), ","))))
	}
	return lines
}

// TestQueries has the answers of the sources of values, and what a guest gets of them.
func TestQueries(t *testing.T) {
	byNode := host.ObjectQuery{Prometheus: "sum by (node) (load)", Service: "monitoring/prometheus:9090", Name: "node"}
	byPod := host.ObjectQuery{Prometheus: "load", Service: "monitoring/https:prometheus:9090", Name: "pod", Namespace: "namespace"}
	const prometheus, pods, queues = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query?query=sum+by+%28node%29+%28load%29",
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/hits?labelSelector=app%3Dweb", "/apis/external.metrics.k8s.io/v1beta1/namespaces/shop/length?"
	const at = " 2026-07-25T17:20:00Z"
	for name, test := range map[string]struct {
		query     host.ObjectQuery
		namespace string
		answer    string
		path      string
		want      []string
		err       string
	}{
		"a value of each node": {query: byNode, answer: vector(series(`"__name__": "load", "node": "n1", "zone": "a"`, "0.25"), series(`"node": "n2"`, "-1e3")), path: prometheus,
			want: []string{"load /n1=0.25" + at + " node,zone", "load /n2=-1000" + at + " node"}},
		"values that are no numbers": {query: byNode, answer: vector(series(`"node": "n1"`, "NaN"), series(`"node": "n2"`, "+Inf"), series(`"node": "n3"`, "-Inf"), series(`"node": "n4"`, "many"), series(`"node": "n5"`, "1e999"), series(`"node": "n6"`, "7")), want: []string{"load /n6=7" + at + " node"}},
		"names of no object":         {query: byNode, answer: vector(series(`"node": ""`, "1"), series(`"node": "a/b"`, "1"), series(`"node": ".."`, "1"), series(`"pod": "a"`, "1"))},
		"times of no year":           {query: byNode, answer: vector(`{"metric": {"node": "n1"}, "value": [1e300, "1"]}`, `{"metric": {"node": "n2"}, "value": [-1, "1"]}`, `{"metric": {"node": "n3"}, "value": ["0", "1"]}`)},
		"one value":                  {query: host.ObjectQuery{Prometheus: "sum(load)", Service: "a/b"}, answer: vector(series("", "3")), want: []string{"load /load=3" + at}},
		"values of a namespace": {query: byPod, namespace: "shop", answer: vector(series(`"pod": "a", "namespace": "shop"`, "1"), series(`"pod": "b", "namespace": "bank"`, "2"), series(`"pod": "c"`, "3")),
			want: []string{"load shop/a=1" + at + " namespace,pod"}},
		"a scalar":                 {query: byNode, answer: `{"status": "success", "data": {"resultType": "scalar", "result": [1785000000.5, "1"]}}`, err: `the answer of Prometheus is "success" with a "scalar", want a vector: `},
		"series over time":         {query: byNode, answer: `{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": [[1785000000.5, "1"]]}]}}`, err: `the answer of Prometheus is "success" with a "matrix", want a vector: `},
		"a vector of another form": {query: byNode, answer: `{"status": "success", "data": {"resultType": "vector", "result": [1]}}`, err: "read the answer of Prometheus: json: cannot unmarshal number into Go struct field .data.result of type informers.promSample"},
		"an error":                 {query: byNode, answer: `{"status": "error", "error": "too many samples"}`, err: `the answer of Prometheus is "error" with a "", want a vector: too many samples`},
		"no JSON":                  {query: byNode, answer: `<html>`, err: "read the answer of Prometheus: invalid character '<' looking for beginning of value"},
		"custom metrics":           {query: host.ObjectQuery{Custom: "pods/hits", Selector: "app=web"}, namespace: "shop", path: pods, answer: `{"items": [{"describedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1"}, "timestamp": "2026-07-25T17:20:00Z", "value": "1500m"}]}`, want: []string{"load shop/web-1=1.5" + at}},
		"numbers that take long to read": {query: host.ObjectQuery{External: "length", Name: "queue"}, namespace: "shop",
			answer: `{"items": [{"metricLabels": {"queue": "mail"}, "timestamp": "2026-07-25T17:20:00Z", "value": "7e-100"}, {"metricLabels": {"queue": "a"}, "value": "1e-10000000"}, {"metricLabels": {"queue": "b"}, "value": 1e-10000000}, {"metricLabels": {"queue": "c"}, "value": "0.` + strings.Repeat("0", 70) + `1"}]}`, want: []string{"load shop/mail=1e-09" + at + " queue"}},
		"external metrics": {query: host.ObjectQuery{External: "length", Name: "queue"}, namespace: "shop", path: queues,
			answer: `{"items": [{"metricLabels": {"queue": "mail"}, "timestamp": "2026-07-25T17:20:00Z", "value": "7"}, {"metricLabels": {"topic": "a"}, "value": "8"}]}`, want: []string{"load shop/mail=7" + at + " queue"}},
	} {
		t.Run(name, func(t *testing.T) {
			get := func(_ context.Context, path string, parameters url.Values) ([]byte, error) {
				if got := path + "?" + parameters.Encode(); test.path != "" && got != test.path {
					t.Errorf("asked for %s, want %s", got, test.path)
				}
				return []byte(test.answer), nil
			}
			list, err := runQuery(t.Context(), get, Scope{load, test.namespace, test.query})
			if got := fmt.Sprint(err); got != test.err && (err != nil || test.err != "") {
				t.Errorf("error %s, want %s", got, test.err)
			}
			if diff := cmp.Diff(test.want, describeAll(list)); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
		})
	}
}

// TestPolling holds that an informer gets the differences of what a source answers, and that a source
// that fails keeps its last answer for 5 minutes.
func TestPolling(t *testing.T) {
	value := func(name string, v int) unstructured.Unstructured {
		u := unstructured.Unstructured{Object: map[string]any{"value": int64(v)}}
		u.SetName(name)
		return u
	}
	gone := errors.New("it is gone")
	now := time.Unix(1_785_000_000, 0)
	var answer []unstructured.Unstructured
	var fails error
	var heard []string
	p := &poller{
		list:  func(context.Context) ([]unstructured.Unstructured, error) { return answer, fails },
		heard: func(err error) { heard = append(heard, fmt.Sprint(err)) },
		now:   func() time.Time { return now },
	}
	for _, step := range []struct {
		name    string
		after   time.Duration
		answer  []unstructured.Unstructured
		fails   error
		want    []string
		isHeard string
	}{
		{"a source that fails at first", 0, nil, gone, nil, "it is gone"},
		{"the first answer", time.Second, []unstructured.Unstructured{value("a", 1), value("b", 1)}, nil, []string{"ADDED a", "ADDED b"}, "<nil>"},
		{"a change", time.Second, []unstructured.Unstructured{value("a", 1), value("b", 2), value("c", 1)}, nil, []string{"ADDED c", "MODIFIED b"}, "<nil>"},
		{"a deletion", time.Second, []unstructured.Unstructured{value("a", 1), value("b", 2)}, nil, []string{"DELETED c"}, "<nil>"},
		{"two values of a name", time.Second, []unstructured.Unstructured{value("a", 3), value("a", 4)}, nil, nil, `there are two values of "/a"`},
		{"a source that fails", 4 * time.Minute, nil, gone, nil, "it is gone"},
		{"a source that has failed for long", time.Minute, nil, gone, []string{"DELETED a", "DELETED b"}, "it is gone"},
		{"more objects than a host keeps", time.Second, make([]unstructured.Unstructured, maxPolled+1), nil, nil, "100001 objects are more than 100000"},
		{"a source that is back", time.Second, []unstructured.Unstructured{value("a", 1)}, nil, []string{"ADDED a"}, "<nil>"},
	} {
		now, answer, fails = now.Add(step.after), step.answer, step.fails
		var got []string
		for _, e := range p.changes(t.Context()) {
			got = append(got, fmt.Sprint(e.Type, " ", e.Object.(*unstructured.Unstructured).GetName()))
		}
		slices.Sort(got)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: changes (-want +got):\n%s", step.name, diff)
		}
		if last := heard[len(heard)-1]; last != step.isHeard {
			t.Errorf("%s: heard %s, want %s", step.name, last, step.isHeard)
		}
	}
}

// TestMetricsOfAnAPIServer holds that a Lister has the objects of sources without a watch by two
// requests, and none of a source that refuses.
func TestMetricsOfAnAPIServer(t *testing.T) {
	asked := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/apis/metrics.k8s.io/v1beta1/nodes":
			fmt.Fprint(w, `{"kind": "NodeMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": [{"metadata": {"name": "n1"}, "timestamp": "2026-07-02T07:30:00Z", "window": "15s", "usage": {"cpu": "250m"}}]}`)
		case "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy/api/v1/query":
			fmt.Fprint(w, vector(series(`"node": "n1"`, "0.5")))
		default:
			http.Error(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}`, http.StatusForbidden)
		}
	}))
	defer server.Close()
	config := &rest.Config{Host: server.URL}
	for _, test := range []struct {
		grant host.ObjectGrant
		want  string
	}{
		{host.ObjectGrant{Resource: "metrics.k8s.io/v1beta1/nodes"}, `{"apiVersion":"metrics.k8s.io/v1beta1","kind":"NodeMetrics","metadata":{"name":"n1"},"timestamp":"2026-07-02T07:30:00Z","usage":{"cpu":"250m"},"window":"15s"}` + "\n"},
		{host.ObjectGrant{Resource: "metrics.kubewasm.dev/v1/load", Query: &host.ObjectQuery{Prometheus: "load", Service: "monitoring/prometheus:9090", Name: "node"}},
			`{"apiVersion":"metrics.kubewasm.dev/v1","kind":"load","metadata":{"labels":{"node":"n1"},"name":"n1"},"timestamp":"2026-07-25T17:20:00Z","value":0.5}` + "\n"},
		{host.ObjectGrant{Resource: "metrics.kubewasm.dev/v1/load", Query: &host.ObjectQuery{Prometheus: "load", Service: "other/prometheus:9090", Name: "node"}}, ""},
		{host.ObjectGrant{Resource: "metrics.k8s.io/v1beta1/pods"}, ""},
	} {
		l, err := ListerOf(config, test.grant)
		if err != nil {
			t.Fatal(err)
		}
		r := l.of[0]
		if err := r.Wait(t.Context(), func() bool { return r.HasSynced() && r.Ordered() }); err != nil {
			t.Fatal(err)
		}
		if synced, err := l.Synced(); !synced || err != nil {
			t.Errorf("%s: synced is %t, %v", test.grant.Resource, synced, err)
		}
		got := ""
		if o, err := l.Get("n1"); err == nil {
			got = string(o.(*objects.Kept).JSON)
		}
		if diff := cmp.Diff(strings.TrimSuffix(test.want, "\n"), strings.TrimSuffix(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.grant.Resource, diff)
		}
		l.Close()
	}
	if n := len(asked); n != 4 {
		t.Errorf("%d requests, want 4", n)
	}
}

// TestSourcesThatMisbehave holds that no redirect of a source gets a request, with the credentials of the
// program, and that the memory for an answer is bounded, that of an error too.
func TestSourcesThatMisbehave(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("asked with %q after a redirect", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	chunk := []byte(strings.Repeat(" ", 1<<20))
	const most = 2 * maxQueryBytes
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		err    string
	}{
		"a redirect":    {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }, "the source redirects"},
		"a long answer": {func(w http.ResponseWriter, _ *http.Request) { endless(t, w, chunk, most) }, "the answer has more than 16 MiB"},
		"a long error": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			endless(t, w, chunk, most)
		}, ""},
		// As Prometheus 3.5 answers.
		"a query that is refused": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"invalid parameter \"query\": 1:9: parse error: unclosed left parenthesis"}`)
		}, `Prometheus says "invalid parameter \"query\": 1:9: parse error: unclosed left parenthesis"`},
		"an error that is no JSON": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadRequest) }, "the server rejected our request"},
		"too many values": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, vector(slices.Repeat([]string{"{}"}, maxPolled+1)...))
		}, "there are more than 100000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			get, err := GetterOf(&rest.Config{Host: server.URL, BearerToken: "token"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = runQuery(t.Context(), get, Scope{load, "", host.ObjectQuery{Prometheus: "load", Service: "a/b"}})
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want one with %q", err, test.err)
			}
		})
	}
	_, err := runQuery(t.Context(), func(context.Context, string, url.Values) ([]byte, error) {
		return []byte(`{"items": [` + strings.Join(slices.Repeat([]string{"{}"}, maxPolled+1), ",") + "]}"), nil
	}, Scope{load, "shop", host.ObjectQuery{External: "length"}})
	if err == nil || !strings.Contains(err.Error(), "there are more than 100000 values") {
		t.Errorf("too many metrics: %v", err)
	}
}

// endless writes chunks until the client is gone, or has read most bytes.
func endless(t *testing.T, w http.ResponseWriter, chunk []byte, most int) {
	for n := 0; n < most; n += len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
	t.Error("the client reads on")
}
