package sched_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// What the guest of testdata/keeps.wat does.
const (
	asksAboutAPod = 1 + iota
	asksAboutAllPods
	allowsAPod
	reportsAnEvent
	namesNodes
	looksUpAnObject
)

// keeping loads the guest of testdata/keeps.wat, which does something so often in each call, with
// so many bytes.
func keeping(t *testing.T, handle *framework.Handle, does, times, bytes uint32, limits host.Limits) *sched.Plugin {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	var config []byte
	for _, n := range []uint32{does, times, bytes} {
		config = binary.LittleEndian.AppendUint32(config, n)
	}
	limits.Instances = 1
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{Objects: []host.ObjectGrant{{Resource: "v1/configmaps"}}, Config: host.Config{
		Name: "keeping", Module: host.ModuleConfig{File: "testdata/keeps.wasm"}, GuestConfig: config, Limits: limits,
		Grants: []string{sched.GrantWaitingPods, sched.GrantEvents, host.GrantObjects},
	}}, framework.Of(handle))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// TestWhatTheHostKeepsForACall holds that questions, answers and results of one call have one
// budget, and that a question has a length that it can have.
func TestWhatTheHostKeepsForACall(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	waiting := []*framework.WaitingPod{{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}, Pending: []string{long}}}
	for name, test := range map[string]struct {
		does, times, bytes uint32
		kept               int
		want               string // A part of the failure, empty for none.
	}{
		"a question about a Pod":               {asksAboutAPod, 1, 4, 1 << 20, ""},
		"some thousand of them":                {asksAboutAPod, 4_000, 4, 1 << 20, ""},
		"a question without end":               {asksAboutAPod, 1, 8 << 20, 1 << 20, "the question has 8388608 bytes, more than 8192"},
		"questions without number":             {asksAboutAPod, 100_000, 4, 1 << 20, "limits.keptBytes"},
		"long questions":                       {asksAboutAPod, 200, 8 << 10, 1 << 20, "limits.keptBytes"},
		"an answer longer than the budget":     {asksAboutAllPods, 1, 0, 64 << 10, "limits.keptBytes"},
		"an answer that is asked for again":    {asksAboutAllPods, 1_000, 0, 1 << 20, ""},
		"a Pod to allow without end":           {allowsAPod, 1, 8 << 20, 1 << 20, "the question has 8388608 bytes, more than 8192"},
		"an event without end":                 {reportsAnEvent, 1, 8 << 20, 1 << 20, "an event has 8388608 bytes, more than"},
		"the names of nodes":                   {namesNodes, 1, 1 << 10, 1 << 20, ""},
		"empty names of nodes":                 {namesNodes, 1, 1 << 20, 16 << 20, "limits.keptBytes"},
		"objects that are not there, a few":    {looksUpAnObject, 1_000, 0, 1 << 20, ""},
		"objects that are not there, for ever": {looksUpAnObject, 100_000, 0, 1 << 20, "limits.keptBytes"},
	} {
		t.Run(name, func(t *testing.T) {
			handle := &framework.Handle{
				Waiting: waiting, Informers: framework.NewInformers(),
				Recorder: func(_, _ kruntime.Object, _, _, _, _ string) {},
			}
			p := keeping(t, handle, test.does, test.times, test.bytes, host.Limits{KeptBytes: test.kept})
			nodes := framework.Nodes{framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})}
			for range 2 { // The budget is that of each call.
				cycle := p.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pending"}})
				_, status := p.PreFilter(cycle, nodes)
				if status == nil {
					status = p.Filter(cycle, nodes[0])
				}
				switch got := fmt.Sprint(status.Message()); {
				case test.want == "" && status != nil:
					t.Errorf("failure %s", got)
				case !strings.Contains(got, test.want):
					t.Errorf("failure %q, want %q", got, test.want)
				}
			}
		})
	}
}

// TestMemoryOfACallThatAsks measures what the host has after a call that asks as much as it can
// with the default limits.
func TestMemoryOfACallThatAsks(t *testing.T) {
	p := keeping(t, &framework.Handle{Informers: framework.NewInformers()}, asksAboutAPod, 1<<31, 8<<10, host.Limits{})
	cycle := p.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pending"}})
	_, _ = p.PreFilter(cycle, nil)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	status := p.Filter(cycle, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}))
	runtime.ReadMemStats(&after)
	const most = 4 * 64 << 20 // All that was allocated, of which half was in use at a time.
	if got := after.TotalAlloc - before.TotalAlloc; status == nil || got > most {
		t.Errorf("the call has taken %d MiB of the host's memory, more than %d, and ended with: %s", got>>20, most>>20, status.Message())
	}
}
