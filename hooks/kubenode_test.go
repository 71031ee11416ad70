package hooks_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
)

// tiered returns the conformance guest, which decides by the node's annotation "tier", declaring
// some fields, or nothing.
func tiered(t *testing.T, fields ...string) host.Source {
	t.Helper()
	b, err := os.ReadFile("../abi/conformance/testdata/hook.wasm")
	if err == nil && fields != nil {
		b, err = metadata.Add(b, &metadata.Metadata{ABI: 1, Kinds: []string{"hook"}, Reads: fields})
	}
	if err != nil {
		t.Fatal(err)
	}
	return host.Bytes(b)
}

// onNode is a request that the guest decides by the node.
func onNode() *hookmsg.Request {
	return &hookmsg.Request{
		Stage: abi.Reconcile, Level: abi.LevelContainer, Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web", UID: "u1"},
		Container: hookmsg.ContainerMeta{Name: "nginx"}, PodLabels: map[string]string{"tier": "node"},
	}
}

func nodeOf(tier string) *hookmsg.Node {
	return &hookmsg.Node{Name: "node-1", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"tier": tier, "other": tier}}
}

func TestThePluginsDecideByTheNode(t *testing.T) {
	const batch, idle = 128, 2
	for _, tt := range []struct {
		name               string
		module, configured []string
		// unknown is the cause of the failure before the node is known, empty if there is none.
		unknown string
		// told is set if a change of the annotation is told, other if one of another annotation is.
		told, other bool
	}{
		{name: "declared by the module", module: []string{"pod_labels", "node_annotations[tier]"}, unknown: "node", told: true},
		{name: "declared by the configuration", configured: []string{"pod_labels", "node_annotations[tier]"}, unknown: "node", told: true},
		{name: "all of a map", configured: []string{"pod_labels", "node_annotations"}, unknown: "node", told: true, other: true},
		{name: "not declared", told: true, other: true},
		{name: "not read", configured: []string{"pod_labels"}},
		{name: "something else of it", configured: []string{"pod_labels", "node_labels"}, unknown: "node"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := engine(t, hooks.Config{Node: true, Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: tiered(t, tt.module...)}}, Reads: tt.configured}}})
			_, err := e.Decide(t.Context(), onNode())
			if (err != nil) != (tt.unknown != "") || err != nil && (hooks.CauseOf(err) != tt.unknown || !errors.Is(err, hooks.ErrNodeUnknown)) {
				t.Errorf("before the node is known: %v", err)
			}
			changed := func(since <-chan struct{}) bool {
				select {
				case <-since:
					return true
				default:
					return false
				}
			}
			first := e.Changed()
			e.SetNode(t.Context(), nodeOf("batch"))
			if !changed(first) && (tt.told || tt.unknown != "") {
				t.Error("the first node is not told")
			}
			shares := func(want int64) {
				t.Helper()
				d, err := e.Decide(t.Context(), onNode())
				if err != nil {
					t.Fatal(err)
				}
				if got := d.Fields()&hookmsg.FieldCPUShares != 0; got != tt.told || got && *d.Resources.CPUShares != want {
					t.Errorf("got %v, want %d shares", d, want)
				}
			}
			shares(batch)
			since := e.Changed()
			e.SetNode(t.Context(), nodeOf("batch"))
			if changed(since) {
				t.Error("the same node is told as another")
			}
			other := nodeOf("batch")
			other.Annotations["other"] = "changed"
			if e.SetNode(t.Context(), other); changed(since) != tt.other {
				t.Errorf("another annotation is told: %t", !tt.other)
			}
			since = e.Changed()
			if e.SetNode(t.Context(), nodeOf("idle")); changed(since) != tt.told {
				t.Errorf("the annotation is told: %t", !tt.told)
			}
			shares(idle)
			// A request may have a node of its own.
			own := onNode()
			own.Node = nodeOf("batch")
			if d, err := e.Decide(t.Context(), own); err != nil || tt.told && *d.Resources.CPUShares != batch {
				t.Errorf("got %v, error %v", d, err)
			}
		})
	}
}

// An engine that does not follow the node takes no plugin that declares that it reads it, also
// not later.
func TestWithoutANode(t *testing.T) {
	const refused = "it reads node_annotations, but the configuration does not follow the node"
	declared, undeclared := tiered(t, "node_annotations[tier]"), tiered(t)
	for name, c := range map[string]hooks.PluginConfig{
		"by the module":        {Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: declared}}},
		"by the configuration": {Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: undeclared}}, Reads: []string{"node_annotations[tier]"}},
	} {
		_, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{c}})
		if err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("declared %s: got error %v", name, err)
		}
	}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: undeclared}}}}})
	if err := e.Swap(t.Context(), "p", declared, ""); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("at a swap: got error %v", err)
	}
	if d, err := e.Decide(t.Context(), onNode()); err != nil || d.Fields() != 0 {
		t.Errorf("got %v, error %v", d, err)
	}
}

// requests keeps the requests that an observer was told.
type requests struct {
	hooks.Observer
	had []*hookmsg.Node
}

func (r *requests) Decided(_ context.Context, req *hookmsg.Request, _ time.Duration, _ *hookmsg.Decision, _ error) {
	r.had = append(r.had, req.Node)
}

// The request of the caller stays as it is.
func TestTheNodeIsNotWrittenIntoARequest(t *testing.T) {
	r := new(requests)
	e := engine(t, hooks.Config{Node: true, Observer: r, Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{Source: tiered(t)}}}}})
	e.SetNode(t.Context(), nodeOf("batch"))
	req := onNode()
	if _, err := e.Decide(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(onNode(), req); diff != "" || len(r.had) != 1 || r.had[0] != nil {
		t.Errorf("the observer had %v; %s", r.had, diff)
	}
}
