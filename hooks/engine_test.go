package hooks_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/abi/codes"
	"github.com/kubewasm/kubewasm/abi/metadata"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/host"
	"github.com/kubewasm/kubewasm/internal/guestbuild"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
	"github.com/kubewasm/kubewasm/internal/wire"
)

// script is a request to scripted guests, by the names of their plugins.
func script(lines map[string]string) *hookmsg.Request {
	return &hookmsg.Request{
		Stage: abi.Reconcile, Level: abi.LevelContainer,
		Pod: hookmsg.PodMeta{Namespace: "shop", Name: "web-0"}, Container: hookmsg.ContainerMeta{Name: "nginx"},
		PodAnnotations: lines,
	}
}

func TestDecideRunsTheExample(t *testing.T) {
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "cpu", cpuFromAnnotation)}})
	got, err := e.Decide(t.Context(), webRequest())
	if err != nil {
		t.Fatal(err)
	}
	want := &hookmsg.Decision{Resources: &hookmsg.Resources{CPUShares: new(int64(1536)), CFSQuotaUS: new(int64(150_000)), CFSPeriodUS: new(int64(100_000))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecide(t *testing.T) {
	first, second, third := plugin(t, "first", scripted), plugin(t, "second", scripted), plugin(t, "third", scripted)
	first.Order, second.Order, third.Order = 1, 2, 2
	third.FailurePolicy = host.Ignore
	var log bytes.Buffer
	e := engine(t, hooks.Config{
		Plugins: []hooks.PluginConfig{third, second, first},
		Logger:  slog.New(slog.NewTextHandler(&log, nil)),
	})

	resources := func(r hookmsg.Resources) *hookmsg.Decision { return &hookmsg.Decision{Resources: &r} }
	for _, c := range []struct {
		name string
		// What the plugins do.
		first, second, third string
		want                 *hookmsg.Decision
		err                  string // Of the whole.
		logged               string
	}{
		{name: "nobody decides", want: &hookmsg.Decision{}},
		{name: "one decides", second: "cpu_shares 2", want: resources(hookmsg.Resources{CPUShares: new(int64(2))})},
		{
			name:  "decisions are put together",
			first: "cpu_shares 2\nannotation a 1", second: "cpuset_cpus 0-3\nenv A 1", third: "unified io.weight \"default 50\"\nannotation b 2\nenv B 2",
			want: &hookmsg.Decision{
				Resources:            &hookmsg.Resources{CPUShares: new(int64(2)), CPUSetCPUs: new("0-3"), Unified: map[string]string{"io.weight": "default 50"}},
				ContainerAnnotations: map[string]string{"a": "1", "b": "2"},
				ContainerEnvs:        map[string]string{"A": "1", "B": "2"},
			},
		},
		{
			name:  "mounts and devices are put together",
			first: "mount /a /usr\nmount /c /usr\ndevice /dev/null c", second: "mount /c /usr\ndevice /dev/zero c 1:5\ndevice /dev/null c",
			want: &hookmsg.Decision{
				ContainerMounts: []hookmsg.Mount{
					{Destination: "/a", Source: "/usr", Type: "bind", Options: []string{"ro"}}, {Destination: "/c", Source: "/usr", Type: "bind", Options: []string{"ro"}},
				},
				ContainerDevices: []hookmsg.Device{{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}, {Path: "/dev/zero", Type: "c", Major: 1, Minor: 5}},
			},
		},
		{name: "two opinions of a mount", first: "mount /a /usr", second: "mount /a /etc",
			err: `plugins "first" and "second" decide container_mounts[/a] differently: bind "/usr" (ro) and bind "/etc" (ro)`},
		{name: "two opinions of a device", first: "device /dev/null c", second: "device /dev/null c 1:3 600",
			err: `plugins "first" and "second" decide container_devices[/dev/null] differently: c 1:3 and c 1:3 mode 384`},
		{name: "two of one opinion", first: "cpu_shares 2", second: "cpu_shares 2", want: resources(hookmsg.Resources{CPUShares: new(int64(2))})},

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
			want: resources(hookmsg.Resources{CPUShares: new(int64(2))}), logged: `plugins \"first\" and \"third\" decide cpu_shares differently`},
		{name: "a burst above another's quota", first: "cfs_quota_us 1000", second: "cpu_burst_us 1001",
			err: `plugin "second": decision: cpu_burst_us is 1001, more than the cfs_quota_us of 1000`},
		{name: "a burst without a quota to exceed", first: "cfs_quota_us -1", second: "cpu_burst_us 1001",
			want: resources(hookmsg.Resources{CFSQuotaUS: new(int64(-1)), CPUBurstUS: new(int64(1001))})},

		{name: "an error", first: "error it is Monday",
			err: `decide Reconcile of container shop/web-0/nginx: plugin "first": hook returned Error: it is Monday`},
		{name: "an error that is ignored", first: "cpu_shares 2", third: "cpuset_cpus 0\nerror it is Monday",
			want: resources(hookmsg.Resources{CPUShares: new(int64(2))}), logged: "it is Monday"},
		{name: "a panic", second: "panic at the disco", err: "at the disco"},
		{name: "a panic that is ignored", second: "cpu_shares 2", third: "panic at the disco",
			want: resources(hookmsg.Resources{CPUShares: new(int64(2))}), logged: "at the disco"},

		{name: "bytes that are no message", first: "bytes 0aff",
			err: `plugin "first": decision: parse hook decision: malformed message: read field 1: `},
		{name: "a number where a message should be", first: "bytes 0801",
			err: `plugin "first": decision: parse hook decision: malformed message: field resources has wire type 0, want 2`},
		{name: "the last of two decisions counts", first: "bytes 0aff\nbytes 0a020804", want: resources(hookmsg.Resources{CPUShares: new(int64(4))})},
		{name: "a decision that is too long", first: fmt.Sprintf("lots %d", 256<<10+1), err: "call k8s.io/hooks.decision: 262145 bytes are more than the limit of 262144"},
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
		level        abi.Level
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
		{decide: "oom_score_adj -1001", want: "oom_score_adj is -1001, want -1000 to 1000"},
		{decide: "oom_score_adj -998", want: `oom_score_adj = -998 is not granted: it is less than -997; decisionGrants {"oomScoreAdj":-998} would allow it`},
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
		{decide: `unified devices.allow "a"`, want: `unified["devices.allow"]: "devices" is not a controller`},
		{decide: `unified irq.pressure "x"`, want: `unified["irq.pressure"]: "irq" is not a controller`},
		{decide: `unified memory.reclaim "1G"`, want: `unified["memory.reclaim"]: a file that does more than`},
		{decide: `unified cpu.pressure "some 1 2"`, want: `unified["cpu.pressure"]: a file that does more than`},
		{decide: `unified cpuset.cpus.partition "root"`, want: `unified["cpuset.cpus.partition"]: a file that does more than`},
		{decide: `unified memory.max "1"`, want: `unified["memory.max"]: memory_limit_bytes writes the file`},
		{decide: `unified cpu.idle "1"`, level: abi.LevelQOS, want: `unified["cpu.idle"]: cpu_idle writes the file`},
		{decide: `unified memory.limit_in_bytes "1"`, want: `unified["memory.limit_in_bytes"]: memory_limit_bytes writes the file`},
		{decide: `unified cpu.shares "1"`, want: `unified["cpu.shares"]: cpu_shares writes the file`},
		{decide: `unified net_cls.classid "1"`, want: `unified["net_cls.classid"]: "net_cls" is not a controller`},
		{decide: `unified freezer.state "FROZEN"`, want: `unified["freezer.state"]: "freezer" is not a controller`},
		{decide: `unified memory.oom_control "1"`, want: `unified["memory.oom_control"]: a file that does more than`},
		{decide: `unified memory.force_empty "0"`, want: `unified["memory.force_empty"]: a file that does more than`},
		{decide: `unified memory.memsw.max_usage_in_bytes "0"`, want: `unified["memory.memsw.max_usage_in_bytes"]: a file that does more than`},
		{decide: `unified memory.failcnt "0"`, want: `unified["memory.failcnt"]: a file that does more than`},
		{decide: `unified cpuset.cpu_exclusive "1"`, want: `unified["cpuset.cpu_exclusive"]: a file that does more than`},
		{decide: `unified cpu.rt_runtime_us "950000"`, want: `unified["cpu.rt_runtime_us"]: a file that does more than`},
		{decide: "core_sched_group", want: `core_sched_group: "" is not a name`},
		{decide: "core_sched_group " + strings.Repeat("x", 129), want: `is not a name of 1 to 128 bytes`},
		{decide: "core_sched_group a", level: abi.LevelPod, want: `core_sched_group or resctrl_group is set above a container`},
		{decide: "resctrl_group a", level: abi.LevelQOS, want: `core_sched_group or resctrl_group is set above a container`},
		{decide: "resctrl_group", want: `resctrl_group: the name has 0 bytes`},
		{decide: "resctrl_group ..", want: `resctrl_group: ".." is not a name`},
		{decide: "resctrl_group a/b", want: `resctrl_group: "a/b" is not a name`},
		{decide: "resctrl_group .a", want: `resctrl_group: ".a" is not a name`},
		{decide: "resctrl_group info", want: `resctrl_group: "info" is the kernel's`},
		{decide: "resctrl_group mon_groups", want: `resctrl_group: "mon_groups" is the kernel's`},
		{decide: "resctrl_schemata L3:0=ff", want: `resctrl_schemata is set without the resctrl_group`},
		{decide: "resctrl_group a\nresctrl_schemata L3", want: `resctrl_schemata: "L3" is not a line like "L3:0=ff;1=ff"`},
		{decide: "resctrl_group a\nresctrl_schemata L3:0=-1", want: `resctrl_schemata: "L3:0=-1" is not a line`},
		{decide: "resctrl_group a\nresctrl_schemata ../x:0=1", want: `resctrl_schemata: "../x:0=1" is not a line`},
		{decide: "resctrl_group a\nresctrl_schemata " + strings.Repeat("L3:0=ff;", 600), want: `resctrl_schemata: the value has`},
		{decide: "resctrl_group a", want: `resctrl_group = "a" is not granted: resctrl does not name it; decisionGrants {"resctrl":["a"]} would allow it`},
		{decide: `unified io.max "8:0 rbps=1\n8:1 rbps=1"`, want: `unified["io.max"]: the value "8:0 rbps=1\n8:1 rbps=1" has a control character`},
		{decide: `unified io.max ""`, want: `unified["io.max"]: the value has 0 bytes`},
		{decide: "annotation", want: `container_annotations[""]: not an annotation`},
		{decide: "env A=B 1", want: `container_envs["A=B"]: not an environment variable`},
		{decide: "mount a /b", want: `container_mounts["a"]: the destination is not an absolute and clean path`},
		{decide: "mount / /b", want: `container_mounts["/"]: the destination`},
		{decide: "mount /a ../b", want: `container_mounts["/a"]: the source "../b" of a bind mount`},
		{decide: "mount /a /b\nmount /a /b", want: `container_mounts["/a"]: the path is used twice`},
		{decide: "device /dev/x/../y c", want: `container_devices["/dev/x/../y"]: the path is not`},
		{decide: "device /dev/x u", want: `container_devices["/dev/x"]: the type is "u", want c, b or p`},
		{decide: "device /dev/null c 1:3 4666", want: `container_devices["/dev/null"]: file_mode is 2486, want 0 to 511`},
		{decide: "device /dev/x p", want: `container_devices["/dev/x"]: a FIFO has no number`},
		{decide: "cpu_idle 1", level: abi.LevelQOS, want: `cpu_idle = 1 is not granted: a kubelet cannot start while a QoS class is idle; decisionGrants {"idleQOSClasses":true} would allow it`},
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
	sandbox.Stages = []abi.Stage{abi.PreRunPodSandbox, abi.Reconcile}
	sandbox.Levels = []abi.Level{abi.LevelPod, abi.LevelQOS}
	container.Levels = []abi.Level{abi.LevelContainer}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{sandbox, container}})
	for _, c := range []struct {
		stage abi.Stage
		level abi.Level
		want  map[string]string
	}{
		{abi.PreRunPodSandbox, abi.LevelPod, map[string]string{"stage": "PreRunPodSandbox Pod"}},
		{abi.Reconcile, abi.LevelQOS, map[string]string{"stage": "Reconcile QOS"}},
		{abi.PostStopPodSandbox, abi.LevelPod, nil},
		{abi.PreStartContainer, abi.LevelContainer, map[string]string{"stage": "PreStartContainer Container"}},
		{abi.Stage(-1), abi.LevelPod, nil},
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
	if !errors.As(err, &status) || status.Plugin != "a" || status.Reason != "x" || status.Code != codes.Uncoded {
		t.Errorf("an error of the guest is %#v", err)
	}
	err = decide(t.Context(), "", "panic x")
	var trap *host.TrapError
	if !errors.As(err, &trap) || trap.Plugin != "b" {
		t.Errorf("a panic of the guest is %#v", err)
	}
	if err = decide(t.Context(), "bytes ff", ""); !errors.Is(err, wire.ErrMalformed) {
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

// A request that is given up does not count as one without a decision.
func TestDecideDoesNotIgnoreTheEndOfTheContext(t *testing.T) {
	p := plugin(t, "p", scripted)
	p.FailurePolicy = host.Ignore
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := e.Decide(ctx, script(nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v and error %v", d, err)
	}
}

func TestOwnershipIsCheckedAtRegistration(t *testing.T) {
	source, err := guest(scripted)
	if err != nil {
		t.Fatal(err)
	}
	with := func(name string, change func(*hooks.PluginConfig), owns ...string) hooks.PluginConfig {
		c := hooks.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{Source: source}}, Owns: owns, DecisionGrants: grants()}
		if change != nil {
			change(&c)
		}
		return c
	}
	at := func(levels ...abi.Level) func(*hooks.PluginConfig) {
		return func(c *hooks.PluginConfig) { c.Levels = levels }
	}
	for _, c := range []struct {
		name    string
		plugins []hooks.PluginConfig
		want    []string
	}{
		{"two owners", []hooks.PluginConfig{with("a", nil, "cpu_shares", "cpu_bvt"), with("b", nil, "cpu_bvt")}, []string{`cpu_bvt is owned by plugin "a" and claimed by plugin "b"`}},
		{"a whole map and a key of it", []hooks.PluginConfig{with("a", nil, "unified[io.weight]"), with("b", nil, "unified")}, []string{`unified[io.weight] is owned by plugin "a"`}},
		{"one key", []hooks.PluginConfig{with("a", nil, "container_envs[A]"), with("b", nil, "container_envs[A]", "container_envs[B]")}, []string{`container_envs[A] is owned`}},
		{"two keys of a map", []hooks.PluginConfig{with("a", nil, "container_envs[A]"), with("b", nil, "container_envs[B]")}, nil},
		{"at other levels", []hooks.PluginConfig{with("a", at(abi.LevelPod), "cpu_bvt"), with("b", at(abi.LevelQOS, abi.LevelContainer), "cpu_bvt")}, nil},
		{"at other stages", []hooks.PluginConfig{
			with("a", func(c *hooks.PluginConfig) { c.Stages = []abi.Stage{abi.PreCreateContainer} }, "cpu_bvt"),
			with("b", func(c *hooks.PluginConfig) { c.Stages = []abi.Stage{abi.Reconcile} }, "cpu_bvt"),
		}, nil},
		{"of other classes", []hooks.PluginConfig{
			with("a", func(c *hooks.PluginConfig) { c.Selector.QOSClasses = []abi.QOSClass{abi.QOSBestEffort} }, "cpu_bvt"),
			with("b", func(c *hooks.PluginConfig) { c.Selector.QOSClasses = []abi.QOSClass{abi.QOSBurstable} }, "cpu_bvt"),
		}, nil},
		{"in other namespaces", []hooks.PluginConfig{
			with("a", func(c *hooks.PluginConfig) {
				c.Selector.Namespaces, c.Levels = []string{"x"}, []abi.Level{abi.LevelPod}
			}, "cpu_bvt"),
			with("b", func(c *hooks.PluginConfig) { c.Selector.Namespaces = []string{"y"} }, "cpu_bvt"),
		}, nil},
		{"in a dry run", []hooks.PluginConfig{with("a", nil, "cpu_bvt"), with("b", func(c *hooks.PluginConfig) { c.Mode = host.Monitor }, "cpu_bvt")}, nil},
		{"names that are no fields", []hooks.PluginConfig{
			with("a", func(c *hooks.PluginConfig) {
				c.Reads = []string{"everything"}
				c.Selector = hooks.Selector{Labels: "((", QOSClasses: []abi.QOSClass{7}}
			}, "cpu.shares", "cpu_shares[a]", "unified["),
		}, []string{`plugin "a": owns: "cpu.shares" is no field`, `"cpu_shares[a]" is no field`, `"unified[" is no field`, `reads: "everything" is no field`, `selector: labels: `, `selector: QoS class 7`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, err := hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: c.plugins})
			if err == nil {
				if err := e.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if len(c.want) != 0 {
					t.Errorf("no error, want %q", c.want)
				}
				return
			}
			if len(c.want) == 0 {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v\nwant one with %s", err, want)
				}
			}
		})
	}
}

