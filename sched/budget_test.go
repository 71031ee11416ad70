package sched_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/framework"
	"github.com/kubewasm/kubewasm/sched"
)

// How the guest of testdata/poison.wat misbehaves.
var poisons = []string{"loops", "traps", "recurses", "grows", "works for long"}

const worksForLong = 4

// calls counts the calls of a guest, their fuel, and those that were not made.
type calls struct {
	host.Observer
	mu            sync.Mutex
	made, skipped map[string]int
	failed        int
	fuel          int64
}

func (c *calls) Called(_ context.Context, e host.CallEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[e.Function]++
	if c.fuel += e.Fuel; e.Err != nil {
		c.failed++
	}
}

func (c *calls) Skipped(_, function string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skipped[function]++
}

func (*calls) Built(context.Context, host.BuildEvent)         {}
func (*calls) Refused(context.Context, string, error)         {}
func (*calls) Restarted(string, bool)                         {}
func (*calls) CacheHits(plugin, function string, hits uint64) {}

func (c *calls) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made, c.skipped, c.failed, c.fuel = map[string]int{}, map[string]int{}, 0, 0
}

// poisoned loads the guest of testdata/poison.wat, which misbehaves in f.
func poisoned(t testing.TB, functions abi.Mask, f abi.Function, how int, change func(*sched.PluginConfig)) (*sched.Plugin, *calls) {
	t.Helper()
	return poisonedIn(t, nil, functions, f, how, change)
}

// poisonedIn is poisoned with a scheduler, which may be nil.
func poisonedIn(t testing.TB, handle *framework.Handle, functions abi.Mask, f abi.Function, how int, change func(*sched.PluginConfig)) (*sched.Plugin, *calls) {
	t.Helper()
	rt, err := compiledOnce()
	if err != nil {
		t.Fatal(err)
	}
	config := binary.LittleEndian.AppendUint64(nil, uint64(functions))
	for _, n := range []uint32{uint32(f), uint32(how), uint32(abi.EventNode), uint32(abi.ActionAdd | abi.ActionHint | abi.ActionPreHint), 0} {
		config = binary.LittleEndian.AppendUint32(config, n)
	}
	made := new(calls)
	cfg := sched.PluginConfig{DisableResultSharing: true, Config: host.Config{
		Name: "poison", Module: host.ModuleConfig{File: "testdata/poison.wasm"}, GuestConfig: config, Observer: made,
		Limits: host.Limits{Instances: 2, MemoryBytes: 8 << 20, Timeout: time.Hour},
	}}
	if change != nil {
		change(&cfg)
	}
	made.reset()
	p, err := sched.Load(t.Context(), rt, cfg, framework.Of(handle))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	made.reset()
	return p, made
}

// schedule does what the framework does in a scheduling cycle, and reports whether it failed. 16
// goroutines filter and score.
func schedule(p *sched.Plugin, pod *corev1.Pod, nodes framework.Nodes) (failure string) {
	var handle framework.Handle
	cycle := p.Begin(pod)
	if _, status := p.PreFilter(cycle, nodes); status != nil {
		return status.Message()
	}
	var once sync.Once
	var failed atomic.Bool
	each := func(f func(n sched.NodeInfo) *sched.Status) {
		handle.Parallel(len(nodes), "", func(i int) {
			if failed.Load() { // The framework cancels the rest.
				return
			}
			if status := f(nodes[i]); status != nil {
				failed.Store(true)
				once.Do(func() { failure = status.Message() })
			}
		})
	}
	each(func(n sched.NodeInfo) *sched.Status { return p.Filter(cycle, n) })
	if failure == "" {
		each(func(n sched.NodeInfo) *sched.Status { _, status := p.Score(cycle, n); return status })
	}
	if failure != "" {
		return failure
	}
	if status := p.Reserve(cycle, pod, "n0"); status != nil {
		p.Unreserve(cycle, pod, "n0")
		return status.Message()
	}
	if status, _ := p.Permit(cycle, pod, "n0"); status != nil {
		p.Unreserve(cycle, pod, "n0")
		return status.Message()
	}
	p.PostBind(cycle, pod, "n0")
	return ""
}

func emptyNodes(n int) (nodes framework.Nodes) {
	for i := range n {
		nodes = append(nodes, framework.NewNodeInfo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}))
	}
	return nodes
}

