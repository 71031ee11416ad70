package hooks_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
)

// A plugin that reads what a running mode does not know is refused by its name, at load
// and at a swap; one that does not say what it reads does not get it in any mode.
func TestLack(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), scripted)
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// A guest that decides nothing, and is compiled in no time.
	small, err := os.ReadFile("../abi/conformance/testdata/hook.wasm")
	if err != nil {
		t.Fatal(err)
	}
	declaring := func(fields ...string) host.Source {
		b, err := metadata.Add(small, &metadata.Metadata{ABI: 1, Kinds: []string{"hook"}, Reads: fields})
		if err != nil {
			t.Fatal(err)
		}
		return host.Bytes(b)
	}
	mode, fields := "the standalone mode with a file of pods", []string{"container_annotations", "container_envs"}
	for _, c := range []struct {
		name       string
		module     []string // What the module declares; nil for nothing.
		configured []string
		levels     []abi.Level
		stages     []abi.Stage
		want       string
	}{
		{name: "the module reads the environment", module: []string{"pod", "container_envs"}, want: "container_envs"},
		{name: "the module reads a variable", module: []string{"container_envs[GPU]"}, want: "container_envs"},
		{name: "the configuration says that it reads an annotation", configured: []string{"container_annotations[a]"}, want: "container_annotations"},
		{name: "the configuration says that it does not read them", module: []string{"container_envs"}, configured: []string{"pod_annotations"}},
		{name: "it reads something else", module: []string{"pod_annotations", "container"}},
		{name: "it is not asked about containers", module: []string{"container_envs"}, levels: []abi.Level{abi.LevelQOS, abi.LevelPod}},
		{name: "it is asked at a creation", module: []string{"container_envs"}, stages: []abi.Stage{abi.PreCreateContainer}},
		{name: "it says nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := host.Bytes(small)
			if c.module != nil {
				source = declaring(c.module...)
			}
			e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{
				Config: host.Config{Name: "gpu", Module: host.ModuleConfig{Source: source}}, Reads: c.configured, Levels: c.levels, Stages: c.stages,
			}}})
			err := e.Lack(t.Context(), mode, fields...)
			if c.want == "" && err != nil {
				t.Error(err)
			}
			if want := `plugin "gpu": it reads ` + c.want + ", which is unavailable in " + mode; c.want != "" && (err == nil || err.Error() != want) {
				t.Errorf("got error %v, want %s", err, want)
			}
		})
	}

	log := new(strings.Builder)
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: module}}, DecisionGrants: grants()}}, Logger: slog.New(slog.NewTextHandler(log, nil))})
	sees := func() string {
		t.Helper()
		req := script(map[string]string{"p": "sees"})
		req.Level, req.ContainerEnvs = abi.LevelContainer, []hookmsg.Env{{Name: "A", Value: "1"}}
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return d.ContainerAnnotations["sees"]
	}
	if got := sees(); !strings.Contains(got, " 1 ") {
		t.Errorf("the guest sees %q", got)
	}
	if err := e.Lack(t.Context(), mode, fields...); err != nil {
		t.Fatal(err)
	}
	if got := sees(); !strings.Contains(got, "web-0 nginx 0 ") {
		t.Errorf("after Lack the guest sees %q", got)
	}
	if !strings.Contains(log.String(), "plugin=p") || !strings.Contains(log.String(), "container_envs") {
		t.Errorf("the log has %q", log)
	}
	e = engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Bytes: small}}}}})
	if err := e.Lack(t.Context(), mode, fields...); err != nil {
		t.Fatal(err)
	}
	if err := e.Swap(t.Context(), "p", declaring("container_envs"), ""); err == nil || !strings.Contains(err.Error(), "it reads container_envs") {
		t.Errorf("a version that reads them: got error %v", err)
	}
	if err := e.Swap(t.Context(), "p", declaring("pod_annotations", "pod"), ""); err != nil {
		t.Error(err)
	}
	if err := e.Lack(t.Context(), mode, "container_env"); err == nil || !strings.Contains(err.Error(), "no field of a request") {
		t.Errorf("got error %v", err)
	}
}