func TestDecisionsKeepToWhatIsOwned(t *testing.T) {
	owner, guest := plugin(t, "owner", scripted), plugin(t, "guest", scripted)
	owner.Owns = []string{"cpu_shares", "unified[io.weight]", "container_annotations"}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{owner, guest}})
	for _, c := range []struct{ owner, guest, want string }{
		{owner: "cpu_shares 2\nunified io.weight \"1\"\nannotation a 1", guest: "cpu_bvt 1\nunified io.max \"1\""},
		{owner: "cpu_bvt 1", want: `plugin "owner": decision: it sets cpu_bvt, which is not among the fields that it owns`},
		{owner: "unified io.max \"1\"", want: `it sets unified[io.max], which is not among`},
		{owner: "env A 1", want: `it sets container_envs[A], which is not among`},
		{guest: "cpu_shares 2", want: `plugin "guest": decision: cpu_shares is owned by plugin "owner" and claimed by plugin "guest"`},
		{guest: "unified io.weight \"1\"", want: `unified[io.weight] is owned by plugin "owner"`},
		{guest: "annotation a 1", want: `container_annotations is owned by plugin "owner"`},
	} {
		_, err := e.Decide(t.Context(), script(map[string]string{"owner": c.owner, "guest": c.guest}))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got error %v", c, err)
		}
	}
}

