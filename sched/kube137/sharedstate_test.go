package kube137_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/replaying"
	"github.com/kubewasm/kubewasm/sched"
	"github.com/kubewasm/kubewasm/sched/kube137"
	"github.com/kubewasm/kubewasm/sched/kube137/kube137test"
)

// quotas is the guest testdata/quota in a scheduler.
type quotas struct {
	t      *testing.T
	p      kube137.Plugin
	module string
	handle *kube137test.Handle
}

func newQuotas(t *testing.T, args string, opts ...func(*sched.PluginConfig)) *quotas {
	t.Helper()
	file, err := guestbuild.Build(t.Context(), "../testdata/quota")
	if err != nil {
		t.Fatal(err)
	}
	handle := &kube137test.Handle{Recorder: events.NewFakeRecorder(100)}
	raw := fmt.Sprintf(`{"module": {"file": %q}, "grants": ["state", "events", "waiting-pods"]%s}`, file, args)
	p, err := kube137.New("quota", shared, opts...)(t.Context(), &kruntime.Unknown{Raw: []byte(raw)}, handle)
	if err != nil {
		t.Fatal(err)
	}
	return &quotas{t, p.(kube137.Plugin), file, handle}
}

func tenantPod(n, tenant int, trap string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprint("p", n), Namespace: "shop", UID: types.UID(fmt.Sprint("uid-", n)),
		Labels: map[string]string{"tenant": fmt.Sprint(tenant)}, Annotations: map[string]string{"trap": trap},
	}}
}

// state returns the counters, by their keys, and the number of other entries.
func (q *quotas) state() (counters map[string]int64, others int) {
	counters = map[string]int64{}
	for key, value := range q.p.Guest().SharedState() {
		if strings.HasPrefix(key, "tenant/") || key == "all" {
			counters[key] = int64(binary.LittleEndian.Uint64(value))
		} else {
			others++
		}
	}
	return counters, others
}

// begin runs PreFilter, Reserve and Permit, and what the framework does after a refusal. It reports
// whether the Pod has a node.
func (q *quotas) begin(pod *corev1.Pod) (fwk.CycleState, *fwk.Status) {
	ctx, state := q.t.Context(), fwk.CycleState(kube137test.NewCycleState())
	if _, status := q.p.(fwk.PreFilterPlugin).PreFilter(ctx, state, pod, nil); !status.IsSuccess() {
		return nil, status
	}
	r := q.p.(fwk.ReservePlugin)
	status := r.Reserve(ctx, state, pod, "n1")
	if status.IsSuccess() {
		status, _ = q.p.(fwk.PermitPlugin).Permit(ctx, state, pod, "n1")
	}
	if !status.IsSuccess() {
		r.Unreserve(ctx, state, pod, "n1")
		return nil, status
	}
	return state, nil
}

// TestSharedQuota schedules 2,000 Pods of 100 tenants on eight instances, some of which trap. Never
// do more than two Pods of a tenant have a node, and all are counted out in the end. Run it with
// -race.
func TestSharedQuota(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	q := newQuotas(t, `, "limits": {"instances": 8}, "cycleFuel": 100000000000`)
	const pods, tenants, profiles = 2000, 100, 4
	var held [tenants]atomic.Int32
	var bound, refused, failed atomic.Int32
	var binding, scheduling sync.WaitGroup
	room := make(chan struct{}, 64)
	for profile := range profiles {
		scheduling.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(profile), 3))
			for n := profile; n < pods; n += profiles {
				tenant, trap := rnd.IntN(tenants), ""
				if at := rnd.IntN(60); at < 3 {
					trap = []string{"prefilter", "reserve", "permit"}[at]
				}
				pod := tenantPod(n, tenant, trap)
				// The Pod is counted before the guest does it, and counted out after it has.
				state, status := q.begin(pod)
				if state == nil {
					if status.IsRejected() {
						refused.Add(1)
					} else if failed.Add(1); trap == "" {
						t.Errorf("pod %d: %s", n, status.AsError())
					}
					continue
				}
				bound.Add(1)
				if h := held[tenant].Add(1); h > 2 {
					t.Errorf("tenant %d has %d Pods", tenant, h)
				}
				room <- struct{}{}
				binding.Go(func() {
					defer func() { <-room }()
					for range n % 7 {
						runtime.Gosched()
					}
					held[tenant].Add(-1)
					q.p.(fwk.ReservePlugin).Unreserve(t.Context(), state, pod, "n1")
				})
			}
		})
	}
	scheduling.Wait()
	binding.Wait()
	counters, others := q.state()
	for key, n := range counters {
		if n != 0 {
			t.Errorf("%s is %d in the end", key, n)
		}
	}
	if others != 0 {
		t.Errorf("%d Pods are counted in the end", others)
	}
	if bound.Load() < pods/10 || failed.Load() < 10 {
		t.Errorf("%d Pods were bound and %d failed: the test proves nothing", bound.Load(), failed.Load())
	}
	if stats := kube137.Stats(q.p); stats.Instances < 2 || stats.Idle != stats.Instances {
		t.Errorf("instances: %+v", stats)
	}
	t.Logf("%d bound, %d refused, %d failed", bound.Load(), refused.Load(), failed.Load())
}

