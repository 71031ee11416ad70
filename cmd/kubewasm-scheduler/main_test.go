package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	restmetrics "k8s.io/client-go/tools/metrics"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/management"
	_ "github.com/kubewasm/kubewasm/internal/testkit/guarded"
	kube "github.com/kubewasm/kubewasm/sched/kube137"
)

func TestPlugins(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	text := `
profiles:
- schedulerName: a
  pluginConfig:
  - {name: zone, args: {module: {file: /plugins/zone.wasm}}}
  - {name: InterPodAffinity, args: {hardPodAffinityWeight: 5}}
- schedulerName: b
  pluginConfig:
  - {name: zone, args: {module: {file: /plugins/zone.wasm}, guestConfig: {}}}
  - {name: gang, args: {module: {https: "https://example.com/gang.wasm"}}}
  - {name: quota, args: {cluster: true}}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		args []string
		want []string
	}{
		"no arguments":                        {nil, nil},
		"no configuration":                    {[]string{"--v=2", "--secure-port", "10259"}, nil},
		"a configuration":                     {[]string{"--v=2", "--config=" + file, "--profiling"}, []string{"zone", "gang", "quota"}},
		"in an argument of its own":           {[]string{"--config", file}, []string{"zone", "gang", "quota"}},
		"after a flag with one dash":          {[]string{"-v=2", "--config", file}, []string{"zone", "gang", "quota"}},
		"with the program's own flags":        {[]string{"--plugin-cache-bytes=1000", "--config", file, "--plugin-registries", "r.yaml"}, []string{"zone", "gang", "quota"}},
		"the configuration of the repository": {[]string{"--config=config.yaml"}, []string{"zone", "image-locality", "gang"}},
		"help":                                {[]string{"--help"}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o, err := read(test.args)
			if err != nil || !slices.Equal(o.names(), test.want) {
				t.Errorf("got %+v, %v, want %q", o, err, test.want)
			}
		})
	}
	for _, args := range [][]string{{"--config=" + file + "x"}, {"--check-plugins"}, {"--plugin-cache-bytes=much"}} {
		if _, err := read(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// TestRegistersWhatKubeSchedulerDoes holds that the log can be JSON, and that the metrics of requests
// to the API server and of the version of Kubernetes are served.
func TestRegistersWhatKubeSchedulerDoes(t *testing.T) {
	logs := logsapi.NewLoggingConfiguration()
	logs.Format = logsapi.JSONLogFormat
	if err := logsapi.Validate(logs, nil, nil).ToAggregate(); err != nil {
		t.Error(err)
	}
	restmetrics.RequestResult.Increment(t.Context(), "200", "GET", "localhost")
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, family := range families {
		names = append(names, family.GetName())
	}
	for _, want := range []string{"rest_client_requests_total", "kubernetes_build_info"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no metric %s", want)
		}
	}
}

// configuration writes a configuration whose profiles have a plugin zone with a module each.
func configuration(t *testing.T, modules ...string) string {
	t.Helper()
	text := "profiles:\n"
	for i, module := range modules {
		text += fmt.Sprintf("- schedulerName: s%d\n  pluginConfig: [{name: zone, args: {module: {file: %q}, guestConfig: {}}}]\n", i, module)
	}
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func zone(t *testing.T) string {
	t.Helper()
	module, err := guestbuild.Build(t.Context(), "../../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// TestCheck has every mistake of the plugins reported before a scheduler starts.
func TestCheck(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	checked := func(modules ...string) error {
		o, err := read([]string{"--config", configuration(t, modules...)})
		if err != nil {
			t.Fatal(err)
		}
		return check(o.plugins, rt, slog.New(slog.DiscardHandler))
	}
	if err := checked(zone(t), zone(t)); err != nil {
		t.Error(err)
	}
	err = checked("/nowhere/a.wasm", zone(t), "/nowhere/b.wasm")
	for _, want := range []string{`profile "s0": `, "/nowhere/a.wasm", `profile "s2": `, "/nowhere/b.wasm"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}

// TestManagement lists the plugins of two profiles by different names, and rolls one back.
func TestManagement(t *testing.T) {
	rt, err := host.NewRuntime(host.RuntimeConfig{CacheDir: t.TempDir(), KeepModules: true})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(context.Background())
	module := zone(t)
	o, err := read([]string{"--config", configuration(t, module, module)})
	if err != nil {
		t.Fatal(err)
	}
	o.plugins[1].mode, o.plugins[1].failurePolicy = host.Monitor, host.Ignore
	loaded := &loadedPlugins{configured: o.plugins}
	for _, p := range o.plugins {
		made, err := loaded.factory(kube.New(p.name, rt))(t.Context(), &runtime.Unknown{Raw: p.args}, profile{name: p.profile})
		if err != nil {
			t.Fatal(err)
		}
		defer made.(kube.Plugin).Close(context.Background())
	}
	code, err := os.ReadFile(module)
	if err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "newer.wasm")
	if err := os.WriteFile(newer, append(code, "\x00\x03\x01x-"...), 0o600); err != nil { // With a custom section.
		t.Fatal(err)
	}
	of := loaded.members()[1].Guest
	first := of.Digest()
	if err := of.Swap(t.Context(), host.File(newer), ""); err != nil {
		t.Fatal(err)
	}
	routes := management.Serve(management.Auth{Token: func() (string, error) { return "t", nil }}, loaded.members)
	do := func(method, path string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		r.Header.Set("Authorization", "Bearer t")
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	var list struct{ Plugins []management.Info }
	if code, text := do(http.MethodGet, "/plugins"); code != http.StatusOK || json.Unmarshal([]byte(text), &list) != nil || len(list.Plugins) != 2 || list.Plugins[0].Name != "s0/zone" || list.Plugins[1].Name != "s1/zone" ||
		list.Plugins[0].Mode != host.Enforce || list.Plugins[0].FailurePolicy != host.Fail || list.Plugins[1].Mode != host.Monitor || list.Plugins[1].FailurePolicy != host.Ignore {
		t.Errorf("answer is %d %s", code, text)
	}
	if code, text := do(http.MethodPost, "/plugins/zone/rollback"); code != http.StatusNotFound {
		t.Errorf("answer is %d %s: that is no name of a profile", code, text)
	}
	if code, text := do(http.MethodPost, "/plugins/s1%2Fzone/rollback"); code != http.StatusOK || of.Digest() != first {
		t.Errorf("answer is %d %s, and %s serves", code, text, of.Digest())
	}
}

// profile is the scheduler of a profile.
type profile struct {
	fwk.Handle
	name string
}

func (p profile) ProfileName() string { return p.name }

// TestLog writes texts of guests as one line, by the level and the form of kube-scheduler's log at
// the time.
func TestLog(t *testing.T) {
	var out strings.Builder
	logger := slog.New(new(klogHandler)).With("plugin", "a\x1b[2J\nb")
	config := textlogger.NewConfig(textlogger.Output(&out), textlogger.Verbosity(0))
	klog.SetLoggerWithOptions(textlogger.NewLogger(config), klog.ContextualLogger(true))
	defer klog.ClearLogger()
	logger.Info("said", "text", "forged\nI1129 line", "err", fmt.Errorf("c\nd"))
	logger.Warn("the guest says", slog.Group("guest", "k\u009b2J\n", "v", slog.Group("more", "deep", "\u202ew")))
	logger.Debug("hidden")
	if err := config.Verbosity().Set("4"); err != nil {
		t.Fatal(err)
	}
	logger.Debug("shown")
	got := out.String()
	if strings.Count(got, "\n") != 3 || !strings.Contains(got, "said") || !strings.Contains(got, "shown") || !strings.Contains(got, "plugin=") || strings.ContainsAny(got, "\x1b\u009b\u202e") {
		t.Errorf("log is %q", got)
	}
}
