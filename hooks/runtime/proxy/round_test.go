package proxy_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/runtime/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// meanwhile is an observer that does something while a plugin decides: after its call number n.
type meanwhile struct {
	n int
	f func()
}

func (m *meanwhile) Called(_ context.Context, c host.CallEvent) {
	if c.Function != "hook" {
		return
	}
	if m.n--; m.n == 0 {
		m.f()
	}
}

func (*meanwhile) Built(context.Context, host.BuildEvent) {}
func (*meanwhile) CacheHits(string, string, uint64)       {}
func (*meanwhile) Refused(context.Context, string, error) {}
func (*meanwhile) Restarted(plugin string, replaced bool) {}

type listOf []standalone.Pod

func (l listOf) Pods(context.Context) ([]standalone.Pod, error) { return l, nil }

// A round of the standalone mode that decides while the kubelet updates a container leaves what was
// decided on the update: of the container, and of its pod.
func TestARoundLeavesALaterUpdate(t *testing.T) {
	const container = podCgroup + "/c1"
	pod := standalone.Pod{
		Namespace: "shop", Name: "web", UID: "u1", Annotations: map[string]string{"p": "divide_quota 2"}, QOSClass: abi.QOSBurstable,
		Resources:  &hookmsg.Resources{CFSQuotaUS: new(int64(80_000))},
		Containers: []standalone.Container{{Name: "nginx", ID: "c1", Resources: &hookmsg.Resources{CFSQuotaUS: new(int64(80_000))}}},
	}
	// A round asks about three classes, the pod and the container.
	for name, test := range map[string]struct {
		call   int
		update func(*hookmsg.Request)
		cgroup string
		want   string
	}{
		"a container": {5, func(*hookmsg.Request) {}, container, "100000 100000"},
		"a pod": {4, func(r *hookmsg.Request) {
			r.Level, r.Container = abi.LevelPod, hookmsg.ContainerMeta{}
		}, podCgroup, "100000 100000"},
	} {
		t.Run(name, func(t *testing.T) {
			during := new(meanwhile)
			a := newAgent(t, cgroup.EnforcerConfig{}, 0, during)
			for _, c := range []string{"kubepods", "kubepods/burstable", "kubepods/besteffort", podCgroup, container} {
				a.make(c)
			}
			r, err := standalone.New(standalone.Config{Engine: a.engine, State: a.state, Enforcer: a.enforcer, Discovery: listOf{pod}})
			if err != nil {
				t.Fatal(err)
			}
			// round asks again about all, and returns the limit that is in force then.
			round := func() string {
				t.Helper()
				if _, err := r.Sync(t.Context()); err != nil {
					t.Error(err)
				}
				return a.read(test.cgroup + "/cpu.max")
			}
			if got := round(); got != "40000 100000" {
				t.Fatalf("the limit is %q before the update, want half of what was asked", got)
			}
			during.n, during.f = test.call, func() {
				req := request(abi.PreUpdateContainerResources, "divide_quota 2")
				req.Resources = &hookmsg.Resources{CFSQuotaUS: new(int64(200_000))}
				test.update(req)
				if _, err := a.handler.Handle(t.Context(), req, test.cgroup); err != nil {
					t.Error(err)
				}
			}
			got := []string{round(), round()}
			if during.n >= 0 {
				t.Error("there was no update")
			}
			if diff := cmp.Diff([]string{test.want, test.want}, got); diff != "" {
				t.Errorf("limits after the rounds (-want +got):\n%s", diff)
			}
			a.handler.Wait()
		})
	}
}
