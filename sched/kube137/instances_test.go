package kube137_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
)

// unsharedArgs has the guest called for each node.
const unsharedArgs = `, "disableResultSharing": true`

// TestADearPreFilterRunsOnce filters a cluster on sixteen goroutines, with more instances
// than one: to run PreFilter on a second takes longer than all that Filter has to say.
func TestADearPreFilterRunsOnce(t *testing.T) {
	s := newSpreading(t, 300, 4, unsharedArgs)
	for i := range 3 {
		state := s.begin(t)
		onNodes(s.nodes, func(n fwk.NodeInfo) { s.filter(t.Context(), state, n) })
		if got := s.calls.of(abi.PreFilter); got != i+1 {
			t.Fatalf("PreFilter ran %d times in %d cycles", got, i+1)
		}
	}
	if got := s.calls.of(abi.Filter); got != 3*300 {
		t.Errorf("Filter ran %d times", got)
	}
	if stats := kube137.Stats(s.p); stats.Waiting != 0 || stats.Idle != stats.Instances {
		t.Errorf("instances leaked: %+v", stats)
	}
}

// meeting is an observer that makes two calls of Filter wait for one another once it is
// open.
type meeting struct {
	callCounter
	open bool
	met  sync.WaitGroup
}

func (m *meeting) Called(ctx context.Context, call host.CallEvent) {
	m.callCounter.Called(ctx, call)
	if m.open && call.Function == abi.Filter.String() {
		m.met.Done()
		m.met.Wait()
	}
}

// TestADearPreFilterRunsAgainWhenItPaysOff holds that two goroutines filter at the same time
// once Filter has taken as long as PreFilter.
func TestADearPreFilterRunsAgainWhenItPaysOff(t *testing.T) {
	m := &meeting{}
	s := newSpreading(t, 300, 2, unsharedArgs, func(c *sched.PluginConfig) { c.Observer = m })
	state := s.begin(t)
	for range 50 {
		for _, n := range s.nodes {
			s.filter(t.Context(), state, n)
		}
	}
	m.open = true
	m.met.Add(2)
	met := make(chan bool)
	go func() {
		onNodes(s.nodes[:2], func(n fwk.NodeInfo) { s.filter(t.Context(), state, n) })
		close(met)
	}()
	select {
	case <-met:
	case <-time.After(time.Minute):
		t.Fatal("two goroutines do not filter at the same time")
	}
	if got := m.of(abi.PreFilter); got != 2 {
		t.Errorf("PreFilter ran %d times, want 2", got)
	}
}

// TestReplaysTakeNoMoreThanAnswers adds up the fuel of many cycles with more and more to do.
func TestReplaysTakeNoMoreThanAnswers(t *testing.T) {
	for _, rounds := range []int{1, 4, 16} {
		t.Run(fmt.Sprint(rounds, " rounds"), func(t *testing.T) {
			m := &meter{}
			s := newSpreading(t, 100, 4, unsharedArgs, func(c *sched.PluginConfig) { c.Observer = m })
			state := s.begin(t)
			first := m.fuel[abi.PreFilter.String()]
			for range rounds {
				onNodes(s.nodes, func(n fwk.NodeInfo) { s.filter(t.Context(), state, n) })
			}
			// One more may be on its way whenever the answers have taken as much as one.
			replays, answers := m.fuel[abi.PreFilter.String()]-first, m.fuel[abi.Filter.String()]
			if replays > answers {
				t.Errorf("replays took %d, answers %d", replays, answers)
			}
		})
	}
}

// meter adds up the fuel of each function.
type meter struct {
	callCounter
	fuel map[string]int64
}

func (m *meter) Called(_ context.Context, call host.CallEvent) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fuel == nil {
		m.fuel = map[string]int64{}
	}
	m.fuel[call.Function] += call.Fuel
}
