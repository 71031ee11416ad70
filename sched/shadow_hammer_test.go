package sched_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/host/record"
	"github.com/kubewasm/kubewasm/host/shadow"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/compiled"
	"github.com/kubewasm/kubewasm/internal/testkit/guarded"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
	"github.com/kubewasm/kubewasm/sched"
)

// A plugin schedules, is recorded, swapped, shadowed, profiled, promoted and closed at the same
// time. No answer is lost or another one, what was recorded replays, and no memory stays.
func TestShadowsWhileASchedulerPluginIsSwappedAndRecorded(t *testing.T) {
	if strings.Contains(os.Getenv("KUBEWASM_DEBUG"), "process") {
		t.Skip("a guest in another process cannot be profiled")
	}
	file, err := guestbuild.Build(t.Context(), "../examples/sched/zone")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	modules := [][]byte{module, append(module[:len(module):len(module)], "\x00\x07\x05otherx"...)} // With one more custom section.
	rt, err := host.NewRuntime(compiled.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close(t.Context())
	dir, log := t.TempDir(), guarded.NewLog()
	var nodes framework.Nodes
	for _, zone := range []string{"a", "b", "c"} {
		nodes = append(nodes, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n" + zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}))
	}
	p, err := sched.Load(t.Context(), rt, sched.PluginConfig{
		Config: host.Config{
			Name: "zone", Module: host.ModuleConfig{Bytes: modules[0]}, Logger: slog.New(log), Limits: host.Limits{Instances: 8},
			Record: &record.Config{Path: dir, Rate: 0.05, SequenceCalls: 16, QueueBytes: 1 << 30},
		},
		DisableResultSharing: true,
	}, framework.Of(&framework.Handle{Snapshot: nodes}))
	if err != nil {
		t.Fatal(err)
	}

	// schedule asks about a Pod that wants a zone, about all nodes at once.
	schedule := func(name, zone string) {
		c := p.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{"kubewasm.dev/zones": zone}}})
		if _, s := p.PreFilter(c, nodes); s != nil {
			t.Errorf("%s: PreFilter: %v", name, s)
		}
		var all sync.WaitGroup
		for _, node := range nodes {
			all.Go(func() {
				want, is := "", node.Node().Labels[corev1.LabelTopologyZone]
				if is != zone {
					want = fmt.Sprintf("node is in zone %q, the Pod wants %s", is, zone)
				}
				if s := p.Filter(c, node); s.Message() != want {
					t.Errorf("%s on %s: %q, want %q", name, is, s.Message(), want)
				}
				if score, s := p.Score(c, node); score != 0 || s != nil {
					t.Errorf("%s on %s: score %d, %v", name, is, score, s)
				}
			})
		}
		all.Wait()
	}
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for g := range 2 {
		callers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					schedule(fmt.Sprintf("web-%d-%d", g, n), string(rune('a'+n%3)))
				}
			}
		})
	}
	var begun []*shadow.Shadow
	begin := func(cfg shadow.Config) *shadow.Shadow {
		t.Helper()
		cfg.Rate, cfg.CPU = 1, 1
		if err := p.BeginShadow(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		begun = append(begun, p.Shadow())
		return p.Shadow()
	}
	await := func(s *shadow.Shadow, is func(shadow.Status) bool) shadow.Status {
		t.Helper()
		for {
			switch status := s.Status(); {
			case is(status):
				return status
			case status.State == shadow.Stopped:
				t.Fatalf("the shadow has stopped: %s", status.Reason)
			}
			time.Sleep(time.Millisecond)
		}
	}
	rounds := 2
	if race.Enabled {
		rounds = 1
	}
	for round := range rounds {
		begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[round%2]}}) // Is replaced while it is loaded.
		s := begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[round%2]}})
		var swapping sync.WaitGroup
		swapping.Go(func() {
			if err := p.Swap(t.Context(), host.Bytes(modules[(round+1)%2]), ""); err != nil {
				t.Error(err)
			}
		})
		swapping.Go(func() {
			if err := p.BeginProfile(t.Context(), 2); err != nil {
				t.Error(err)
			}
		})
		if got := await(s, func(s shadow.Status) bool { return s.Compared >= 5 }); got.Same != got.Compared || got.Failed != 0 || got.Asked != 0 {
			t.Errorf("got %+v", got)
		}
		swapping.Wait()
		if err := s.Promote(t.Context()); err != nil {
			t.Error(err)
		}
		await(p.Profile(), func(shadow.Status) bool { return p.Profile().Profile() != nil })
		begun = append(begun, p.Profile())
	}
	s := begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[0]}, GuestConfig: host.GuestConfig(`{"defaultZones": 7}`)})
	for s.Status().State != shadow.Stopped { // The candidate refuses its configuration.
		time.Sleep(time.Millisecond)
	}
	s = begin(shadow.Config{Module: host.ModuleConfig{Bytes: modules[0]}})
	await(s, func(s shadow.Status) bool { return s.Compared >= 1 })
	close(stop)
	callers.Wait()
	var closing sync.WaitGroup
	closing.Go(func() {
		err := p.BeginShadow(t.Context(), shadow.Config{Module: host.ModuleConfig{Bytes: modules[0]}})
		if err != nil && !errors.Is(err, host.ErrClosed) {
			t.Error(err)
		}
	})
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	closing.Wait()
	for i, s := range append(begun, p.Shadow()) {
		select {
		case <-s.Done():
		default:
			t.Errorf("shadow %d still runs", i)
		}
	}
	if text := log.String(); strings.Contains(text, "close shadow") {
		t.Error(text)
	}
	if n := rt.MemoryInUse(); n != 0 {
		t.Errorf("the Runtime still has %d bytes", n)
	}
	replaying.Verify(t, rt, dir, 0, modules...)
}
