package policies_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/admission"
	"github.com/kubewasm/kubewasm/admission/dialect"
	"github.com/kubewasm/kubewasm/admission/kubewarden"
	"github.com/kubewasm/kubewasm/admission/kubewarden/capabilities"
	regodialect "github.com/kubewasm/kubewasm/admission/rego"
	"github.com/kubewasm/kubewasm/admission/stellar"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/shadow"
)

// pluginConfig configures a policy of any dialect.
type pluginConfig struct {
	host.Config
	admission.PolicyRules
	AllowedToMutate bool
	Cluster         admission.Cluster
	Objects         []host.ObjectGrant
	Shadow          *shadow.Config
	// Gatekeeper is for policies in Rego, and HostCapabilities, Repositories and HostNames are for
	// those of Kubewarden.
	Gatekeeper bool
	capabilities.Scope
	Capabilities *capabilities.Provider
}

// config returns the configuration of a module.
func config(t testing.TB, name, file string) pluginConfig {
	t.Helper()
	if !strings.HasSuffix(file, ".wasm") {
		t.Fatalf("%s is no module", file)
	}
	return pluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{Source: host.File(file)}}}
}

// loadPlugin loads a policy with all dialects. What the configuration grants is for Kubewarden, unless
// the module is in Rego and only kinds of objects are granted.
func loadPlugin(ctx context.Context, rt *host.Runtime, cfg pluginConfig) (*admission.Plugin, error) {
	c := admission.PluginConfig{
		Config: cfg.Config, PolicyRules: cfg.PolicyRules, AllowedToMutate: cfg.AllowedToMutate, Cluster: cfg.Cluster, Objects: cfg.Objects, Shadow: cfg.Shadow,
		Dialects: append(kubewarden.New(kubewarden.Options{Cluster: cfg.Cluster, Capabilities: cfg.Capabilities}), regodialect.New(regodialect.Options{Cluster: cfg.Cluster}), stellar.New()),
	}
	source, err := rt.Source(cfg.Module, "module")
	if err != nil {
		return nil, err
	}
	module, err := source.Fetch(ctx)
	if err != nil {
		return nil, err
	}
	m, err := host.Inspect(module)
	if err != nil {
		return nil, err
	}
	member, own := kubewarden.Member, any(cfg.Scope)
	d := dialect.Of(m, c.Dialects)
	if asks := len(cfg.HostCapabilities)+len(cfg.Repositories)+len(cfg.HostNames) != 0; !asks && (cfg.Gatekeeper || d != nil && d.Member == regodialect.Member) {
		member, own = regodialect.Member, regodialect.Config{Gatekeeper: cfg.Gatekeeper, ContextAwareResources: cfg.ContextAwareResources}
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration: %w", err)
	}
	if string(text) != "{}" {
		c.Dialect = dialect.Config{member: text}
	}
	return admission.Load(ctx, rt, c)
}
