package hookstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/harness"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/guest/hooks"
	adapter "github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/internal/manifest"
	"github.com/kubewasm/kubewasm/internal/nativehost"
	"github.com/kubewasm/kubewasm/internal/objects/lookup"
)

// Each runs test twice, in subtests: "native" on plugin itself, and "wasm" on the guest compiled
// from the package of the test, in the host that components embed. Both get the same input and must
// give the same answers, so a test is written once.
//
// The directives of the package apply to the guest: a plugin that reads an undeclared field passes
// natively and fails as wasm. The guest is compiled in the directory of the test, which go test
// sets to that of the package. It must register a plugin like the one given. With -short only the
// native test runs.
func Each(t *testing.T, plugin any, test func(t *testing.T, p *Plugin)) {
	t.Helper()
	harness.Each(t, plugin, func(_ testing.TB, n *harness.Native, m *harness.Module) *Plugin {
		return &Plugin{native: n, module: m}
	}, test)
}

// Plugin is a runtime hook under test, see [Each].
type Plugin struct {
	native *harness.Native
	module *harness.Module
	loaded *adapter.Engine
	// on is the node of the plugin, nil for none.
	on *node
}

// node is the node on which a plugin is called.
type node struct {
	*hookmsg.Node
	// objects maps resources of the cluster to their object with the node's name, nil for a missing
	// one.
	objects map[string][]byte
}

// On returns the plugin on a node, in a cluster with the objects of manifests: one or more
// documents of YAML or JSON, each with apiVersion, kind and name. Requests without a Node get the
// Node of that name in manifests, and hooks.Get of the plugin returns the objects with that name.
// All kinds of Kubernetes are known, and so are custom resources among the objects.
func (h *Plugin) On(t testing.TB, name, manifests string) *Plugin {
	t.Helper()
	objects := &manifest.Objects{}
	if manifests != "" {
		var err error
		if objects, err = manifest.Read([]byte(manifests)); err != nil {
			t.Fatalf("read objects: %v", err)
		}
	}
	cluster, err := manifest.NewCluster(objects)
	if err != nil {
		t.Fatalf("read objects: %v", err)
	}
	on := &node{Node: &hookmsg.Node{Name: name}, objects: map[string][]byte{}}
	for _, g := range cluster.Grants() {
		list, err := cluster.Of(g.Resource)
		if err != nil {
			t.Fatal(err)
		}
		on.objects[g.Resource] = nil
		if i, ok := lookup.Find(list, "", name); ok {
			on.objects[g.Resource] = list[i].JSON
		}
	}
	if raw := on.objects["v1/nodes"]; raw != nil {
		var o corev1.Node
		if err := harness.Decode(string(raw), &o); err != nil {
			t.Fatalf("read Node: %v", err)
		}
		on.Labels, on.Annotations = o.Labels, o.Annotations
		on.Capacity, on.Allocatable = amounts(o.Status.Capacity), amounts(o.Status.Allocatable)
	}
	return &Plugin{native: h.native, module: h.module, on: on}
}

// amounts returns resources in the form of a request.
func amounts(list corev1.ResourceList) map[string]string {
	if list == nil {
		return nil
	}
	of := make(map[string]string, len(list))
	for name, q := range list {
		of[string(name)] = q.String()
	}
	return of
}

// GetObject answers a native plugin as the host answers a module.
func (n *node) GetObject(question string) []byte {
	parts := strings.Split(question, "\x00")
	object, known := n.objects[parts[0]]
	if !known {
		panic(fmt.Sprintf("the plugin's configuration does not name the objects %q", parts[0]))
	}
	if parts[1] != "" || parts[2] != n.Name {
		panic(fmt.Sprintf("a hook sees only the object of %q named as the node", parts[0]))
	}
	return object
}

// ListObjects panics, since no function of the SDK for hooks calls it.
func (*node) ListObjects(string) []byte { panic("a hook lists no objects") }

// Load returns the plugin in a module, which may be written in any language. path is a file, or a
// directory that kubewasm build compiles.
func Load(t testing.TB, path string) *Plugin {
	t.Helper()
	return &Plugin{module: harness.Load(t, path)}
}

// Configure returns the plugin with a configuration, YAML or JSON. The test fails
// if the plugin refuses it.
func (h *Plugin) Configure(t testing.TB, configuration string) *Plugin {
	t.Helper()
	p, err := h.TryConfigure(t, configuration)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TryConfigure is Configure for a plugin that may refuse its configuration. It returns the plugin's
// error.
func (h *Plugin) TryConfigure(t testing.TB, configuration string) (*Plugin, error) {
	t.Helper()
	data := harness.JSON(t, configuration)
	if h.native != nil {
		n, err := h.native.Configured(data)
		return &Plugin{native: n, on: h.on}, err
	}
	plugin := adapter.PluginConfig{Config: h.module.Config(data)}
	if h.on != nil {
		for _, resource := range slices.Sorted(maps.Keys(h.on.objects)) {
			plugin.Objects = append(plugin.Objects, host.ObjectGrant{Resource: resource})
		}
	}
	engine, err := adapter.NewEngine(context.Background(), h.module.Runtime, adapter.Config{
		Plugins: []adapter.PluginConfig{plugin},
		// A test does not run on a node, so every decision is granted.
		Audit: func(context.Context, *hookmsg.Request, string, *adapter.GrantError) {},
	})
	if err != nil {
		return nil, harness.Refusal(t, err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	if h.on != nil {
		for resource, object := range h.on.objects {
			if err := engine.SetObject(resource, h.on.Name, object); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &Plugin{module: h.module, loaded: engine, on: h.on}, nil
}

// Decision is the decision of a hook, in the form of codec/hookmsg. A nil field leaves a value
// unchanged.
//
// On a node, a decision beyond the resources of a cgroup is refused unless the operator grants it.
// The harness grants everything. To test whether some grants are enough for a decision, use the
// Check method of Grants in package hooks of the host.
type Decision = hookmsg.Decision

// Decide asks about one container of the Pod in manifest, YAML or JSON, before it is created; or,
// if container is empty, about the Pod before its sandbox is created. The error is the plugin's.
func (h *Plugin) Decide(t testing.TB, pod, container string) (*Decision, error) {
	t.Helper()
	object := &corev1.Pod{}
	if err := harness.Decode(pod, object); err != nil {
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

// Ask returns the decision about a request. The error is the plugin's.
func (h *Plugin) Ask(t testing.TB, request *hookmsg.Request) (*Decision, error) {
	t.Helper()
	if h.native == nil && h.loaded == nil {
		h = h.Configure(t, "")
	}
	if h.on != nil && request.Node == nil {
		own := *request
		own.Node, request = h.on.Node, &own
	}
	if h.native != nil {
		if h.on != nil {
			defer nativehost.UseLookups(h.on)()
		}
		encoded, err := nativehost.Guests.Decide(harness.As[hooks.Plugin](t, h.native.Plugin, "Decide"), request.Append(nil))
		if err != nil {
			return nil, err
		}
		decision, err := hookmsg.ParseDecision(encoded)
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
	if harness.IsTrap(err) {
		harness.Fail(t, err)
	}
	// The host's error ends with the plugin's text.
	_, reason, ok := strings.Cut(err.Error(), "hook returned Error: ")
	if !ok {
		t.Fatal(err)
	}
	return nil, errors.New(reason)
}
