package sched_test

import (
	"context"
	"encoding/binary"
	"log/slog"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// loadSigned loads a guest of testdata for which more is set in the configuration.
func loadSigned(t *testing.T, guest string, more func(*sched.PluginConfig)) (p *sched.Plugin, logged *strings.Builder) {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	logged = new(strings.Builder)
	cfg := sched.PluginConfig{
		Config: host.Config{Name: "guest", Module: host.ModuleConfig{File: "testdata/" + guest + ".wasm"}, Logger: slog.New(slog.NewTextHandler(logged, nil)), Limits: host.Limits{Instances: 1}},
		Reads:  []string{"-pod.metadata.name", "-pod.metadata.uid", "pod.metadata.labels[rank]"},
	}
	if more != nil {
		more(&cfg)
	}
	p, err = sched.Load(t.Context(), rt, cfg, framework.Of(nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p, logged
}

// scripted returns the configuration of a guest with these functions, all of which succeed.
func scripted(functions ...abi.Function) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(abi.MaskOf(functions...))), 0, 0, 0, 0, 0, 0, 0, 0)
}

// TestTheHostSignsPodsForGuestsWhoseResultsDependOnThePod tells for which guests the host signs Pods,
// and why it does not for others.
func TestTheHostSignsPodsForGuestsWhoseResultsDependOnThePod(t *testing.T) {
	reads := func(paths ...string) func(*sched.PluginConfig) {
		return func(c *sched.PluginConfig) { c.Reads = paths }
	}
	with := func(functions ...abi.Function) func(*sched.PluginConfig) {
		return func(c *sched.PluginConfig) { c.GuestConfig = scripted(functions...) }
	}
	for name, c := range map[string]struct {
		guest  string
		more   func(*sched.PluginConfig)
		signs  bool
		logged string
	}{
		"a guest that leaves out which Pod it sees":              {guest: "signed", signs: true},
		"a guest without imports":                                {guest: "alike", signs: true},
		"a guest that reads nothing of Pods":                     {guest: "signed", more: reads("-pod.metadata.name", "-pod.metadata.uid"), signs: true},
		"a guest that sees the names of Pods":                    {guest: "signed", more: reads("-pod.metadata.uid", "pod.spec")},
		"a guest that sees the UIDs of Pods":                     {guest: "signed", more: reads("-pod.metadata.name", "pod.spec")},
		"a guest that declares fields of Nodes only":             {guest: "signed", more: reads("node.metadata.labels")},
		"a guest that declares nothing":                          {guest: "signed", more: reads()},
		"a guest that learns which nodes were reserved":          {guest: "unsigned", logged: "the guest has reserve"},
		"a guest that asks what runs on a node":                  {guest: "apart", signs: true},
		"a guest that counts Pods":                               {guest: "countpods", logged: "the guest imports "},
		"a plugin whose results are not shared":                  {guest: "signed", more: func(c *sched.PluginConfig) { c.DisableResultSharing = true }, logged: "results are not shared"},
		"a plugin with a clock":                                  {guest: "signed", more: func(c *sched.PluginConfig) { c.Grants = []string{host.GrantClock} }, logged: "results are not shared"},
		"a plugin with random numbers":                           {guest: "signed", more: func(c *sched.PluginConfig) { c.Grants = []string{host.GrantRandom} }, logged: "results are not shared"},
		"a plugin whose failures are ignored":                    {guest: "signed", more: func(c *sched.PluginConfig) { c.FailurePolicy = host.Ignore }, logged: "failurePolicy Ignore"},
		"a guest that prepares, filters and scores":              {guest: "scripted", more: with(abi.PreFilter, abi.Filter, abi.PreScore, abi.Score), logged: "the guest has prescore and imports node_names"},
		"a guest that is told of Pods that go away in a dry run": {guest: "scripted", more: with(abi.PreFilter, abi.Filter, abi.AddPod, abi.RemovePod), logged: "the guest has addpod"},
		"a guest that lets Pods wait":                            {guest: "scripted", more: with(abi.Filter, abi.Permit), logged: "the guest has permit"},
		"a guest that binds":                                     {guest: "scripted", more: with(abi.Filter, abi.Bind), logged: "the guest has bind"},
	} {
		t.Run(name, func(t *testing.T) {
			p, logged := loadSigned(t, c.guest, c.more)
			fragments, status := p.SignPod(ranked("a", "1"))
			if got := status == nil && len(fragments) == 1; got != c.signs {
				t.Errorf("signed is %t, want %t: %v %v", got, c.signs, fragments, status)
			}
			if !c.signs && status.Code() != abi.Unschedulable {
				t.Errorf("the status is %v, want one that keeps the Pod from being signed", status)
			}
			if got := logged.String(); !strings.Contains(got, c.logged) || c.logged == "" && strings.Contains(got, "batches") {
				t.Errorf("logged %q, want %q", got, c.logged)
			}
		})
	}
}

// ranked returns a Pod with a label.
func ranked(name, rank string) *corev1.Pod {
	p := annotated(name)
	p.Name, p.UID, p.Namespace, p.Labels = name, types.UID(name), "default", map[string]string{"rank": rank, "other": name}
	return p
}

