//go:build !wasip1

package guesttest

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/guest/hooks"
	adapter "github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/internal/manifest"
)

// Hook is a runtime hook under test, see [Each].
type Hook struct {
	native *native
	module *module
	loaded *adapter.Engine
}

// Configure returns the plugin with a configuration, YAML or JSON. The test fails
// if the plugin refuses it.
func (h *Hook) Configure(t testing.TB, configuration string) *Hook {
	t.Helper()
	p, err := h.TryConfigure(t, configuration)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryConfigure is Configure for a plugin that may refuse its configuration: the
// error is what it says.
func (h *Hook) TryConfigure(t testing.TB, configuration string) (*Hook, error) {
	t.Helper()
	data := json(t, configuration)
	if h.native != nil {
		n, err := h.native.configured(data)
		return &Hook{native: n}, err
	}
	engine, err := adapter.NewEngine(context.Background(), h.module.rt, adapter.Config{
		Plugins: []adapter.PluginConfig{{Module: h.module.config(data)}},
		// A test is no node: it takes what a decision needs from Decision.
		Audit: func(context.Context, *hookpb.Request, string, *adapter.GrantError) {},
	})
	if err != nil {
		return nil, refusal(t, err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	return &Hook{nil, h.module, engine}, nil
}

// Decision is what a hook decides, in the form of codec/hookpb: nil is untouched.
//
// What a plugin decides beyond the resources of a cgroup is refused on a node unless
// its operator grants it. The harness grants everything: the Check method of Grants
// in package hooks of the host tells whether some grants are enough for a decision.
type Decision = hookpb.Decision

// Decide asks about one container of the Pod in manifest, YAML or JSON, before it
// is created; or, if container is empty, about the Pod before its sandbox is. The
// error is the plugin's.
func (h *Hook) Decide(t testing.TB, pod, container string) (*Decision, error) {
	t.Helper()
	object := &corev1.Pod{}
	if err := decode(pod, object); err != nil {
		t.Fatalf("read Pod: %v", err)
	}
	for _, request := range manifest.HookRequests(object) {
		if request.Container.Name == container {
			return h.Ask(t, request)
		}
	}
	t.Fatalf("the Pod has no container %q", container)
	return nil, nil
}

// Ask asks what request says. The error is the plugin's.
func (h *Hook) Ask(t testing.TB, request *hookpb.Request) (*Decision, error) {
	t.Helper()
	if h.native == nil && h.loaded == nil {
		h = h.Configure(t, "")
	}
	if h.native != nil {
		encoded, err := hooks.Decide(as[hooks.Plugin](t, h.native.plugin, "Decide"), hookpb.AppendRequest(nil, request))
		if err != nil {
			return nil, err
		}
		decision, err := hookpb.ParseDecision(encoded)
		if err != nil {
			t.Fatal(err)
		}
		return decision, nil
	}
	decision, err := h.loaded.Decide(context.Background(), request)
	if err == nil {
		if decision == nil {
			decision = &Decision{}
		}
		return decision, nil
	}
	if isTrap(err) {
		fail(t, err)
	}
	// The plugin's words stand behind what the host knows of the call.
	_, reason, ok := strings.Cut(err.Error(), "hook returned Error: ")
	if !ok {
		t.Fatal(err)
	}
	return nil, errors.New(reason)
}
