package kube137_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// TestBindingsHaveTheStateOfTheirCycles schedules 2,000 Pods, each of which changes a node, and
// binds them meanwhile, up to 200 at the same time and in any order. What the guest found out of the
// nodes in PreFilter and PreScore is there at every extension point of each binding.
func TestBindingsHaveTheStateOfTheirCycles(t *testing.T) {
	for _, instances := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(instances, " instances"), func(t *testing.T) {
			file, err := guestbuild.Build(t.Context(), "../testdata/carried")
			if err != nil {
				t.Fatal(err)
			}
			const pods, atOnce = 2_000, 200
			recorder := events.NewFakeRecorder(pods)
			raw := fmt.Sprintf(`{"module": {"file": %q}, "limits": {"instances": %d}, "grants": ["events", "waiting-pods", "objects"], "objects": []}`, file, instances)
			loaded, err := kube137.New("carried", shared)(t.Context(), &runtime.Unknown{Raw: []byte(raw)}, &kube137test.Handle{Recorder: recorder})
			if err != nil {
				t.Fatal(err)
			}
			b := &bindings{p: loaded.(kube137.Plugin), r: rand.New(rand.NewPCG(4, uint64(instances))), answers: map[string]int{}}
			for i := range 3 {
				b.nodes = append(b.nodes, kube137test.NewNodeInfo(zoned(fmt.Sprint("n", i), "a")))
			}
			wantEvents := map[string]int{}
			var binding sync.WaitGroup
			var waiting []func()
			for i := range pods {
				end, event := b.schedule(t, i)
				wantEvents[event]++
				waiting = append(waiting, end)
				if len(waiting) == atOnce {
					next := b.r.IntN(atOnce)
					binding.Go(waiting[next])
					waiting[next], waiting = waiting[atOnce-1], waiting[:atOnce-1]
				}
			}
			for _, end := range waiting {
				binding.Go(end)
			}
			binding.Wait()
			if diff := cmp.Diff(map[string]int{"Success": 5 * pods}, b.answers); diff != "" {
				t.Errorf("answers (-want +got):\n%.2000s", diff)
			}
			gotEvents := map[string]int{}
			for len(recorder.Events) > 0 {
				gotEvents[<-recorder.Events]++
			}
			if diff := cmp.Diff(wantEvents, gotEvents); diff != "" {
				t.Errorf("what the guest knew after the binding (-want +got):\n%.2000s", diff)
			}
			if stats := kube137.Stats(b.p); stats.Waiting != 0 || stats.Idle != stats.Instances {
				t.Errorf("instances leaked: %+v", stats)
			}
		})
	}
}

// bindings is a scheduler that schedules one Pod after the other and binds many at the same time.
type bindings struct {
	p     kube137.Plugin
	r     *rand.Rand
	nodes []*kube137test.NodeInfo

	mu sync.Mutex
	// answers counts the answers at the points from Reserve to Bind.
	answers map[string]int
}

func (b *bindings) answered(point, pod string, status *fwk.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	answer := "Success"
	if !status.IsSuccess() {
		answer = point + " of " + pod + ": " + text(status)
	}
	b.answers[answer]++
}

// schedule runs the scheduling cycle of a Pod, and returns its binding cycle and the event of its
// end.
func (b *bindings) schedule(t *testing.T, i int) (bind func(), event string) {
	ctx := context.WithoutCancel(t.Context())
	name, state := fmt.Sprint("p", i), kube137test.NewCycleState()
	pod := noted(name, "nodes", "asked")
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("80m")}
	pod.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}
	infos, used := make([]fwk.NodeInfo, len(b.nodes)), int64(0)
	for n, info := range b.nodes {
		infos[n], used = info, used+info.GetRequested().GetMilliCPU()
	}
	scored := infos[:1+b.r.IntN(len(infos))]
	chosen := b.nodes[b.r.IntN(len(b.nodes))]
	at := chosen.Node().Name
	bound := pod.DeepCopy()
	bound.Spec.NodeName = at
	bound.Annotations["want"] = fmt.Sprintf("prefilter %s uses %d prescore %d reserve %s", name, used/int64(len(infos)), len(scored), at)
	if _, status := b.p.(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, infos); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	onNodes(infos, func(info fwk.NodeInfo) {
		if status := b.p.(fwk.FilterPlugin).Filter(ctx, state, pod, info); !status.IsSuccess() {
			t.Error(status.AsError())
		}
	})
	if status := b.p.(fwk.PreScorePlugin).PreScore(ctx, state, pod, scored); !status.IsSuccess() {
		t.Fatal(status.AsError())
	}
	onNodes(scored, func(info fwk.NodeInfo) {
		if _, status := b.p.(fwk.ScorePlugin).Score(ctx, state, pod, info); !status.IsSuccess() {
			t.Error(status.AsError())
		}
	})
	b.answered("reserve", name, b.p.(fwk.ReservePlugin).Reserve(ctx, state, bound, at))
	chosen.AddPodInfo(kube137test.PodInfo{Pod: bound})
	status, _ := b.p.(fwk.PermitPlugin).Permit(ctx, state, bound, at)
	b.answered("permit", name, status)
	reason := "Bound"
	if i%7 == 6 {
		reason = "Unreserved"
	}
	return func() {
		_, status := b.p.(fwk.PreBindPlugin).PreBindPreFlight(ctx, state, bound, at)
		b.answered("prebindpreflight", name, status)
		b.answered("prebind", name, b.p.(fwk.PreBindPlugin).PreBind(ctx, state, bound, at))
		b.answered("bind", name, b.p.(fwk.BindPlugin).Bind(ctx, state, bound, at))
		if reason == "Bound" {
			b.p.(fwk.PostBindPlugin).PostBind(ctx, state, bound, at)
		} else {
			b.p.(fwk.ReservePlugin).Unreserve(ctx, state, bound, at)
		}
	}, strings.Join([]string{"Normal", reason, bound.Annotations["want"]}, " ")
}
