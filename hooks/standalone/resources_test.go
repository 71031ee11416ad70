package standalone_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/standalone"
	"github.com/kubewasm/kubewasm/host"
)

// What the kubelet writes to the cgroup of a pod and asks for its containers, by
// ResourceConfigForPod and generateLinuxContainerResources of k8s.io/kubernetes v1.37.1.
func TestResourcesOfAPod(t *testing.T) {
	resources := func(shares int64, quota, memory *int64) *hookmsg.Resources {
		return &hookmsg.Resources{CPUShares: &shares, CFSQuotaUS: quota, CFSPeriodUS: n(100_000), MemoryLimitBytes: memory}
	}
	const status = `
status:
  qosClass: Burstable
  initContainerStatuses: [{name: init, containerID: "x://i", state: {terminated: {}}}, {name: sidecar, containerID: "x://s", state: {running: {}}}]
  containerStatuses: [{name: a, containerID: "x://a", state: {running: {}}}, {name: b, containerID: "x://b", state: {running: {}}}]
`
	for _, c := range []struct {
		name, spec, status string
		pod                *hookmsg.Resources
		containers         map[string]*hookmsg.Resources
	}{
		{
			name: "two containers", spec: `containers: [{name: a, resources: {requests: {cpu: 250m}, limits: {cpu: 500m, memory: 1Mi}}}, {name: b, resources: {limits: {cpu: "1", memory: 2Mi}}}]`,
			pod:        resources(1280, n(150_000), n(3<<20)),
			containers: map[string]*hookmsg.Resources{"a": resources(256, n(50_000), n(1<<20)), "b": resources(1024, n(100_000), n(2<<20))},
		},
		{
			name: "one of them without limits", spec: `containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}, {name: b}]`,
			pod:        resources(512, nil, nil),
			containers: map[string]*hookmsg.Resources{"a": resources(512, n(50_000), n(1<<20)), "b": resources(2, nil, nil)},
		},
		{
			name: "limits of the pod's own", spec: `
resources: {requests: {cpu: 500m}, limits: {cpu: "2", memory: 4Mi}}
containers: [{name: a, resources: {requests: {cpu: 250m}, limits: {cpu: 500m}}}, {name: b}]`,
			pod:        resources(512, n(200_000), n(4<<20)),
			containers: map[string]*hookmsg.Resources{"a": resources(256, n(50_000), n(4<<20)), "b": resources(2048, n(200_000), n(4<<20))},
		},
		{
			name: "an overhead", spec: `
overhead: {cpu: 250m, memory: 1Mi}
containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			pod:        resources(768, n(75_000), n(2<<20)),
			containers: map[string]*hookmsg.Resources{"a": resources(512, n(50_000), n(1<<20))},
		},
		{
			name: "a sidecar and an init container that takes more", spec: `
initContainers: [{name: init, resources: {limits: {cpu: 100m, memory: 8Mi}}}, {name: sidecar, restartPolicy: Always, resources: {limits: {cpu: 250m, memory: 1Mi}}}]
containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			pod:        resources(768, n(75_000), n(8<<20)),
			containers: map[string]*hookmsg.Resources{"sidecar": resources(256, n(25_000), n(1<<20)), "a": resources(512, n(50_000), n(1<<20))},
		},
		{
			name: "a resize that is deferred", spec: `containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			status:     "  conditions: [{type: PodResizePending, status: \"True\", reason: Deferred}]\n",
			containers: map[string]*hookmsg.Resources{"a": nil},
		},
		{
			name: "a resize that is done", spec: `containers: [{name: a, resources: {limits: {cpu: 500m, memory: 1Mi}}}]`,
			status: "  conditions: [{type: PodResizeInProgress, status: \"True\"}]\n",
			pod:    resources(512, n(50_000), n(1<<20)), containers: map[string]*hookmsg.Resources{"a": resources(512, n(50_000), n(1<<20))},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "kind: Pod\nmetadata: {name: p, uid: u}\nspec:\n  " + strings.ReplaceAll(strings.TrimSpace(c.spec), "\n", "\n  ") + status + c.status
			pods, err := standalone.File(write(t, text)).Pods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatalf("%v: %s", err, text)
			}
			got := map[string]*hookmsg.Resources{}
			for _, container := range pods[0].Containers {
				got[container.Name] = container.Resources
			}
			if diff := cmp.Diff(c.pod, pods[0].Resources); diff != "" {
				t.Errorf("the pod: %s", diff)
			}
			if diff := cmp.Diff(c.containers, got); diff != "" {
				t.Errorf("the containers: %s", diff)
			}
		})
	}
	// The kubelet counts the pod's own resources for the class, too.
	pods, err := standalone.File(write(t, `{kind: Pod, metadata: {uid: u}, spec: {resources: {limits: {cpu: "1", memory: 1Mi}}, containers: [{name: a}]}}`)).Pods(t.Context())
	if err != nil || len(pods) != 1 || pods[0].QOSClass != hookmsg.QOSGuaranteed {
		t.Errorf("got %v, error %v", pods, err)
	}
}

// A plugin that reads what no Pod has is refused by its name, and with a list that has
// it, is not.
func TestAPluginThatReadsWhatIsNotKnown(t *testing.T) {
	kubelet, err := standalone.Kubelet(standalone.KubeletConfig{})
	if err != nil {
		t.Fatal(err)
	}
	file := standalone.File(write(t, "kind: PodList"))
	for name, c := range map[string]struct {
		standalone.Discovery
		want string
	}{
		"a file":      {file, `plugin "gpu": it reads container_envs, which the standalone mode with a file of pods does not know`},
		"the kubelet": {kubelet, `plugin "gpu": it reads container_envs, which the standalone mode with the kubelet's pods endpoint does not know`},
		"another":     {claims{Discovery: file}, ""},
	} {
		n := newNode(t, hooks.PluginConfig{Config: host.Config{Name: "gpu", Source: source(t, scripted)}, Reads: []string{"pod", "container_envs[GPU]"}})
		_, err := standalone.New(standalone.Config{Engine: n.engine, State: n.state, Enforcer: n.enforcer, Layout: n.layout, Discovery: c.Discovery})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %s", name, err, c.want)
		}
	}
}
