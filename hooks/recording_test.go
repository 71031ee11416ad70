package hooks_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
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
		module, err := p.Module.Source.Fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, module)
	}
	replaying.Verify(t, runtime, dir, calls*9/10, modules...)
}

// The environment of a container has data of Secrets, which the kubelet has resolved.
func TestTheEnvironmentIsNotRecorded(t *testing.T) {
	const password = "hunter2-very-secret"
	dir := t.TempDir()
	p := plugin(t, "a", scripted)
	p.Record = &record.Config{Path: dir}
	e, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{p}})
	if err != nil {
		t.Fatal(err)
	}
	req := script(map[string]string{"a": "cpu_shares 512", "kept": `{"kind":"Secret","data":{"p":"` + password + `"}}`})
	req.ContainerEnvs = []hookmsg.Env{{Name: "DSN", Value: "postgres://u:" + password + "@db"}}
	if _, err := e.Decide(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the recording has %d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(password)) || !bytes.Contains(data, []byte("cpu_shares 512")) {
			t.Errorf("the recording has %q", data)
		}
	}
}