func TestSelector(t *testing.T) {
	p := plugin(t, "p", scripted)
	p.Selector = hooks.Selector{Namespaces: []string{"shop", "blog"}, QOSClasses: []abi.QOSClass{abi.QOSBestEffort}, Labels: "tier in (batch, offline), !pinned"}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}})
	for _, c := range []struct {
		name   string
		change func(*hookmsg.Request)
		want   bool
	}{
		{"all of it", func(*hookmsg.Request) {}, true},
		{"another namespace", func(r *hookmsg.Request) { r.Pod.Namespace = "kube-system" }, false},
		{"another class", func(r *hookmsg.Request) { r.QOSClass = abi.QOSBurstable }, false},
		{"another label", func(r *hookmsg.Request) { r.PodLabels["tier"] = "web" }, false},
		{"one label too many", func(r *hookmsg.Request) { r.PodLabels["pinned"] = "" }, false},
		{"a class has no namespace", func(r *hookmsg.Request) { r.Level, r.Pod, r.PodLabels = abi.LevelQOS, hookmsg.PodMeta{}, nil }, true},
	} {
		req := script(map[string]string{"p": "cpu_shares 2"})
		req.QOSClass, req.PodLabels = abi.QOSBestEffort, map[string]string{"tier": "batch"}
		c.change(req)
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Resources != nil; got != c.want {
			t.Errorf("%s: asked %v, want %v", c.name, got, c.want)
		}
	}
}