// TestSharedStateOfOneQuota fills a quota of two by one Pod after the other.
func TestSharedStateOfOneQuota(t *testing.T) {
	q := newQuotas(t, `, "limits": {"instances": 8}`)
	var got []string
	for n := range 4 {
		_, status := q.begin(tenantPod(n, 1, ""))
		got = append(got, text(status))
	}
	counters, others := q.state()
	want := []string{"Success", "Success", "Unschedulable: the tenant has 2 Pods", "Unschedulable: the tenant has 2 Pods"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"tenant/1": 2, "all": 2}, counters); diff != "" || others != 2 {
		t.Errorf("%d Pods, and counters (-want +got):\n%s", others, diff)
	}
}

// TestSharedStateAndCodes holds which calls keep what they have written.
func TestSharedStateAndCodes(t *testing.T) {
	q := newQuotas(t, `, "limits": {"instances": 1}`)
	for n := range 2 {
		if _, status := q.begin(tenantPod(n, 1, "")); status != nil {
			t.Fatal(status.AsError())
		}
	}
	ctx, state := t.Context(), kube137test.NewCycleState()
	// A Reserve that refuses has counted "all", and one that traps has counted both.
	over := tenantPod(7, 1, "")
	if status := q.p.(fwk.ReservePlugin).Reserve(ctx, state, over, "n1"); !status.IsRejected() {
		t.Errorf("Reserve beyond the quota is %s", text(status))
	}
	if status := q.p.(fwk.ReservePlugin).Reserve(ctx, kube137test.NewCycleState(), tenantPod(8, 2, "reserve"), "n1"); status.IsSuccess() {
		t.Error("a Reserve that traps succeeds")
	}
	kept := tenantPod(9, 1, "")
	kept.Annotations["keep"] = "true"
	if _, status := q.p.(fwk.PreFilterPlugin).PreFilter(ctx, kube137test.NewCycleState(), kept, nil); !status.IsRejected() {
		t.Errorf("PreFilter is %s", text(status))
	}
	counters, others := q.state()
	if diff := cmp.Diff(map[string]int64{"tenant/1": 2, "all": 2}, counters); diff != "" || others != 3 {
		t.Errorf("%d other entries, want two Pods and a refusal, and counters (-want +got):\n%s", others, diff)
	}
}

