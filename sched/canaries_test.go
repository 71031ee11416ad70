package sched_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries"
	"github.com/kubewasm/kubewasm/internal/testkit/canaries/parrot"
	"github.com/kubewasm/kubewasm/sched"
)

// TestRecordingsOfCyclesTellNoSecrets schedules Pods with canaries, by a plugin that repeats them in
// events, rejections and reasons, and another version of it. -canaries 100000 makes many calls.
func TestRecordingsOfCyclesTellNoSecrets(t *testing.T) {
	t.Parallel()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	file, err := guestbuild.Build(t.Context(), "testdata/parrot")
	if err != nil {
		t.Fatal(err)
	}
	module, err := host.File(file).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, odd := range map[string]bool{"values of letters": false, "values with escapes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := canaries.NewMaker(3)
			m.Odd = odd
			r := &canaries.Recording{Dir: t.TempDir(), Module: module, Calls: map[string]canaries.Call{}, Odd: odd}
			handle := &framework.Handle{Informers: framework.NewInformers(), Recorder: func(_, _ runtime.Object, _, _, _, _ string) {}}
			for n := range 5 {
				if err := handle.Informers[schema.GroupVersionResource{Version: "v1", Resource: "secrets"}].Add(m.Secret(fmt.Sprint("s", n))); err != nil {
					t.Fatal(err)
				}
			}
			for n := range 2 { // The third one waits no more.
				pod := m.Pod(fmt.Sprint("waiting", n))
				pod.UID = types.UID(fmt.Sprint("w", n))
				handle.Waiting = append(handle.Waiting, &framework.WaitingPod{Pod: pod})
			}
			cfg := sched.PluginConfig{Objects: []host.ObjectGrant{{Resource: "v1/secrets"}}, Config: host.Config{
				Name: "parrot", Module: host.ModuleConfig{File: file}, Limits: host.Limits{Instances: 1, Timeout: time.Minute},
				Grants: []string{sched.GrantWaitingPods, sched.GrantEvents, host.GrantObjects},
				Record: &record.Config{Path: r.Dir, QueueBytes: 1 << 30, MaxBytes: 8 << 30},
			}}
			if odd {
				cfg.Reset = host.ResetPerCall
			}
			p, err := sched.Load(t.Context(), rt, cfg, framework.Of(handle))
			if err != nil {
				t.Fatal(err)
			}
			node := emptyNodes(1)[0]
			for n := range *canaries.Calls / 2 {
				pod, call := podWith(m, fmt.Sprint("p", n))
				switch r.Calls[pod.Name] = call; call.Function {
				case "filter":
					p.Filter(p.Begin(pod), node)
				case "score":
					p.Score(p.Begin(pod), node)
				case "permit":
					p.Permit(p.Begin(pod), pod, "n0")
				case "postbind":
					p.PostBind(p.Begin(pod), pod, "n0")
				}
			}
			r.Made = m.Made
			if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Fatal(err)
			}
			r.Holds(t, rt, 1)
		})
	}
}

// podWith returns a Pod, most of which have canaries, and the call that it is made for.
func podWith(m *canaries.Maker, name string) (*corev1.Pod, canaries.Call) {
	pod := m.Pod(name)
	if m.IntN(4) == 0 {
		pod.Annotations, pod.Spec = nil, corev1.PodSpec{}
	}
	pod.UID = types.UID("uid-of-" + name)
	s := m.Script(name, "event", "event", "allow", "reject", "waiting", "get", "list", "log", "print", "deny")
	if m.IntN(50) == 0 {
		s = m.Ends(name, "log", "event")
	}
	pod.Labels = map[string]string{"script": s.String()}
	function := [...]string{"filter", "score", "permit", "postbind"}[m.IntN(4)]
	return pod, canaries.Call{Function: function, Object: name, Apply: parrot.OfScheduler(s, function)}
}