// TestPodsThatDifferInWhatTheGuestReadsHaveDifferentSignatures changes each thing of a Pod that
// crosses to the guest, and some that do not.
func TestPodsThatDifferInWhatTheGuestReadsHaveDifferentSignatures(t *testing.T) {
	p, _ := loadSigned(t, "signed", func(c *sched.PluginConfig) {
		c.Reads = append(c.Reads, "pod.spec.priority", "pod.spec.containers.image", "pod.spec.tolerations")
	})
	sign := func(pod *corev1.Pod) string {
		fragments, status := p.SignPod(pod)
		if status != nil || len(fragments) != 1 {
			t.Fatalf("%v %v", fragments, status)
		}
		return fragments[0].Key + string(fragments[0].Value)
	}
	first := sign(ranked("a", "1"))
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		same   bool
	}{
		"the name, the UID, a label and the status": {func(p *corev1.Pod) {
			p.Name, p.UID, p.ResourceVersion, p.Labels["other"], p.Status.Phase = "b", "b", "7", "b", corev1.PodPending
		}, true},
		"the label":        {func(p *corev1.Pod) { p.Labels["rank"] = "2" }, false},
		"no label":         {func(p *corev1.Pod) { delete(p.Labels, "rank") }, false},
		"an empty label":   {func(p *corev1.Pod) { p.Labels["rank"] = "" }, false},
		"the namespace":    {func(p *corev1.Pod) { p.Namespace = "other" }, false},
		"the priority":     {func(p *corev1.Pod) { p.Spec.Priority = new(int32) }, false},
		"an image":         {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }, false},
		"a container more": {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more"}) }, false},
		"a toleration":     {func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "a"}} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := ranked("a", "1")
			if pod.Spec.Containers == nil {
				pod.Spec.Containers = []corev1.Container{{Name: "c"}}
				first = sign(pod)
			}
			c.change(pod)
			if got := sign(pod) == first; got != c.same {
				t.Errorf("the signatures are equal: %t, want %t", got, c.same)
			}
		})
	}
}

// TestAVersionThatReadsMoreOfPodsIsRefused swaps guests whose Pods the host has signed: those in the
// queue are not signed again.
func TestAVersionThatReadsMoreOfPodsIsRefused(t *testing.T) {
	module, err := os.ReadFile("testdata/alike.wasm")
	if err != nil {
		t.Fatal(err)
	}
	version := func(reads ...string) host.Source {
		b, err := metadata.Add(module, &metadata.Metadata{Name: "guest", Version: "1.0.0", ABI: 1, Kinds: []string{"scheduler"}, Reads: reads})
		if err != nil {
			t.Fatal(err)
		}
		return host.Bytes(b)
	}
	const name, uid = "-pod.metadata.name", "-pod.metadata.uid"
	for title, c := range map[string]struct {
		before, after host.Source
		want          string
	}{
		"a version that reads the same is taken":                  {version(name, uid, "pod.spec"), version("pod.spec", uid, name), ""},
		"a version that reads less is taken":                      {version(name, uid, "pod.spec"), version(name, uid), ""},
		"a version that reads more of Nodes is taken":             {version(name, uid), version(name, uid, "node.spec"), ""},
		"a version that reads more of Pods is refused":            {version(name, uid, "pod.spec"), version(name, uid, "pod.spec", "pod.metadata.labels"), "it reads pod.metadata.labels"},
		"a version that sees the names of Pods is refused":        {version(name, uid, "pod.spec"), version("pod.spec"), "it reads the name or the UID of a Pod"},
		"a version that declares nothing is refused":              {version(name, uid, "pod.spec"), host.Bytes(module), "it reads the name or the UID of a Pod"},
		"a version after one that was not signed for is taken":    {version("pod.spec"), version(name, uid, "pod.spec"), ""},
		"more of Pods after one that was not signed for is taken": {version("pod.spec"), version("pod.metadata.labels"), ""},
	} {
		t.Run(title, func(t *testing.T) {
			p, _ := loadSigned(t, "alike", func(cfg *sched.PluginConfig) { cfg.Module.Source, cfg.Reads = c.before, nil })
			err := p.Swap(t.Context(), c.after, "")
			if (err != nil) != (c.want != "") || err != nil && !strings.HasSuffix(err.Error(), ": "+c.want) {
				t.Errorf("got the error %v, want %q", err, c.want)
			}
		})
	}
}

// TestAGuestWhosePodsAreSignedReadsItsArgumentsAlone has Filter read a Pod of another cycle.
func TestAGuestWhosePodsAreSignedReadsItsArgumentsAlone(t *testing.T) {
	node := emptyNodes(1)[0]
	for name, c := range map[string]struct {
		reads []string
		want  string
	}{
		"signed by the host": {[]string{"-pod.metadata.name", "-pod.metadata.uid"}, "is not an argument of this call"},
		"not signed":         {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := loadSigned(t, "signed", func(cfg *sched.PluginConfig) { cfg.Reads, cfg.GuestConfig = c.reads, []byte("p") })
			var got []string
			for _, pod := range []*corev1.Pod{ranked("first", "1"), ranked("second", "2")} {
				cycle := p.Begin(pod)
				_, status := p.PreFilter(cycle, nil)
				if status == nil {
					status = p.Filter(cycle, node)
				}
				got = append(got, status.Message())
			}
			if got[0] != "" || !strings.Contains(got[1], c.want) || c.want == "" && got[1] != "" {
				t.Errorf("got the statuses %q, want none and %q", got, c.want)
			}
		})
	}
}