// TestSharedStateIsFilledOnce holds that a guest fills a new state until a call that does so counts, and
// no longer, also if it asks several times in a call.
func TestSharedStateIsFilledOnce(t *testing.T) {
	q := newQuotas(t, `, "limits": {"instances": 1}`)
	for n, how := range []string{"refused", "refused", "yes", "refused", "yes"} {
		pod := tenantPod(n, 1, "")
		pod.Annotations["once"] = how
		if _, status := q.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), pod, nil); status.IsSuccess() != (how == "yes") {
			t.Error(text(status))
		}
	}
	var got []string
	for key := range q.p.Guest().SharedState() {
		got = append(got, key)
	}
	if diff := cmp.Diff([]string{"\x00once", "filled/uid-2"}, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// TestSharedStateOverSwaps holds which versions go on with the state.
func TestSharedStateOverSwaps(t *testing.T) {
	for name, test := range map[string]struct {
		from, to string
		want     int
		logs     string
	}{
		"a version of the same form":  {"state v1", "state v1", 2, ""},
		"a version of another form":   {"state v1", "state v2", 0, "the state of the plugin begins empty"},
		"a version without a form":    {"state v1", "version 2", 0, "the state of the plugin begins empty"},
		"two versions without a form": {"version 1", "version 1", 0, "the state of the plugin begins empty"},
	} {
		t.Run(name, func(t *testing.T) {
			var lines bytes.Buffer
			q := newQuotas(t, "", func(c *sched.PluginConfig) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
			swap := func(directive string) {
				t.Helper()
				if err := q.p.Swap(t.Context(), versionOf(t, q.module, directive), ""); err != nil {
					t.Fatal(err)
				}
			}
			swap(test.from)
			old, status := q.begin(tenantPod(1, 1, ""))
			if status != nil {
				t.Fatal(status.AsError())
			}
			if _, status := q.begin(tenantPod(2, 1, "")); status != nil {
				t.Fatal(status.AsError())
			}
			swap(test.to + " again")
			counters, _ := q.state()
			if got := int(counters["tenant/1"]); got != test.want {
				t.Errorf("the new version begins with %d, want %d", got, test.want)
			}
			if got := lines.String(); !strings.Contains(got, test.logs) || test.logs == "" && strings.Contains(got, "empty") {
				t.Errorf("the log is %s, want %q", got, test.logs)
			}
			// A cycle that began on the old version ends with its state.
			q.p.(fwk.ReservePlugin).Unreserve(t.Context(), old, tenantPod(1, 1, ""), "n1")
			counters, _ = q.state()
			if got := int(counters["tenant/1"]); got != max(test.want-1, 0) {
				t.Errorf("after Unreserve of an old cycle it is %d", got)
			}
		})
	}
}

// TestSharedStateOfTrials holds that clones of a cycle, and steps of it that another instance
// repeats, write nothing.
func TestSharedStateOfTrials(t *testing.T) {
	q := newQuotas(t, `, "limits": {"instances": 1}`)
	pod := tenantPod(1, 1, "")
	state, status := q.begin(pod)
	if status != nil {
		t.Fatal(status.AsError())
	}
	// The instance begins anew, so that it repeats the cycle for the next call.
	if _, status := q.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), tenantPod(2, 1, "prefilter"), nil); status.IsSuccess() {
		t.Fatal("the guest does not trap")
	}
	if status, _ := q.p.(fwk.PermitPlugin).Permit(t.Context(), state, pod, "n1"); !status.IsSuccess() {
		t.Error(status.AsError())
	}
	counters, others := q.state()
	if diff := cmp.Diff(map[string]int64{"tenant/1": 1, "all": 1}, counters); diff != "" || others != 1 {
		t.Errorf("%d Pods, and counters (-want +got):\n%s", others, diff)
	}
}

// TestSharedStateIsBounded has a guest abuse the state. It ends by an answer or an error, and nothing
// of it counts.
func TestSharedStateIsBounded(t *testing.T) {
	q := newQuotas(t, `, "limits": {"instances": 1, "stateEntries": 1000, "stateBytes": 300000}, "cycleFuel": 100000000000`)
	if _, status := q.begin(tenantPod(1, 1, "")); status != nil {
		t.Fatal(status.AsError())
	}
	for how, want := range map[string]string{
		"a key that is too long":             "the key has 513 bytes, want 1 to 512",
		"no key":                             "the key has 0 bytes, want 1 to 512",
		"a value that is too long":           "the value has 65537 bytes, more than 65536",
		"a counter of a text":                "k is no counter",
		"entries without end":                "Unschedulable: 997",
		"bytes without end":                  "Unschedulable: 4",
		"a million writes of one key":        "Unschedulable: 1000000",
		"keys without end that do not stay":  "limits.keptBytes",
		"a list that grows while it is read": "Unschedulable: 400",
		"lists without end":                  "Error",
	} {
		t.Run(how, func(t *testing.T) {
			pod := tenantPod(2, 2, "")
			pod.Annotations["hostile"] = how
			_, status := q.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), pod, nil)
			if got := text(status); !strings.Contains(got, want) {
				t.Errorf("the answer is %.300s, want %s", got, want)
			}
			counters, others := q.state()
			if diff := cmp.Diff(map[string]int64{"tenant/1": 1, "all": 1}, counters); diff != "" || others != 1 {
				t.Errorf("%d other entries, and counters (-want +got):\n%s", others, diff)
			}
		})
	}
}

// meddler is a log that runs a function at the first line with a message.
type meddler struct {
	slog.Handler
	lines *atomic.Int32
	do    func()
}

func (m meddler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "between" && m.lines.Add(1) == 1 {
		m.do()
	}
	return nil
}

func (m meddler) Enabled(context.Context, slog.Level) bool { return true }

func (m meddler) WithAttrs([]slog.Attr) slog.Handler { return m }
func (m meddler) WithGroup(string) slog.Handler      { return m }

