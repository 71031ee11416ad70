package hooks_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
)

// TestStandIns makes an engine although the module of a plugin is away: its failure policy decides
// about its requests alone, until the module is there.
func TestStandIns(t *testing.T) {
	source, err := guest(scripted)
	if err != nil {
		t.Fatal(err)
	}
	module, err := source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for policy, wants := range map[host.FailurePolicy]string{host.Fail: "is not available", host.Ignore: "", host.KeepLast: ""} {
		t.Run(string(policy), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "plugin.wasm")
			away := hooks.PluginConfig{
				Config: host.Config{Name: "away", Module: host.ModuleConfig{File: file}, Args: []string{"away"}}, FailurePolicy: policy,
				Levels: []abi.Level{abi.LevelContainer}, DecisionGrants: grants(), Owns: []string{"cpuset_cpus"},
			}
			cfg := hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "there", scripted), away}}
			if _, err := hooks.NewEngine(t.Context(), runtime, cfg); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("without StandIn: %v", err)
			}
			cfg.StandIn = true
			e := engine(t, cfg)
			if err := errors.Join(e.Warm(t.Context()), e.Lack(t.Context(), "this mode", "container_envs")); err != nil {
				t.Error(err)
			}
			if err := e.Unavailable(); !errors.As(err, new(*host.UnavailableError)) || !strings.Contains(err.Error(), `plugin "away" is not available`) || strings.Contains(err.Error(), "there") {
				t.Errorf("unavailable: %v", err)
			}
			req := webRequest()
			req.PodAnnotations["there"], req.PodAnnotations["away"] = "cpu_shares 300", "cpuset_cpus 0-1"
			decision, owned, err := e.DecideOwned(t.Context(), req)
			if (err == nil) != (wants == "") || err != nil && !strings.Contains(err.Error(), wants) {
				t.Errorf("a request of the plugin: %v, want %q", err, wants)
			}
			if err == nil && (*decision.Resources.CPUShares != 300 || decision.Resources.CPUSetCPUs != nil || owned != 0) {
				t.Errorf("decided is %+v, and owned %s", decision, owned)
			}
			if cause := hooks.CauseOf(err); err != nil && cause != "unavailable" {
				t.Errorf("the cause is %s", cause)
			}
			pod := &hookmsg.Request{Stage: abi.PreRunPodSandbox, Level: abi.LevelPod, Pod: req.Pod, PodAnnotations: req.PodAnnotations}
			if d, err := e.Decide(t.Context(), pod); err != nil || *d.Resources.CPUShares != 300 {
				t.Errorf("a request of the other plugin alone: %v", err)
			}

			changed := e.Changed()
			if err := os.WriteFile(file+".next", module, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(file+".next", file); err != nil {
				t.Fatal(err)
			}
			<-changed // So what was decided before is decided again.
			if d, err := e.Decide(t.Context(), req); err != nil || *d.Resources.CPUSetCPUs != "0-1" {
				t.Errorf("with the module: %v", err)
			}
			if err := e.Unavailable(); err != nil {
				t.Errorf("unavailable: %v", err)
			}
		})
	}
}
