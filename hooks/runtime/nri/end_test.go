package nri_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/runtime/internal/runtimetest"
	"github.com/kubewasm/kubewasm/host"
)

// A plugin that ends answers what the runtime has asked: NRI goes on without one that has
// gone, and would start the container undecided.
func TestAPluginThatEndsAnswersFirst(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy host.FailurePolicy
		// refused is in the error of the creation, which has none if it is empty.
		refused string
		shares  uint64
	}{
		{"a failure refuses the container", host.Fail, "deadline exceeded", 0},
		{"a failure is passed over", host.Ignore, "", 0},
		{"a failure repeats the last decision", host.KeepLast, "", 77},
	} {
		t.Run(c.name, func(t *testing.T) {
			node := runtimetest.NewRuntime(t)
			agent := runtimetest.NewAgent(t, runtimetest.Scripted, func(p *hooks.PluginConfig) {
				p.FailurePolicy, p.Limits.Timeout = c.policy, 300*time.Millisecond
			})
			socket := filepath.Join(t.TempDir(), "nri.sock")
			runtime := newPeer(t, socket)
			plugin, stop := run(t, agent, socket, node.Layout)
			runtime.wait(t)
			for start := time.Now(); plugin.Ready() != nil; time.Sleep(time.Millisecond) {
				if time.Since(start) > time.Minute {
					t.Fatal(plugin.Ready())
				}
			}
			path := node.Pod(abi.QOSBurstable, "u1")
			type answer struct {
				resp *api.CreateContainerResponse
				err  error
			}
			create := func(script string) answer {
				resp, err := runtime.CreateContainer(t.Context(), &api.CreateContainerRequest{Pod: sandbox(path, script), Container: nginx(path)})
				return answer{resp, err}
			}
			if got := create("cpu_shares 77"); got.err != nil {
				t.Fatal(got.err)
			}
			answered := make(chan answer, 1)
			go func() { answered <- create("loop") }()
			for start := time.Now(); plugin.Waiting() == 0; time.Sleep(100 * time.Microsecond) {
				if time.Since(start) > time.Minute {
					t.Fatal("the runtime asks nothing")
				}
			}
			stop()
			got := <-answered
			if c.refused != "" {
				if got.err == nil || !strings.Contains(got.err.Error(), c.refused) {
					t.Errorf("got %v and error %v, want one with %q", got.resp, got.err, c.refused)
				}
				return
			}
			if got.err != nil {
				t.Fatal(got.err)
			}
			if shares := got.resp.GetAdjust().GetLinux().GetResources().GetCpu().GetShares().GetValue(); shares != c.shares {
				t.Errorf("the container gets %d shares, want %d", shares, c.shares)
			}
		})
	}
}
