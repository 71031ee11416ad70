package hooks_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

// Decisions about pods that come, change and go are recorded, and can be repeated.
func TestARecordingOfDecisionsReplays(t *testing.T) {
	dir, calls := t.TempDir(), replaying.Calls(t, 3000)
	a, b := plugin(t, "a", scripted), plugin(t, "cpu", cpuFromAnnotation)
	for _, p := range []*hooks.PluginConfig{&a, &b} {
		p.Limits.Instances = 2
		p.Record = &record.Config{Path: dir, QueueBytes: 1 << 30}
	}
	b.Order = 1
	e, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{a, b}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range calls / 8 {
				line := fmt.Sprint("cpuset_cpus ", i%64)
				if i%50 == 49 {
					line = "panic now"
				}
				req := script(map[string]string{"a": line, "cpu": fmt.Sprint(i)})
				req.Pod.Name = fmt.Sprintf("web-%d-%d", g, i)
				_, _ = e.Decide(t.Context(), req) // Guests that trap fail it.
			}
		})
	}
	all.Wait()
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var modules [][]byte
	for _, p := range []hooks.PluginConfig{a, b} {
		module, err := p.Source.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, module)
	}
	replaying.Verify(t, runtime, dir, calls*9/10, modules...)
}
