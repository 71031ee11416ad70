package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/serving"
)

// server answers GETs of objects by their paths, 404 for others, and hands out what is posted.
func server(t *testing.T, objects map[string]any, status int, posted func(path string, body *json.Decoder)) *rest.Config {
	t.Helper()
	var mu sync.Mutex
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		object, ok := objects[r.URL.Path]
		switch {
		case r.Method == http.MethodPost:
			posted(r.URL.Path, json.NewDecoder(r.Body))
			object = map[string]any{}
		case status != http.StatusOK:
			w.WriteHeader(status)
			object = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(status), Reason: metav1.StatusReasonForbidden, Message: "forbidden"}
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			object = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 404, Reason: metav1.StatusReasonNotFound}
		}
		if err := json.NewEncoder(w).Encode(object); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

const validatingPath = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/kubewasm-webhook"

func TestWebhookConfigurationsThatAreNarrowerAreNamed(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), "../../examples/admission/required-labels")
	if err != nil {
		t.Fatal(err)
	}
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.WithoutCancel(t.Context()))
	rules := func(text string) (rules []admissionregistrationv1.RuleWithOperations) {
		if err := yaml.UnmarshalStrict([]byte(text), &rules); err != nil {
			t.Fatal(err)
		}
		return rules
	}
	cfg := admission.PluginConfig{Config: host.Config{Name: "owner", Module: host.ModuleConfig{File: file}, GuestConfig: host.GuestConfig(`{"labels": ["team"]}`)}}
	cfg.Match.Rules = rules(`[{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers]}, {operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]`)
	policy, err := admission.Load(t.Context(), rt, cfg)
	if err != nil {
		t.Fatal(err)
	}
	engine := admission.NewEngine(policy)
	defer engine.Close(context.WithoutCancel(t.Context()))
	webhook := func(rules []admissionregistrationv1.RuleWithOperations, labels *metav1.LabelSelector) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "validate.kubewasm.dev", Rules: rules, ObjectSelector: labels}},
		}
	}
	all := cfg.Match.Rules
	for name, test := range map[string]struct {
		objects map[string]any
		status  int
		want    string
	}{
		"all is sent":              {map[string]any{validatingPath: webhook(all, &metav1.LabelSelector{})}, 200, ""},
		"all is sent by patterns":  {map[string]any{validatingPath: webhook(rules(`[{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"]}]`), nil)}, 200, ""},
		"another version is sent":  {map[string]any{validatingPath: webhook(rules(`[{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: ["pods", "pods/*"]}, {operations: [CREATE], apiGroups: [apps], apiVersions: [v1beta1], resources: [deployments]}]`), nil)}, 200, ""},
		"a subresource is missing": {map[string]any{validatingPath: webhook(rules(`[{operations: [CREATE, UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}, {operations: [CREATE], apiGroups: [apps], apiVersions: [v1], resources: [deployments]}]`), nil)}, 200, `unsent="CREATE,UPDATE pods/ephemeralcontainers"`},
		"an operation is missing":  {map[string]any{validatingPath: webhook(rules(`[{operations: [CREATE], apiGroups: ["", apps], apiVersions: [v1], resources: [pods, pods/ephemeralcontainers, deployments]}]`), nil)}, 200, `unsent="UPDATE pods; UPDATE pods/ephemeralcontainers"`},
		"a label decides":          {map[string]any{validatingPath: webhook(all, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}})}, 200, "the objectSelector of kubewasm-webhook/validate.kubewasm.dev wants"},
		"there is none yet":        {nil, 200, ""},
		"they may not be read":     {nil, 403, "the webhook configurations are not compared with the policies"},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			c, err := newConfigurations(server(t, test.objects, test.status, nil), []string{"kubewasm-webhook"}, engine, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // The second time, nothing is new.
				if err := c.compare(t.Context()); err != nil {
					c.say("", slog.LevelInfo, "the webhook configurations are not compared with the policies", err.Error())
				}
			}
			got := log.String()
			if test.want == "" && got != "" || !strings.Contains(got, test.want) || strings.Count(got, "msg=") > 1 {
				t.Errorf("log is %s\nwant %s", got, test.want)
			}
			if test.objects == nil {
				return
			}
			c.engine = admission.NewEngine() // The policy is gone, and what was said of it is.
			if err := c.compare(t.Context()); err != nil || len(c.said) != 0 {
				t.Errorf("of no policy %v is kept, error %v", c.said, err)
			}
		})
	}
}

func TestEventsTellOfDenials(t *testing.T) {
	type written struct {
		path  string
		event corev1.Event
	}
	events := make(chan written, 10)
	cluster := server(t, nil, 200, func(path string, body *json.Decoder) {
		var w written
		w.path = path
		if err := body.Decode(&w.event); err != nil {
			t.Error(err)
		}
		events <- w
	})
	var log strings.Builder
	lines := &denials{Handler: slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})}
	logger := slog.New(lines).With("policy", "owner")
	denied := []any{"kind", "Pod", "group", "", "namespace", "shop", "name", "web", "operation", "CREATE", "user", "kim", "message", "no team"}
	logger.Info(serving.DeniedMessage, denied...) // Events are not on.
	stop, err := lines.writeEvents(cluster)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	logger.Info("another line", denied...)
	logger.Info(serving.DeniedMessage, denied...)
	got := <-events
	if got.path != "/api/v1/namespaces/shop/events" || got.event.InvolvedObject.Name != "web" || got.event.Reason != "DeniedByPolicy" || got.event.Type != corev1.EventTypeWarning ||
		got.event.Message != "policy owner denied CREATE of the Pod by kim: no team" {
		t.Errorf("got %+v", got)
	}
	nameless := append([]any{}, denied...)
	nameless[7] = ""
	logger.Info(serving.DeniedMessage, nameless...)
	if got := <-events; got.path != "/api/v1/namespaces/shop/events" || got.event.InvolvedObject.Kind != "Namespace" || got.event.InvolvedObject.Name != "shop" {
		t.Errorf("got %+v", got)
	}
	if log.String() != "" {
		t.Errorf("a log of warnings has %s", log.String())
	}
}