// TestPoisonedCycles schedules a Pod with a guest that misbehaves in one function, over many nodes:
// it is paid for once and not once for each node, whatever the failure policy is, and the next
// cycle of a guest that behaves has nothing of it.
func TestPoisonedCycles(t *testing.T) {
	const cycleFuel, slice, instances = 40_000_000, 2_000_000, 2
	functions := abi.MaskOf(abi.PreFilter, abi.Filter, abi.Score, abi.Reserve, abi.Unreserve, abi.Permit, abi.PostBind)
	for _, f := range []abi.Function{abi.PreFilter, abi.Filter, abi.Score, abi.Reserve, abi.Permit} {
		for how, does := range poisons {
			if how == worksForLong && f != abi.Filter && f != abi.Score {
				continue // One call is within the budget.
			}
			for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
				for _, nodes := range []int{400, 5_000} {
					t.Run(fmt.Sprintf("%s %s, policy %s, %d nodes", f, does, policy, nodes), func(t *testing.T) {
						p, made := poisoned(t, functions, f, how, func(cfg *sched.PluginConfig) {
							cfg.CycleFuel, cfg.FailurePolicy = cycleFuel, policy
						})
						failure := schedule(p, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, emptyNodes(nodes))
						if (failure == "") != (policy == host.Ignore) {
							t.Errorf("the cycle ends with %q", failure)
						}
						// Each instance has a slice more than it may have, and calls below 30 us do not count.
						if most := int64(cycleFuel + 2*slice*instances + nodes<<16); made.fuel > most {
							t.Errorf("the cycle took %d of fuel, more than %d", made.fuel, most)
						}
						// On each instance at the same time, and once more for what a step has left.
						if most := 2 * instances; made.failed > most {
							t.Errorf("%d calls have failed, more than %d: %v", made.failed, most, made.made)
						}
						if f == abi.Filter && policy == host.Ignore && how != worksForLong {
							// The guest is told of the Pod in spite of a Filter that failed.
							if got := []int{made.made["reserve"], made.made["permit"], made.made["postbind"]}; !slices.Equal(got, []int{1, 1, 1}) {
								t.Errorf("Reserve, Permit and PostBind are called %v times", got)
							}
						}
						if f == abi.PreFilter && policy == host.Ignore {
							if diff := cmp.Diff(map[string]int{"prefilter": 1}, made.made); diff != "" {
								t.Errorf("calls (-want +got):\n%s", diff)
							}
							want := map[string]int{"filter": nodes, "score": nodes, "reserve": 1, "permit": 1, "postbind": 1}
							if diff := cmp.Diff(want, made.skipped); diff != "" {
								t.Errorf("calls that were not made (-want +got):\n%s", diff)
							}
						}
					})
				}
			}
		}
	}
}

// TestDefaultCycleFuel holds that a guest that works as much as none does has a budget that bounds
// it, without any configuration.
func TestDefaultCycleFuel(t *testing.T) {
	p, made := poisoned(t, abi.MaskOf(abi.PreFilter, abi.Filter), abi.PreFilter, 0, nil)
	failure := schedule(p, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}, emptyNodes(10))
	if !strings.Contains(failure, "out of fuel: cycleFuel of 1000000000") {
		t.Errorf("the cycle ends with %q", failure)
	}
	if made.fuel > 1_004_000_000 {
		t.Errorf("the cycle took %d of fuel", made.fuel)
	}
}

// TestPoisonedHints has many Pods pending when events come, and a guest whose hints misbehave: an
// event costs one failure, and after some of them the guest is hardly asked any more.
func TestPoisonedHints(t *testing.T) {
	for _, f := range []abi.Function{abi.QueueingHint, abi.PreQueueingHint} {
		for how, does := range poisons {
			t.Run(fmt.Sprint(f, " ", does), func(t *testing.T) {
				var log strings.Builder
				functions := abi.MaskOf(abi.EventsToRegister, abi.QueueingHint, abi.PreQueueingHint, abi.Filter)
				p, made := poisoned(t, functions, f, how, func(cfg *sched.PluginConfig) {
					cfg.Logger, cfg.QueueTimeout = slog.New(slog.NewTextHandler(&log, nil)), 5*time.Millisecond
				})
				const pending, events = 1_000, 20
				hint := p.EventsToRegister()[0]
				worst, asked := 0, 0
				for n := range events {
					made.reset()
					node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", n)}}
					_, all, _ := hint.PreHint(nil, node)
					if !all && f == abi.PreQueueingHint && how != worksForLong {
						t.Fatal("a failed hint leaves Pods out")
					}
					for i := range pending {
						pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}}
						queue, _ := hint.Hint(pod, nil, node)
						if !queue && f == abi.QueueingHint && how != worksForLong {
							t.Fatal("a failed hint leaves a Pod out")
						}
					}
					worst, asked = max(worst, made.failed), asked+made.made[f.String()]
					if most := int64(100_000_000 + 20_000_000); made.fuel > most {
						t.Errorf("an event took %d of fuel, more than %d", made.fuel, most)
					}
				}
				switch {
				case how == worksForLong && f == abi.QueueingHint:
					// 1,000 calls of some 500,000 are more than an event may have.
				case how == worksForLong:
					if asked != events {
						t.Errorf("the guest is asked %d times about %d events", asked, events)
					}
				case worst > 1:
					t.Errorf("an event has %d failures", worst)
				// Five failures, and then one in a second, of which there are few.
				case asked < 5 || asked == events:
					t.Errorf("the guest is asked %d times about %d events", asked, events)
				}
				if n := strings.Count(log.String(), "the guest is not asked for some time"); how != worksForLong && n != 1 {
					t.Errorf("the log says %d times that the guest is not asked", n)
				}
			})
		}
	}
}

