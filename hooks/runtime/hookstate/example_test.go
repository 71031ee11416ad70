package hookstate_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/hookstate"
	"github.com/kubewasm/kubewasm/host"
)

// An agent answers about its node beside its metrics and probes.
func Example() {
	ctx := context.Background()
	rt, err := host.NewRuntime(host.RuntimeConfig{})
	if err != nil {
		panic(err)
	}
	defer rt.Close(ctx)
	engine, err := hooks.NewEngine(ctx, rt, hooks.Config{}) // With the node's plugins.
	if err != nil {
		panic(err)
	}
	defer engine.Close(ctx)
	root, err := os.MkdirTemp("", "cgroup") // It is /sys/fs/cgroup on a node.
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(root)
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root, Version: cgroup.V2})
	if err != nil {
		panic(err)
	}
	defer applier.Close()
	state := new(cgroup.State)
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: state, Applier: applier})
	if err != nil {
		panic(err)
	}
	defer enforcer.Close()

	source, err := hookstate.New(hookstate.Config{Engine: engine, State: state, Enforcer: enforcer})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /state", source)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/state?namespace=shop&pod=web", nil))
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// 404 no such pod or container is known on this node
}