func TestAGuestSeesWhatItReads(t *testing.T) {
	whole, part := plugin(t, "whole", scripted), plugin(t, "part", scripted)
	whole.Reads = []string{"pod_annotations", "pod", "container_envs"}
	part.Reads = []string{"pod_annotations[part]", "container"}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{whole, part}})
	for req, want := range map[*hookmsg.Request]string{
		script(map[string]string{"whole": "sees"}): "web-0  1 ",
		script(map[string]string{"part": "sees"}):  " nginx 0 ",
	} {
		req.ContainerEnvs = []hookmsg.Env{{Name: "A", Value: "1"}}
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.ContainerAnnotations["sees"]; got != want {
			t.Errorf("the guest sees %q, want %q", got, want)
		}
	}
}

// TestModuleDeclaresWhatItReads holds that the metadata of a module say what
// travels to it, unless the configuration does.
func TestModuleDeclaresWhatItReads(t *testing.T) {
	file, err := guestbuild.Build(t.Context(), scripted)
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	declaring := func(module []byte, name string, fields ...string) hooks.PluginConfig {
		b, err := metadata.Add(module, &metadata.Metadata{ABI: 1, Kinds: []string{"hook"}, Reads: fields})
		if err != nil {
			t.Fatal(err)
		}
		return hooks.PluginConfig{Config: host.Config{Name: name, Module: host.ModuleConfig{Bytes: b}, Args: []string{name}}, DecisionGrants: grants()}
	}
	// Both have one module, which is compiled once.
	declares, configured := declaring(module, "declares", "pod_annotations[declares]", "container"), declaring(module, "configured", "pod_annotations[declares]", "container")
	configured.Reads = []string{"pod_annotations", "pod"}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{declares, configured}})
	for name, want := range map[string]string{"declares": " nginx 0 ", "configured": "web-0  0 "} {
		req := script(map[string]string{name: "sees"})
		req.ContainerEnvs = []hookmsg.Env{{Name: "A", Value: "1"}}
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.ContainerAnnotations["sees"]; got != want {
			t.Errorf("%s: the guest sees %q, want %q", name, got, want)
		}
	}
	small, err := os.ReadFile("../abi/conformance/testdata/hook.wasm")
	if err != nil {
		t.Fatal(err)
	}
	_, err = hooks.NewEngine(t.Context(), runtime, hooks.Config{Plugins: []hooks.PluginConfig{declaring(small, "wrong", "pod_label")}})
	if err == nil || !strings.Contains(err.Error(), `read the module's declaration of its reads: reads: "pod_label" is no field of a request; did you mean "pod_labels"?`) {
		t.Errorf("got %v", err)
	}
}

