package hooks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookpb"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/race"
)

// script is a request to scripted guests, by the names of their plugins.
func script(lines map[string]string) *hookpb.Request {
	return &hookpb.Request{
		Stage: hookpb.Reconcile, Level: hookpb.LevelContainer,
		Pod: hookpb.PodMeta{Namespace: "shop", Name: "web-0"}, Container: hookpb.ContainerMeta{Name: "nginx"},
		PodAnnotations: lines,
	}
}

func TestDecideRunsTheExample(t *testing.T) {
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "cpu", cpuFromAnnotation)}})
	got, err := e.Decide(t.Context(), webRequest())
	if err != nil {
		t.Fatal(err)
	}
	want := &hookpb.Decision{Resources: &hookpb.Resources{CPUShares: new(int64(1536)), CFSQuotaUS: new(int64(150_000)), CFSPeriodUS: new(int64(100_000))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecide(t *testing.T) {
	first, second, third := plugin(t, "first", scripted), plugin(t, "second", scripted), plugin(t, "third", scripted)
	first.Order, second.Order, third.Order = 1, 2, 2
	third.FailurePolicy = hooks.Ignore
	var log bytes.Buffer
	e := engine(t, hooks.Config{
		Plugins: []hooks.PluginConfig{third, second, first},
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	})

	resources := func(r hookpb.Resources) *hookpb.Decision { return &hookpb.Decision{Resources: &r} }
	for _, c := range []struct {
		name string
		// What the plugins do.
		first, second, third string
		want                 *hookpb.Decision
		err                  string // Of the whole.
		logged               string
	}{
		{name: "nobody decides", want: &hookpb.Decision{}},
		{name: "one decides", second: "cpu_shares 2", want: resources(hookpb.Resources{CPUShares: new(int64(2))})},
		{
			name:  "decisions are put together",
			first: "cpu_shares 2\nannotation a 1", second: "cpuset_cpus 0-3\nenv A 1", third: "unified io.weight \"default 50\"\nannotation b 2\nenv B 2",
			want: &hookpb.Decision{
				Resources:            &hookpb.Resources{CPUShares: new(int64(2)), CPUSetCPUs: new("0-3"), Unified: map[string]string{"io.weight": "default 50"}},
				ContainerAnnotations: map[string]string{"a": "1", "b": "2"},
				ContainerEnvs:        map[string]string{"A": "1", "B": "2"},
			},
		},
		{name: "two of one opinion", first: "cpu_shares 2", second: "cpu_shares 2", want: resources(hookpb.Resources{CPUShares: new(int64(2))})},

		{name: "two opinions of a number", first: "cpu_shares 2", second: "cpu_shares 4",
			err: `plugins "first" and "second" decide cpu_shares differently: 2 and 4`},
		{name: "two opinions of a list", first: "cpuset_cpus 0", second: "cpuset_cpus 1",
			err: `plugins "first" and "second" decide cpuset_cpus differently: "0" and "1"`},
		{name: "two opinions of a file", first: "unified io.weight \"1\"", second: "unified io.weight \"2\"",
			err: `plugins "first" and "second" decide unified[io.weight] differently: "1" and "2"`},
		{name: "two opinions of an annotation", first: "annotation b 1\nannotation a 1", second: "annotation b 2\nannotation a 2",
			err: `plugins "first" and "second" decide container_annotations[a] differently: "1" and "2"`},
		{name: "two opinions of a variable", first: "env A 1", second: "env A 2",
			err: `plugins "first" and "second" decide container_envs[A] differently: "1" and "2"`},
		{name: "a second opinion that may be ignored", first: "cpu_shares 2", third: "cpu_shares 4\ncpuset_cpus 0",
			want: resources(hookpb.Resources{CPUShares: new(int64(2))}), logged: `plugins \"first\" and \"third\" decide cpu_shares differently`},
		{name: "a burst above another's quota", first: "cfs_quota_us 1000", second: "cpu_burst_us 1001",
			err: `plugin "second": decision: cpu_burst_us is 1001, more than the cfs_quota_us of 1000`},
		{name: "a burst without a quota to exceed", first: "cfs_quota_us -1", second: "cpu_burst_us 1001",
			want: resources(hookpb.Resources{CFSQuotaUS: new(int64(-1)), CPUBurstUS: new(int64(1001))})},

		{name: "an error", first: "error it is Monday",
			err: `decide Reconcile of container shop/web-0/nginx: plugin "first": hook returned Error: it is Monday`},
		{name: "an error that is ignored", first: "cpu_shares 2", third: "cpuset_cpus 0\nerror it is Monday",
			want: resources(hookpb.Resources{CPUShares: new(int64(2))}), logged: "it is Monday"},
		{name: "a panic", second: "panic at the disco", err: "at the disco"},
		{name: "a panic that is ignored", second: "cpu_shares 2", third: "panic at the disco",
			want: resources(hookpb.Resources{CPUShares: new(int64(2))}), logged: "at the disco"},

		{name: "bytes that are no message", first: "bytes 0aff",
			err: `plugin "first": decision: parse hook decision: malformed message: read field 1: `},
		{name: "a number where a message should be", first: "bytes 0801",
			err: `plugin "first": decision: parse hook decision: malformed message: field resources has wire type 0, want 2`},
		{name: "the last of two decisions counts", first: "bytes 0aff\nbytes 0a020804", want: resources(hookpb.Resources{CPUShares: new(int64(4))})},
		{name: "a decision that is too long", first: fmt.Sprintf("lots %d", hooks.DefaultDecisionBytes+1), err: "call k8s.io/hooks.decision: 262145 bytes are more than the limit of 262144"},
		{name: "bytes that are not the guest's", first: "outside", err: "are out of bounds of the guest's memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log.Reset()
			got, err := e.Decide(t.Context(), script(map[string]string{"first": c.first, "second": c.second, "third": c.third}))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v\nwant one with %s", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(log.String(), c.logged) || (c.logged == "") != (log.Len() == 0) {
				t.Errorf("logged %q, want %q", log.String(), c.logged)
			}
		})
	}
}