// TestPoisonedPods holds that the guest is not asked again about a Pod at which PreEnqueue failed,
// and is asked about others.
func TestPoisonedPods(t *testing.T) {
	for how, does := range poisons[:worksForLong] {
		for _, policy := range []host.FailurePolicy{host.Fail, host.Ignore} {
			t.Run(fmt.Sprint(does, ", policy ", policy), func(t *testing.T) {
				p, made := poisoned(t, abi.MaskOf(abi.PreEnqueue), abi.PreEnqueue, how, func(cfg *sched.PluginConfig) {
					cfg.FailurePolicy = policy
				})
				const pods, times = 3, 50
				for range times {
					for i := range pods {
						pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}}
						if status := p.PreEnqueue(pod); (status == nil) != (policy == host.Ignore) {
							t.Fatalf("status is %v", status.Message())
						}
					}
				}
				// Nobody is asked again, and others are asked.
				if made.made["preenqueue"] != pods || made.skipped["preenqueue"] != pods*(times-1) {
					t.Errorf("the guest is asked %v, and not asked %v", made.made, made.skipped)
				}
			})
		}
	}
}

// TestTimeThatGoesToOthers holds that a call under the lock of the queue may do some milliseconds of
// work although its time has passed, and not much more.
func TestTimeThatGoesToOthers(t *testing.T) {
	at := func(cfg *sched.PluginConfig) { cfg.QueueTimeout = 1 } // Passed at once.
	pod := func(n int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", n), UID: types.UID(fmt.Sprint(n))}}
	}
	p, made := poisoned(t, abi.MaskOf(abi.PreEnqueue), abi.PreEnqueue, worksForLong, at)
	for n := range 50 { // Some of them get another slice of fuel.
		if status := p.PreEnqueue(pod(n)); status != nil {
			t.Fatalf("after %d Pods: %s", n, status.Message())
		}
	}
	if made.fuel < 10_000_000 {
		t.Errorf("all took %d of fuel", made.fuel)
	}
	p, made = poisoned(t, abi.MaskOf(abi.PreEnqueue), abi.PreEnqueue, 0, at)
	if status := p.PreEnqueue(pod(0)); !strings.Contains(status.Message(), context.DeadlineExceeded.Error()) {
		t.Errorf("a loop ends with %q", status.Message())
	}
	if made.fuel > 10_000_000 {
		t.Errorf("a loop took %d of fuel", made.fuel)
	}
}

// TestPoisonedOrder holds that a guest that orders the queue fails once in a second.
func TestPoisonedOrder(t *testing.T) {
	for how, does := range poisons[:worksForLong] {
		t.Run(does, func(t *testing.T) {
			p, made := poisoned(t, abi.MaskOf(abi.QueueSort), abi.QueueSort, how, nil)
			begun := time.Now()
			for i := range 50 {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
				p.Less(sched.Queued{Pod: pod, Timestamp: time.Unix(1, 0)}, sched.Queued{Pod: &corev1.Pod{}, Timestamp: time.Unix(2, 0)})
			}
			if most := 1 + int(time.Since(begun)/time.Second); made.failed < 1 || made.failed > most || made.made["queuesort"] != made.failed {
				t.Errorf("calls are %v, of which %d failed", made.made, made.failed)
			}
		})
	}
}

// TestHintsDoNotWaitForInstances holds that a hint leaves when all instances are busy.
func TestHintsDoNotWaitForInstances(t *testing.T) {
	p, made := poisoned(t, abi.MaskOf(abi.EventsToRegister, abi.QueueingHint, abi.Filter), abi.Filter, 0, func(cfg *sched.PluginConfig) {
		cfg.Limits.Instances, cfg.CycleFuel = 1, 1<<62
		cfg.Limits.Fuel = 1 << 62
		cfg.Limits.Timeout = 2 * time.Second
	})
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		p.Filter(p.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}), emptyNodes(1)[0])
	}()
	for p.Stats().Instances != 1 || p.Stats().Idle != 0 {
		time.Sleep(time.Millisecond)
	}
	hint := p.EventsToRegister()[0]
	for i := range 1_000 {
		if queue, _ := hint.Hint(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}, nil, emptyNodes(1)[0].Node()); !queue {
			t.Fatal("a hint without an answer leaves a Pod out")
		}
	}
	select {
	case <-busy:
		t.Error("the hints have waited for the end of the other call")
	default:
	}
	<-busy
	if made.made["queueinghint"] != 0 {
		t.Errorf("calls are %v", made.made)
	}
}