func TestKeepLast(t *testing.T) {
	first, keeps := plugin(t, "first", scripted), plugin(t, "keeps", scripted)
	keeps.Order, keeps.FailurePolicy = 1, host.KeepLast
	var log bytes.Buffer
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{first, keeps}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	decide := func(stage abi.Stage, level abi.Level, container, first, keeps string) *hookmsg.Decision {
		t.Helper()
		req := script(map[string]string{"first": first, "keeps": keeps})
		req.Stage, req.Level, req.Pod.UID, req.Container.Name = stage, level, "uid", container
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	shares := func(d *hookmsg.Decision) int64 {
		if d.Resources == nil || d.Resources.CPUShares == nil {
			return 0
		}
		return *d.Resources.CPUShares
	}
	if got := shares(decide(abi.Reconcile, abi.LevelContainer, "web", "", "panic x")); got != 0 {
		t.Errorf("without a decision to keep, shares are %d", got)
	}
	decide(abi.PreCreateContainer, abi.LevelContainer, "web", "", "cpu_shares 10")
	decide(abi.Reconcile, abi.LevelPod, "", "", "cpu_shares 20")
	for range 2 {
		if got := shares(decide(abi.Reconcile, abi.LevelContainer, "web", "cpuset_cpus 0", "cpu_shares 30\npanic x")); got != 10 {
			t.Errorf("shares of the container are %d, want the last good 10", got)
		}
	}
	if got := shares(decide(abi.Reconcile, abi.LevelPod, "", "", "error x")); got != 20 {
		t.Errorf("shares of the pod are %d, want the last good 20", got)
	}
	if got := shares(decide(abi.Reconcile, abi.LevelContainer, "sidecar", "", "error x")); got != 0 {
		t.Errorf("shares of another container are %d", got)
	}
	if got := shares(decide(abi.Reconcile, abi.LevelContainer, "web", "cpu_shares 5", "error x")); got != 5 {
		t.Errorf("beside an earlier plugin that decides otherwise, shares are %d, want its 5", got)
	}
	if !strings.Contains(log.String(), "plugin=keeps") {
		t.Errorf("the log has no word of it: %s", &log)
	}
	decide(abi.PostStopContainer, abi.LevelContainer, "web", "", "")
	if got := shares(decide(abi.Reconcile, abi.LevelContainer, "web", "", "error x")); got != 0 {
		t.Errorf("after the container's end, shares are %d", got)
	}
	decide(abi.Reconcile, abi.LevelContainer, "web", "", "cpu_shares 10")
	end := script(map[string]string{"first": "error x"})
	end.Stage, end.Pod.UID, end.Container.Name = abi.PostStopContainer, "uid", "web"
	if d, err := e.Decide(t.Context(), end); err == nil {
		t.Errorf("a plugin fails, and the decision is %v", d)
	}
	if got := shares(decide(abi.Reconcile, abi.LevelContainer, "web", "", "error x")); got != 0 {
		t.Errorf("after a container's end on which a plugin fails, shares are %d", got)
	}
	e.Forget("uid")
	if got := shares(decide(abi.Reconcile, abi.LevelPod, "", "", "error x")); got != 0 {
		t.Errorf("after the pod's end, shares are %d", got)
	}
}

// What has no name of its own is not kept under that of something else: a sandbox
// without a UID is no QoS class, a container without a name is no pod.
func TestKeepLastTellsPodsFromClasses(t *testing.T) {
	p := plugin(t, "p", scripted)
	p.FailurePolicy = host.KeepLast
	p.GuestConfig = []byte(`{"qos": {"Burstable": "cpu_shares 3", "broken": "panic x"}}`)
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p}})
	decide := func(req *hookmsg.Request) *hookmsg.Resources {
		t.Helper()
		d, err := e.Decide(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return d.Resources
	}
	class := &hookmsg.Request{Stage: abi.Reconcile, Level: abi.LevelQOS, QOSClass: abi.QOSBurstable}
	decide(class)
	nameless := script(map[string]string{"p": "cpu_shares 7"})
	nameless.Container.Name = "Burstable"
	decide(nameless)
	nameless.Stage, nameless.Level = abi.PostStopPodSandbox, abi.LevelPod
	decide(nameless)
	e.Forget("")
	class.CgroupParent = "broken" // The guest fails on it.
	if got := decide(class); got == nil || *got.CPUShares != 3 {
		t.Errorf("the class has %+v", got)
	}
	own := script(map[string]string{"p": "cpu_shares 20"})
	own.Level, own.Pod.UID = abi.LevelPod, "u1"
	decide(own)
	within := script(map[string]string{"p": "cpu_shares 7"})
	within.Pod.UID, within.Container.Name = "u1", ""
	decide(within)
	own.PodAnnotations = map[string]string{"p": "panic x"}
	if got := decide(own); got == nil || *got.CPUShares != 20 {
		t.Errorf("the pod has %+v", got)
	}
}