// What the kernel would not take, or what would do more than set a value, does
// not get through.
func TestDecideRefusesValues(t *testing.T) {
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "p", scripted)}})
	for _, c := range []struct {
		decide, want string
		level        hookpb.Level
	}{
		{decide: "cpu_shares 1", want: "cpu_shares is 1, want 2 to 262144"},
		{decide: "cpu_shares 262145", want: "cpu_shares is 262145, want 2 to 262144"},
		{decide: "cfs_quota_us 999", want: "cfs_quota_us is 999, want 1000 to 17592186044415, or -1"},
		{decide: "cfs_quota_us -2", want: "cfs_quota_us is -2"},
		{decide: "cfs_period_us 999", want: "cfs_period_us is 999, want 1000 to 1000000"},
		{decide: "cfs_period_us -1", want: "cfs_period_us is -1"},
		{decide: "cpu_bvt 3", want: "cpu_bvt is 3, want -2 to 2"},
		{decide: "memory_limit_bytes 0", want: "memory_limit_bytes is 0"},
		{decide: "oom_score_adj 1001", want: "oom_score_adj is 1001, want -1000 to 1000"},
		{decide: "cpu_shares 1\noom_score_adj 1001", want: "cpu_shares is 1, want 2 to 262144\noom_score_adj is 1001"},
		{decide: "cpuset_cpus 3-1", want: `cpuset_cpus: "3-1" is not a list`},
		{decide: "cpuset_cpus 0,,1", want: `cpuset_cpus: "0,,1" is not a list`},
		{decide: "cpuset_cpus 0-99999999999", want: `cpuset_cpus: "0-99999999999" is not a list`},
		{decide: "cpuset_cpus all", want: `cpuset_cpus: "all" is not a list`},
		{decide: `unified ../cpu.max "max"`, want: `unified["../cpu.max"]: not a cgroup file's name`},
		{decide: `unified a/io.weight "1"`, want: `unified["a/io.weight"]: not a cgroup file's name`},
		{decide: `unified .. "1"`, want: `unified[".."]: not a cgroup file's name`},
		{decide: `unified io. "1"`, want: `unified["io."]: not a cgroup file's name`},
		{decide: `unified tasks "1"`, want: `unified["tasks"]: not a cgroup file's name`},
		{decide: `unified cgroup.kill "1"`, want: `unified["cgroup.kill"]: a file of the cgroup core`},
		{decide: `unified io.max "8:0 rbps=1\n8:1 rbps=1"`, want: `unified["io.max"]: the value "8:0 rbps=1\n8:1 rbps=1" has a control character`},
		{decide: `unified io.max ""`, want: `unified["io.max"]: the value has 0 bytes`},
		{decide: "annotation", want: `container_annotations[""]: not an annotation`},
		{decide: "env A=B 1", want: `container_envs["A=B"]: not an environment variable`},
		{decide: "cpu_idle 1", level: hookpb.LevelQOS, want: "cpu_idle is set for a QoS class"},
	} {
		t.Run(c.decide, func(t *testing.T) {
			req := script(map[string]string{"p": c.decide})
			if c.level != 0 {
				req.Level = c.level
			}
			_, err := e.Decide(t.Context(), req)
			var refused *hooks.DecisionError
			if !errors.As(err, &refused) || refused.Plugin != "p" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v\nwant one with %s", err, c.want)
			}
		})
	}
}