// TestBindingsLeaveAnInstance has all bindings of a plugin loop: the next Pod is filtered while they
// do.
func TestBindingsLeaveAnInstance(t *testing.T) {
	p, made := poisoned(t, abi.MaskOf(abi.Filter, abi.PostBind), abi.PostBind, 0, func(cfg *sched.PluginConfig) {
		cfg.Limits.Instances, cfg.CycleFuel = 3, 1<<62
		cfg.Limits.Fuel, cfg.Limits.Timeout = 1<<62, 2*time.Second
	})
	const pods = 6
	var bound sync.WaitGroup
	for i := range pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}}
		bound.Go(func() { p.PostBind(p.Begin(pod), pod, "n0") })
	}
	for p.Stats().Instances-p.Stats().Idle != 2 {
		time.Sleep(time.Millisecond)
	}
	if status := p.Filter(p.Begin(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "good"}}), emptyNodes(1)[0]); status != nil {
		t.Errorf("Filter says %q", status.Message())
	}
	made.mu.Lock()
	if made.failed != 0 {
		t.Errorf("Filter has waited for the end of %d bindings", made.failed)
	}
	made.mu.Unlock()
	bound.Wait()
	if made.failed != pods {
		t.Errorf("%d calls have failed, want %d", made.failed, pods)
	}
}

// TestABindingHasABudget holds that all calls of a binding share cycleFuel.
func TestABindingHasABudget(t *testing.T) {
	const cycleFuel, slice = 40_000_000, 2_000_000
	p, made := poisoned(t, abi.MaskOf(abi.PreFilter, abi.Unreserve, abi.PostBind), abi.PostBind, 0, func(cfg *sched.PluginConfig) {
		cfg.CycleFuel = cycleFuel
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
	cycle := p.Begin(pod)
	if _, status := p.PreFilter(cycle, emptyNodes(1)); status != nil {
		t.Fatal(status.Message())
	}
	for range 5 {
		p.PostBind(cycle, pod, "n0")
	}
	if most := int64(cycleFuel + 2*5*slice); made.fuel > most {
		t.Errorf("the binding took %d of fuel, more than %d", made.fuel, most)
	}
}

// TestPoisonedClones tries out a preemption on many nodes with a guest that misbehaves in RemovePod:
// what it does on one clone ends that one, and all clones share the budget of the cycle.
func TestPoisonedClones(t *testing.T) {
	const cycleFuel, slice, candidates = 40_000_000, 2_000_000, 200
	for how, does := range poisons[:worksForLong] {
		t.Run(does, func(t *testing.T) {
			p, made := poisoned(t, abi.MaskOf(abi.PreFilter, abi.RemovePod, abi.Filter), abi.RemovePod, how, func(cfg *sched.PluginConfig) {
				cfg.CycleFuel = cycleFuel
			})
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
			nodes := emptyNodes(candidates)
			cycle := p.Begin(pod)
			if _, status := p.PreFilter(cycle, nodes); status != nil {
				t.Fatal(status.Message())
			}
			var handle framework.Handle
			handle.Parallel(candidates, "", func(i int) {
				clone := cycle.Clone()
				if status := p.RemovePod(clone, pod, nodes[i]); status.Code() != abi.Error {
					t.Errorf("RemovePod says %v", status.Message())
				}
				if status := p.Filter(clone, nodes[i]); status.Code() != abi.Error {
					t.Errorf("Filter says %v", status.Message())
				}
			})
			if most := int64(cycleFuel + 2*slice*2 + candidates<<17); made.fuel > most {
				t.Errorf("the clones took %d of fuel, more than %d", made.fuel, most)
			}
			status := p.Filter(cycle, nodes[0])
			if spent := strings.Contains(status.Message(), "cycleFuel of"); (status == nil) == spent {
				t.Errorf("Filter of the cycle says %v", status.Message())
			}
			if does == "traps" && (status != nil || made.failed != candidates) {
				t.Errorf("%d of %d clones have failed, and the cycle says %q", made.failed, candidates, status.Message())
			}
		})
	}
}