// TestSharedStateConflicts has another call change the state between a read and a write, and a Pod
// wait: the function is called again, with the new state and the new answers of the scheduler, and its
// event is reported once.
func TestSharedStateConflicts(t *testing.T) {
	var q *quotas
	var lines atomic.Int32
	log := meddler{slog.DiscardHandler, &lines, func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, status := q.begin(tenantPod(1, 1, "")); status != nil {
				t.Error(status.AsError())
			}
		}()
		<-done
		q.handle.Waiting = append(q.handle.Waiting, &kube137test.WaitingPod{Pod: tenantPod(1, 1, "")})
	}}
	q = newQuotas(t, `, "limits": {"instances": 3}`, func(c *sched.PluginConfig) { c.Logger = slog.New(log) })
	pod := tenantPod(2, 1, "")
	pod.Annotations["between"] = "true"
	if _, status := q.begin(pod); status != nil {
		t.Fatal(status.AsError())
	}
	counters, _ := q.state()
	recorded := q.handle.Recorder.(*events.FakeRecorder).Events
	seen := ""
	for key, value := range q.p.Guest().SharedState() {
		if key == "seen/uid-2" {
			seen = string(value)
		}
	}
	if counters["tenant/1"] != 2 || seen != "1 held, 1 waiting" || lines.Load() != 2 || len(recorded) != 1 {
		t.Errorf("counters %v, the last call has seen %q, %d calls, %d events", counters, seen, lines.Load(), len(recorded))
	}
}

// TestSharedStateUnderContention has many calls write what they all read: each of them counts.
func TestSharedStateUnderContention(t *testing.T) {
	const instances, calls = 16, 100
	var lines atomic.Int32
	lines.Store(1) // None is the first.
	log := slog.New(yielder{meddler{slog.NewTextHandler(io.Discard, nil), &lines, nil}})
	q := newQuotas(t, fmt.Sprintf(`, "limits": {"instances": %d}`, instances), func(c *sched.PluginConfig) { c.Logger = log })
	var all sync.WaitGroup
	for n := range instances {
		all.Go(func() {
			pod := tenantPod(n, n, "")
			pod.Annotations["contend"] = "true"
			for range calls {
				if _, status := q.p.(fwk.PreFilterPlugin).PreFilter(t.Context(), kube137test.NewCycleState(), pod, nil); !status.IsSuccess() {
					t.Error(text(status))
				}
			}
		})
	}
	all.Wait()
	for key, value := range q.p.Guest().SharedState() {
		if len(value) != instances*calls {
			t.Errorf("%s counts %d calls, want %d", key, len(value), instances*calls)
		}
	}
	t.Logf("%d calls with their repetitions", lines.Load()-1)
}

// yielder lets other calls run at each line.
type yielder struct{ meddler }

func (y yielder) Handle(ctx context.Context, r slog.Record) error {
	runtime.Gosched()
	return y.meddler.Handle(ctx, r)
}

func (y yielder) WithAttrs([]slog.Attr) slog.Handler { return y }
func (y yielder) WithGroup(string) slog.Handler      { return y }

// TestARecordingOfSharedStateReplays records calls that use the state at the same time, conflict and
// trap. A replay answers them from the recording.
func TestARecordingOfSharedStateReplays(t *testing.T) {
	dir := t.TempDir()
	q := newQuotas(t, fmt.Sprintf(`, "limits": {"instances": 4}, "cycleFuel": 100000000000, "record": {"path": %q, "sequenceCalls": 50}`, dir))
	var all sync.WaitGroup
	for profile := range 4 {
		all.Go(func() {
			for n := profile; n < 200; n += 4 {
				trap := ""
				if n%29 == 0 {
					trap = "permit"
				}
				pod := tenantPod(n, n%7, trap)
				if state, _ := q.begin(pod); state != nil {
					q.p.(fwk.ReservePlugin).Unreserve(t.Context(), state, pod, "n1")
				}
			}
		})
	}
	all.Wait()
	if err := q.p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	replaying.Verify(t, shared, dir, 400, fetch(t, "../testdata/quota"))
}

// versionOf returns a version of a guest with metadata: "state v1", "version 2".
func versionOf(t *testing.T, file, directive string) host.Source {
	t.Helper()
	module, err := host.File(file).Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &metadata.Metadata{ABI: 1, Version: directive}
	if form, ok := strings.CutPrefix(directive, "state "); ok {
		m.State, _, _ = strings.Cut(form, " ")
	}
	if module, err = metadata.Add(module, m); err != nil {
		t.Fatal(err)
	}
	return host.Bytes(module)
}