func TestDecideAsksThoseThatWant(t *testing.T) {
	sandbox, container := plugin(t, "sandbox", scripted), plugin(t, "container", scripted)
	sandbox.Stages = []hookpb.Stage{hookpb.PreRunPodSandbox, hookpb.Reconcile}
	sandbox.Levels = []hookpb.Level{hookpb.LevelPod, hookpb.LevelQOS}
	container.Levels = []hookpb.Level{hookpb.LevelContainer}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{sandbox, container}})
	for _, c := range []struct {
		stage hookpb.Stage
		level hookpb.Level
		want  map[string]string
	}{
		{hookpb.PreRunPodSandbox, hookpb.LevelPod, map[string]string{"stage": "PreRunPodSandbox Pod"}},
		{hookpb.Reconcile, hookpb.LevelQOS, map[string]string{"stage": "Reconcile QOS"}},
		{hookpb.PostStopPodSandbox, hookpb.LevelPod, nil},
		{hookpb.PreStartContainer, hookpb.LevelContainer, map[string]string{"stage": "PreStartContainer Container"}},
		{hookpb.Stage(-1), hookpb.LevelPod, nil},
	} {
		req := script(map[string]string{"sandbox": "stage", "container": "stage"})
		req.Stage, req.Level = c.stage, c.level
		got, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Errorf("%s at %s: %v", c.stage, c.level, err)
			continue
		}
		if diff := cmp.Diff(c.want, got.ContainerAnnotations); diff != "" {
			t.Errorf("%s at %s: %s", c.stage, c.level, diff)
		}
	}
}