// monitored is an observer of decisions that do not count.
type monitored func(plugin string, d *hookmsg.Decision)

func (f monitored) Monitored(_ context.Context, _ *hookmsg.Request, plugin string, d *hookmsg.Decision) {
	f(plugin, d)
}

func (monitored) Decided(context.Context, *hookmsg.Request, time.Duration, *hookmsg.Decision, error) {
}

func (monitored) Failed(context.Context, *hookmsg.Request, string, host.FailurePolicy, bool, error) {}

func TestDryRunOfAPlugin(t *testing.T) {
	p, real := plugin(t, "p", scripted), plugin(t, "real", scripted)
	p.Mode, p.FailurePolicy, real.Order = host.Monitor, host.Fail, 1
	var told []string
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p, real}, Observer: monitored(func(plugin string, d *hookmsg.Decision) {
		told = append(told, plugin+" "+d.Fields().String())
	})})
	d, err := e.Decide(t.Context(), script(map[string]string{"p": "cpu_shares 2\nenv A 1", "real": "cpu_shares 4"}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&hookmsg.Decision{Resources: &hookmsg.Resources{CPUShares: new(int64(4))}}, d); diff != "" {
		t.Error(diff)
	}
	if _, err := e.Decide(t.Context(), script(map[string]string{"p": "panic x"})); err != nil {
		t.Errorf("a dry run fails the request: %v", err)
	}
	if diff := cmp.Diff([]string{"p cpu_shares, container_envs"}, told); diff != "" {
		t.Error(diff)
	}
}

func TestEngineSwap(t *testing.T) {
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "p", scripted)}})
	if err := e.Warm(t.Context()); err != nil {
		t.Fatal(err)
	}
	changed := e.Changed()
	if err := e.Swap(t.Context(), "p", host.Bytes([]byte("no")), ""); err == nil {
		t.Error("a module that is none was taken")
	}
	if err := e.Swap(t.Context(), "q", host.Bytes(nil), ""); err == nil || !strings.Contains(err.Error(), `no plugin "q"`) {
		t.Errorf("got error %v", err)
	}
	select {
	case <-changed:
		t.Error("a swap that failed is a change")
	default:
	}
	source, err := guest(cpuFromAnnotation)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Swap(t.Context(), "p", source, ""); err != nil {
		t.Fatal(err)
	}
	<-changed
	d, err := e.Decide(t.Context(), webRequest())
	if err != nil {
		t.Fatal(err)
	}
	if d.Resources == nil || *d.Resources.CPUShares != 1536 {
		t.Errorf("the new version decides %+v", d)
	}
}

