package servicetest

import (
	"context"
	"errors"
	"testing"

	"github.com/kubewasm/kubewasm/abi/codes"
	_ "github.com/kubewasm/kubewasm/guest/service" // It sets nativehost.Guests.
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/service"
	"github.com/kubewasm/kubewasm/internal/harness"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/nativehost"
)

// Each runs test twice, in subtests: "native" on plugin itself, and "wasm" on the guest that is
// compiled from the package of the test, in the host that a component embeds. Both see and answer
// the same, so a test is written once.
//
// load is the function Load… of the generated host side, or a function that calls it with
// implementations of host services. plugin is the one that the package registers. The guest has
// every grant. It is compiled in the directory of the running test, which go test sets to that of
// the package. With -short only the native test runs.
func Each[S any](t *testing.T, plugin any, load func(ctx context.Context, rt *host.Runtime, cfg service.Config) (S, error), test func(t *testing.T, p *Plugin[S])) {
	t.Helper()
	harness.Each(t, plugin, func(_ testing.TB, n *harness.Native, m *harness.Module) *Plugin[S] {
		return &Plugin[S]{n, m, load, nil}
	}, test)
}

// Plugin is a plugin of a service under test, see [Each]. S is the type of its extension
// point on the host side.
type Plugin[S any] struct {
	native *harness.Native
	module *harness.Module
	load   func(context.Context, *host.Runtime, service.Config) (S, error)
	// cluster holds the objects of In; nil has none.
	cluster *manifest.Cluster
}

// In returns the plugin in a cluster that has the objects of manifests: one or more documents of YAML
// or JSON, each with apiVersion, kind and name. The plugin gets and lists these objects. All kinds of
// Kubernetes are known, and so are custom resources and values of metrics among the objects. Without
// In a plugin that looks objects up fails.
func (p *Plugin[S]) In(t testing.TB, manifests string) *Plugin[S] {
	t.Helper()
	objects, err, in := &manifest.Objects{}, error(nil), *p
	if manifests != "" {
		objects, err = manifest.Read([]byte(manifests))
	}
	if err == nil {
		in.cluster, err = manifest.NewCluster(objects)
	}
	if err != nil {
		t.Fatalf("read objects: %v", err)
	}
	return &in
}

// grant lets the plugin look the objects of In up.
func (p *Plugin[S]) grant(cfg service.Config) service.Config {
	if p.cluster != nil {
		cfg.Cluster, cfg.Objects = p.cluster, p.cluster.ServiceGrants()
	}
	return cfg
}

// Load returns the plugin in a module, which may be written in any language: a file, or a
// directory that kubewasm build compiles. load is as for [Each].
func Load[S any](t testing.TB, path string, load func(ctx context.Context, rt *host.Runtime, cfg service.Config) (S, error)) *Plugin[S] {
	t.Helper()
	return &Plugin[S]{module: harness.Load(t, path), load: load}
}

// Configure returns the plugin with a configuration, YAML or JSON, empty for none. The test
// fails if the plugin refuses it.
func (p *Plugin[S]) Configure(t testing.TB, configuration string) S {
	t.Helper()
	s, err := p.TryConfigure(t, configuration)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TryConfigure is Configure for a plugin that may refuse its configuration: the error is the
// plugin's.
func (p *Plugin[S]) TryConfigure(t testing.TB, configuration string) (S, error) {
	t.Helper()
	data := harness.JSON(t, configuration)
	if p.native != nil {
		return p.configureNative(t, data)
	}
	cfg := p.grant(service.Config{Config: p.module.Config(data)})
	s, err := p.load(context.Background(), p.module.Runtime, cfg)
	for grant := missingGrant(err); grant != ""; grant = missingGrant(err) {
		cfg.Grants = append(cfg.Grants, grant)
		s, err = p.load(context.Background(), p.module.Runtime, cfg)
	}
	return s, harness.Refusal(t, err)
}

// missingGrant returns a grant that the guest needs, empty if there is none.
func missingGrant(err error) string {
	var missing *host.ImportError
	if errors.As(err, &missing) {
		return missing.Grant
	}
	return ""
}

func (p *Plugin[S]) configureNative(t testing.TB, data []byte) (s S, err error) {
	t.Helper()
	n, err := p.native.Configured(data)
	if err != nil {
		return s, err
	}
	refs := new(int) // Refs are those of this plugin.
	s, err = p.load(context.Background(), nil, p.grant(service.Config{Config: host.Config{Name: "native", Module: host.ModuleConfig{Source: nativehost.Service{
		Has: nativehost.Guests.Has,
		Call: func(method string, request []byte, h nativehost.Objects) ([]byte, codes.Code) {
			defer nativehost.UseObjects(h, refs)()
			response, err := nativehost.Guests.Call(n.Plugin, method, request)
			if err != nil {
				text, code := nativehost.Guests.Failure(err)
				return []byte(text), code
			}
			return append([]byte(nil), response...), codes.OK
		},
	}}}}))
	if err != nil {
		t.Fatal(err)
	}
	return s, nil
}

// Read returns the message in YAML or JSON, whose fields have their names in JSON. The test fails
// if it has a field that the message lacks. M is a struct of the generated host side.
func Read[M any](t testing.TB, text string) *M {
	t.Helper()
	m := new(M)
	if err := harness.Decode(text, m); err != nil {
		t.Fatalf("read %T: %v", m, err)
	}
	return m
}