func TestDecideErrorsHaveTypes(t *testing.T) {
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "a", scripted), plugin(t, "b", scripted)}})
	decide := func(ctx context.Context, a, b string) error {
		_, err := e.Decide(ctx, script(map[string]string{"a": a, "b": b}))
		return err
	}

	err := decide(t.Context(), "error x", "")
	var status *host.StatusError
	if !errors.As(err, &status) || status.Plugin != "a" || status.Reason != "x" || status.Code != abi.Error {
		t.Errorf("an error of the guest is %#v", err)
	}
	err = decide(t.Context(), "", "panic x")
	var trap *host.TrapError
	if !errors.As(err, &trap) || trap.Plugin != "b" {
		t.Errorf("a panic of the guest is %#v", err)
	}
	if err = decide(t.Context(), "bytes ff", ""); !errors.Is(err, hookpb.ErrMalformed) {
		t.Errorf("malformed bytes are %v", err)
	}
	err = decide(t.Context(), "cpu_shares 2", "cpu_shares 3")
	var conflict *hooks.ConflictError
	want := &hooks.ConflictError{Field: "cpu_shares", Plugins: [2]string{"a", "b"}, Values: [2]string{"2", "3"}}
	if !errors.As(err, &conflict) || *conflict != *want {
		t.Errorf("a conflict is %v, want %v", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err = decide(ctx, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context, the error is %v", err)
	}
}

// A request that is given up is not one that nobody decided on.
func TestDecideDoesNotIgnoreTheEndOfTheContext(t *testing.T) {
	p := plugin(t, "p", scripted)
	p.FailurePolicy = hooks.Ignore
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := e.Decide(ctx, script(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v and error %v", d, err)
	}
}

func TestNewEngineRefuses(t *testing.T) {
	source, err := guest(scripted)
	if err != nil {
		t.Fatal(err)
	}
	good := hooks.PluginConfig{Module: host.Config{Name: "good", Source: source}}
	for _, c := range []struct {
		name    string
		plugins []hooks.PluginConfig
		want    []string
	}{
		{"every mistake at once", []hooks.PluginConfig{
			good, good,
			{Module: host.Config{Name: "b", Kind: abi.KindScheduler}, Stages: []hookpb.Stage{77}, Levels: []hookpb.Level{hookpb.LevelUnspecified}, FailurePolicy: 9},
		}, []string{
			`plugin "good": the name is used twice`, `plugin "b": kind, imports and newState`, `plugin "b": stage 77 is not known`,
			`plugin "b": level 0 is not known`, `plugin "b": failure policy 9 is not known`,
		}},
		{"a module that is none", []hooks.PluginConfig{good, {Module: host.Config{Name: "b", Source: host.Bytes([]byte("no"))}}}, []string{`plugin "b": load module: `}},
		{"a plugin without a source", []hooks.PluginConfig{{Module: host.Config{Name: "b"}}}, []string{`plugin "b": configuration: source is missing`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: c.plugins})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v\nwant one with %s", err, want)
				}
			}
		})
	}
}

func TestDecideAllocatesOnce(t *testing.T) {
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "cpu", cpuFromAnnotation)}})
	req := webRequest()
	n := testing.AllocsPerRun(200, func() {
		if _, err := e.Decide(t.Context(), req); err != nil {
			t.Error(err)
		}
	})
	if n > 1 && !race.Enabled {
		t.Errorf("%v allocations, want 1", n)
	}
}

// Several goroutines get their own answers, while guests trap and are replaced.
func TestDecideHammer(t *testing.T) {
	a, b := plugin(t, "a", scripted), plugin(t, "b", scripted)
	a.Module.Limits.Instances, b.Module.Limits.Instances = 2, 3
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{a, b}})
	var all sync.WaitGroup
	for g := range 6 {
		all.Go(func() {
			for i := range 60 {
				shares := int64(1000 + g*100 + i)
				lines := map[string]string{"a": fmt.Sprint("cpu_shares ", shares), "b": fmt.Sprint("cpuset_cpus ", g)}
				fail := i%20 == 19
				if fail {
					lines["b"] = "panic now"
				}
				d, err := e.Decide(t.Context(), script(lines))
				if fail {
					var trap *host.TrapError
					if !errors.As(err, &trap) {
						t.Errorf("got %v and error %v, want a trap", d, err)
					}
					continue
				}
				if err != nil {
					t.Error(err)
					continue
				}
				want := &hookpb.Decision{Resources: &hookpb.Resources{CPUShares: &shares, CPUSetCPUs: new(fmt.Sprint(g))}}
				if diff := cmp.Diff(want, d); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	all.Wait()
}

// A guest is the Go runtime, the SDK and the plugin: nothing of Kubernetes, and
// none of the packages that the SDK's documentation promises to do without.
func TestGuestIsSmall(t *testing.T) {
	source, err := guest(cpuFromAnnotation)
	if err != nil {
		t.Fatal(err)
	}
	module, err := source.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if limit := 3_000_000; len(module) > limit {
		t.Errorf("the module has %d bytes, want at most %d", len(module), limit)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", cpuFromAnnotation)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	deps, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(deps)) {
		if strings.HasPrefix(dep, "k8s.io/") || strings.HasPrefix(dep, "google.golang.org/") || dep == "fmt\n" || dep == "encoding/json\n" {
			t.Errorf("the guest imports %s", dep)
		}
	}
}
