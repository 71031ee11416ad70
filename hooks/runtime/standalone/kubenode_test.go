package standalone_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
)

// afterFirst calls a function once, when a container was decided on.
type afterFirst struct {
	hooks.Observer
	once sync.Once
	call func(ctx context.Context)
}

func (a *afterFirst) Decided(ctx context.Context, req *hookmsg.Request, _ time.Duration, _ *hookmsg.Decision, _ error) {
	if req.Level == abi.LevelContainer {
		a.once.Do(func() { a.call(ctx) })
	}
}

// The node changes while the round runs that has decided by the node before: another follows,
// long before the next resync.
func TestTheNodeChangesDuringARound(t *testing.T) {
	tier := func(name string) *hookmsg.Node {
		return &hookmsg.Node{Name: "node-1", Annotations: map[string]string{"tier": name}}
	}
	n := newNode(t)
	change := new(afterFirst)
	engine, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{
		Node: true, Observer: change,
		Plugins: []hooks.PluginConfig{{Config: host.Config{Name: "p", Module: host.ModuleConfig{File: "../../../abi/conformance/testdata/hook.wasm"}}, Levels: []abi.Level{abi.LevelContainer}, Reads: []string{"pod_labels", "node_annotations[tier]"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Close(context.Background()) })
	change.call = func(ctx context.Context) { engine.SetNode(ctx, tier("idle")) }
	engine.SetNode(t.Context(), tier("batch"))
	n.engine = engine
	_, container := n.make("web")
	web := pod("web", "")
	web.Labels = map[string]string{"tier": "node"}
	n.list(web)
	n.run(nil)
	n.within(soon, container, 2)
}