// A file that is replaced is swapped in; one that is no module is not; a plugin
// whose digest is pinned stays.
func TestPluginsFollowTheirModules(t *testing.T) {
	modules := map[string][]byte{"no module": []byte("no")}
	for _, dir := range []string{scripted, cpuFromAnnotation} {
		source, err := guest(dir)
		if err != nil {
			t.Fatal(err)
		}
		if modules[dir], err = source.Fetch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "plugin.wasm")
	replace := func(with string) {
		t.Helper()
		if err := os.WriteFile(file+".next", modules[with], 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".next", file); err != nil {
			t.Fatal(err)
		}
	}
	replace(scripted)
	sum := sha256.Sum256(modules[scripted])
	failed := make(logged, 10)
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{
		{Config: host.Config{Name: "p", Module: host.ModuleConfig{File: file, Follow: true}, Logger: slog.New(slog.NewTextHandler(failed, &slog.HandlerOptions{Level: slog.LevelError}))}},
		{Config: host.Config{Name: "pinned", Module: host.ModuleConfig{File: file, SHA256: hex.EncodeToString(sum[:])}, Args: []string{"pinned"}}},
	}})
	replace("no module")
	if line := <-failed; !strings.Contains(line, "the declared module is not in service, an earlier one is") {
		t.Errorf("logged is %s", line)
	}
	changed := e.Changed()
	replace(cpuFromAnnotation)
	<-changed
	req := webRequest()
	req.PodAnnotations["p"], req.PodAnnotations["pinned"] = "error x", "cpuset_cpus 0"
	d, err := e.Decide(t.Context(), req)
	if err != nil || *d.Resources.CPUShares != 1536 || d.Resources.CPUSetCPUs == nil {
		t.Errorf("got %+v, error %v", d, err)
	}
}

// logged receives what is written.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A guest that does not come back, or takes all memory, costs its own decision.
func TestAGuestThatLoopsOrHogsIsStopped(t *testing.T) {
	p, other := plugin(t, "p", scripted), plugin(t, "other", scripted)
	p.FailurePolicy = host.Ignore
	p.Limits = host.Limits{Timeout: 50 * time.Millisecond, MemoryBytes: 16 << 20}
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{p, other}})
	for _, command := range []string{"loop", "hog", "panic x"} {
		d, err := e.Decide(t.Context(), script(map[string]string{"p": command, "other": "cpu_shares 2"}))
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		if diff := cmp.Diff(&hookmsg.Decision{Resources: &hookmsg.Resources{CPUShares: new(int64(2))}}, d); diff != "" {
			t.Errorf("%s: %s", command, diff)
		}
		d, err = e.Decide(t.Context(), script(map[string]string{"p": "cpu_bvt 1"}))
		if err != nil || d.Resources == nil || *d.Resources.CPUBvt != 1 {
			t.Errorf("after %s the plugin decides %+v, error %v", command, d, err)
		}
	}
}

func TestNewEngineRefuses(t *testing.T) {
	source, err := guest(scripted)
	if err != nil {
		t.Fatal(err)
	}
	good := hooks.PluginConfig{Config: host.Config{Name: "good", Module: host.ModuleConfig{Source: source}}}
	for _, c := range []struct {
		name    string
		plugins []hooks.PluginConfig
		want    []string
	}{
		{"every mistake at once", []hooks.PluginConfig{
			good, good,
			{Config: host.Config{Name: "b"}, Stages: []abi.Stage{77}, Levels: []abi.Level{0}, FailurePolicy: "Panic"},
		}, []string{
			`plugin "good": the name is used twice`, `plugin "b": stage 77 is not known`,
			`plugin "b": level 0 is not known`, `plugin "b": failurePolicy is "Panic", want Fail, Ignore or KeepLast`,
		}},
		{"a module that is none", []hooks.PluginConfig{good, {Config: host.Config{Name: "b", Module: host.ModuleConfig{Bytes: []byte("no")}}}}, []string{`plugin "b": load module: `}},
		{"a plugin without a source", []hooks.PluginConfig{{Config: host.Config{Name: "b"}}}, []string{`plugin "b": configuration: module is missing`}},
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

func TestDecideAllocations(t *testing.T) {
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "cpu", cpuFromAnnotation)}})
	same, other := webRequest(), webRequest()
	var amounts []string
	for i := range 2000 {
		amounts = append(amounts, fmt.Sprintf("%dm", 2000+i))
	}
	// Once for each, so that there is room for what is kept.
	next := 0
	another := func() {
		other.PodAnnotations["kubewasm.dev/cpu"] = amounts[next%len(amounts)]
		next++
		if _, err := e.Decide(t.Context(), other); err != nil {
			t.Error(err)
		}
	}
	for range amounts {
		another()
	}
	for _, tt := range []struct {
		name   string
		decide func()
		want   float64
	}{
		{"the same", func() {
			if _, err := e.Decide(t.Context(), same); err != nil {
				t.Error(err)
			}
		}, 0},
		{"another", another, 1},
	} {
		if n := testing.AllocsPerRun(200, tt.decide); n > tt.want && !race.Enabled {
			t.Errorf("%s: %v allocations, want %v", tt.name, n, tt.want)
		}
	}
}

