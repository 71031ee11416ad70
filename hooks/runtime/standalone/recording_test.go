package standalone_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
)

// What an agent asks while pods come, change and go is recorded, and can be repeated.
func TestARecordingOfANodeReplays(t *testing.T) {
	const pods = 40
	dir, calls := t.TempDir(), replaying.Calls(t, 2000)
	module := source(t, scripted)
	n := newNode(t, hooks.PluginConfig{Config: host.Config{
		Name: "p", Module: host.ModuleConfig{Source: module}, Record: &record.Config{Path: dir, QueueBytes: 1 << 30},
	}})
	r, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Discovery: standalone.File(n.pods), Layout: n.layout})
	if err != nil {
		t.Fatal(err)
	}
	cgroups := map[string]string{}
	// A pod and its container are asked about in each pass, since the script is another.
	for pass := range calls/(2*pods) + 1 {
		var listed []corev1.Pod
		gone := cgroups
		cgroups = map[string]string{}
		for i := range pods {
			name := fmt.Sprint("web-", i)
			if (pass+i)%7 == 0 {
				name = fmt.Sprintf("web-%d-%d", i, pass) // In the place of the one before.
			}
			cgroups[name], _ = n.make(name)
			delete(gone, name)
			listed = append(listed, pod(name, fmt.Sprint("cpu_shares ", 100+(31*pass+i)%9000)))
		}
		n.list(listed...)
		for _, cgroup := range gone {
			n.tree.Remove(cgroup)
		}
		if _, err := r.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.engine.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	bytes, err := module.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	replaying.Verify(t, runtime, dir, calls, bytes)
}