// A decision that was accepted is accepted again for an equal request, and no answer
// changes when another one is merged from it.
func TestAcceptedDecisionsAreCached(t *testing.T) {
	first, second := plugin(t, "first", scripted), plugin(t, "second", scripted)
	first.Order, second.Order = 1, 2
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{first, second}})
	resources := func(shares, bvt int64) *hookmsg.Decision {
		r := &hookmsg.Resources{CPUShares: &shares}
		if bvt != 0 {
			r.CPUBvt = &bvt
		}
		return &hookmsg.Decision{Resources: r}
	}
	var answers, wants []*hookmsg.Decision
	for range 2 {
		for _, tt := range []struct {
			lines map[string]string
			want  *hookmsg.Decision
		}{
			{map[string]string{"first": "cpu_shares 512"}, resources(512, 0)},
			{map[string]string{"first": "cpu_shares 512", "second": "cpu_bvt 2"}, resources(512, 2)},
			{map[string]string{"first": "cpu_shares 1024", "second": "cpu_bvt 2"}, resources(1024, 2)},
			{map[string]string{"first": "cpu_shares 512", "second": "cpu_bvt -1"}, resources(512, -1)},
		} {
			got, err := e.Decide(t.Context(), script(tt.lines))
			if err != nil {
				t.Fatal(err)
			}
			answers, wants = append(answers, got), append(wants, tt.want)
		}
	}
	if diff := cmp.Diff(wants, answers); diff != "" {
		t.Error(diff)
	}

	score := script(map[string]string{"first": "oom_score_adj 500"})
	if _, err := e.Decide(t.Context(), score); err != nil {
		t.Fatal(err)
	}
	ofPod := *score
	ofPod.Level, ofPod.Container = abi.LevelPod, hookmsg.ContainerMeta{}
	var refused *hooks.DecisionError
	if d, err := e.Decide(t.Context(), &ofPod); !errors.As(err, &refused) {
		t.Errorf("a pod's oom_score_adj: got %v and error %v, want a DecisionError", d, err)
	}
	// Each decision is right, and both together are not.
	for range 2 {
		var conflict *hooks.ConflictError
		if d, err := e.Decide(t.Context(), script(map[string]string{"first": "cpu_shares 512", "second": "cpu_shares 1024"})); !errors.As(err, &conflict) {
			t.Errorf("two cpu_shares: got %v and error %v, want a ConflictError", d, err)
		}
	}
}

// A decision stays as it is while its instance makes others, whose bytes take the place of
// its own.
func TestADecisionOutlivesItsCall(t *testing.T) {
	cfg := plugin(t, "first", scripted)
	cfg.Limits.Instances = 1
	e := engine(t, hooks.Config{Audit: func(context.Context, *hookmsg.Request, string, *hooks.GrantError) {}, Plugins: []hooks.PluginConfig{cfg}})
	decide := func(n int) *hookmsg.Decision {
		text := fmt.Sprintf("%03d", n)
		d, err := e.Decide(t.Context(), script(map[string]string{"first": "cpuset_cpus " + text + "\nunified io.weight \"" + text + "\"\nannotation " + text + " " + text +
			"\nenv E" + text + " " + text + "\nmount /" + text + " /" + text + "\ndevice /dev/" + text + " c"}))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	var answers []*hookmsg.Decision
	var encoded [][]byte
	for n := range 300 { // More than an instance keeps.
		d := decide(n)
		answers, encoded = append(answers, d), append(encoded, d.Append(nil))
	}
	for n, d := range answers {
		if got := d.Append(nil); !bytes.Equal(got, encoded[n]) {
			t.Fatalf("decision %d is %q now, was %q", n, got, encoded[n])
		}
	}
}

// Several goroutines get their own answers, while guests trap and are replaced.
func TestDecideHammer(t *testing.T) {
	a, b := plugin(t, "a", scripted), plugin(t, "b", scripted)
	a.Limits.Instances, b.Limits.Instances = 2, 3
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
				want := &hookmsg.Decision{Resources: &hookmsg.Resources{CPUShares: &shares, CPUSetCPUs: new(fmt.Sprint(g))}}
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
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	cmd.Dir, cmd.Env = cpuFromAnnotation, append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
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

// From an annotation to the kernel, by way of a guest.
func TestDecideAndApplyToRealCgroups(t *testing.T) {
	tree := cgrouptest.New(t)
	req := webRequest()
	req.CgroupParent, req.Container.ID = tree.Make("pod"), "web"
	web := tree.Make("pod/web")
	e := engine(t, hooks.Config{Plugins: []hooks.PluginConfig{plugin(t, "cpu", cpuFromAnnotation)}})
	a, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: cgrouptest.Mount})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	decision, err := e.Decide(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	of, err := cgroup.Layout{}.Of(req)
	if err != nil || of != web {
		t.Fatalf("the cgroup is %s, error %v", of, err)
	}
	if _, err := a.Apply(t.Context(), cgroup.Target{Cgroup: of, Resources: decision.Resources}); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"cpu.shares": "1536", "cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"}
	if tree.V2 {
		want = map[string]string{"cpu.weight": "140", "cpu.max": "150000 100000"}
	}
	for file, text := range want {
		if got := tree.Read(web, file); got != text {
			t.Errorf("%s is %q, want %q", file, got, text)
		}
	}
}
