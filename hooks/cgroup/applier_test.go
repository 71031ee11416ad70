package cgroup_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// tree makes files below a new directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// in puts files into a directory.
func in(dir string, files map[string]string) map[string]string {
	out := map[string]string{}
	for name, text := range files {
		out[dir+"/"+name] = text
	}
	return out
}

func join(trees ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, files := range trees {
		maps.Copy(out, files)
	}
	return out
}

func read(t testing.TB, root string, names ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(text)
	}
	return out
}

func applier(t testing.TB, cfg cgroup.ApplierConfig) *cgroup.Applier {
	t.Helper()
	a, err := cgroup.NewApplier(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

var (
	cpuV1 = map[string]string{
		"cpu.shares": "1024\n", "cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n", "cpu.cfs_burst_us": "0\n", "cpu.idle": "0\n", "cpu.bvt_warp_ns": "0\n",
	}
	cpusetV1 = map[string]string{"cpuset.cpus": "0-7\n", "cpuset.mems": "0\n"}
	memoryV1 = map[string]string{"memory.limit_in_bytes": "9223372036854771712\n", "memory.high": "9223372036854771712\n", "memory.low": "0\n", "memory.min": "0\n"}
	filesV2  = map[string]string{
		"cpu.weight": "100\n", "cpu.max": "max 100000\n", "cpu.max.burst": "0\n", "cpu.idle": "0\n", "cpuset.cpus": "\n", "cpuset.mems": "\n",
		"memory.max": "max\n", "memory.high": "max\n", "memory.low": "0\n", "memory.min": "0\n", "io.weight": "default 100\n",
	}
	// The layouts that an Applier knows, with the cgroup "pod" in each.
	splitV1 = join(in("cpu/pod", cpuV1), in("cpuset/pod", cpusetV1), in("memory/pod", memoryV1))
	flatV1  = join(map[string]string{"cpu.shares": "1024"}, in("pod", join(cpuV1, cpusetV1, memoryV1)))
	treeV2  = join(map[string]string{"cgroup.controllers": "cpuset cpu io memory\n"}, in("pod", filesV2))
)

func TestApply(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	everything := hookmsg.Resources{
		CPUShares: n(2048), CFSQuotaUS: n(150_000), CFSPeriodUS: n(50_000), CPUBurstUS: n(1000),
		CPUSetCPUs: new("0-3"), CPUSetMems: new("0-1"),
		MemoryLimitBytes: n(1 << 30), MemoryHighBytes: n(1 << 29), MemoryLowBytes: n(1 << 28), MemoryMinBytes: n(1 << 27),
	}
	for _, c := range []struct {
		name   string
		files  map[string]string
		weight cgroup.WeightConversion
		// write is written to the tree before.
		write     map[string]string
		resources hookmsg.Resources
		want      []string
	}{
		{
			name: "every field, v1, a directory for each controller", files: splitV1, resources: everything,
			want: []string{
				"cpu/pod/cpu.shares: 1024 -> 2048", "cpuset/pod/cpuset.mems: 0 -> 0-1",
				"memory/pod/memory.low: 0 -> 268435456", "memory/pod/memory.min: 0 -> 134217728",
				// What tightens comes last.
				"cpu/pod/cpu.cfs_period_us: 100000 -> 50000", "cpu/pod/cpu.cfs_quota_us: -1 -> 150000", "cpu/pod/cpu.cfs_burst_us: 0 -> 1000",
				"cpuset/pod/cpuset.cpus: 0-7 -> 0-3",
				"memory/pod/memory.limit_in_bytes: 9223372036854771712 -> 1073741824", "memory/pod/memory.high: 9223372036854771712 -> 536870912",
			},
		},
		{
			name: "every field, v2", files: treeV2, resources: func() hookmsg.Resources {
				r := everything
				r.Unified = map[string]string{"io.weight": "default 50"}
				return r
			}(),
			want: []string{
				"pod/cpu.weight: 100 -> 174", "pod/cpuset.mems:  -> 0-1", "pod/cpuset.cpus:  -> 0-3",
				"pod/memory.low: 0 -> 268435456", "pod/memory.min: 0 -> 134217728", "pod/io.weight: default 100 -> default 50",
				// What tightens comes last.
				"pod/cpu.max: max 100000 -> 150000 50000", "pod/cpu.max.burst: 0 -> 1000", "pod/memory.max: max -> 1073741824", "pod/memory.high: max -> 536870912",
			},
		},
		{
			name: "v1, all files in one directory", files: flatV1, resources: hookmsg.Resources{CPUShares: n(2), CPUBvt: n(-1), MemoryLimitBytes: n(1 << 20)},
			want: []string{"pod/cpu.shares: 1024 -> 2", "pod/cpu.bvt_warp_ns: 0 -> -1", "pod/memory.limit_in_bytes: 9223372036854771712 -> 1048576"},
		},
		{name: "nothing decided", files: splitV1},
		{
			name: "the same in other words, v1", files: splitV1, write: map[string]string{"memory/pod/memory.low": "1048576\n"},
			resources: hookmsg.Resources{
				CPUShares: n(1024), CFSQuotaUS: n(-1), CFSPeriodUS: n(100_000), CPUIdle: n(0), CPUSetCPUs: new("4-7,0,1,2,3"),
				MemoryLimitBytes: n(-1), MemoryHighBytes: n(-1), MemoryLowBytes: n(1<<20 + 1), MemoryMinBytes: n(0),
			},
		},
		{
			name: "the same in other words, v2", files: treeV2,
			resources: hookmsg.Resources{CPUShares: n(1024), CFSQuotaUS: n(-1), CPUBurstUS: n(0), MemoryLimitBytes: n(-1), Unified: map[string]string{"io.weight": " default 100"}},
		},
		{
			name: "the linear weight of older runtimes", files: treeV2, weight: cgroup.WeightLinear, resources: hookmsg.Resources{CPUShares: n(1024)},
			want: []string{"pod/cpu.weight: 100 -> 39"},
		},
		{
			name: "v1, an empty cpuset is the parent's", files: join(splitV1, map[string]string{"cpuset/cpuset.cpus": "0-15\n", "cpuset/cpuset.mems": "0\n"}),
			resources: hookmsg.Resources{CPUSetCPUs: new(""), CPUSetMems: new("")},
			want:      []string{"cpuset/pod/cpuset.cpus: 0-7 -> 0-15"},
		},
		{
			name: "v2, an empty cpuset is the parent's", files: join(treeV2, map[string]string{"cpuset.cpus.effective": "0-15\n"}), write: map[string]string{"pod/cpuset.cpus": "0-3\n"},
			resources: hookmsg.Resources{CPUSetCPUs: new(""), CPUSetMems: new("")},
			want:      []string{"pod/cpuset.cpus: 0-3 -> 0-15"},
		},
		{
			name: "v1, other files of controllers", files: join(splitV1, in("blkio/pod", map[string]string{"blkio.weight": "500\n"}), in("pids/pod", map[string]string{"pids.max": "max\n"}), map[string]string{"memory/pod/memory.swappiness": "60\n"}),
			resources: hookmsg.Resources{Unified: map[string]string{"blkio.weight": "100", "pids.max": "10", "memory.swappiness": "0"}},
			want:      []string{"blkio/pod/blkio.weight: 500 -> 100", "memory/pod/memory.swappiness: 60 -> 0", "pids/pod/pids.max: max -> 10"},
		},
		{
			name: "v1, a class of packets", files: join(splitV1, map[string]string{"net_cls/pod/net_cls.classid": "0\n"}),
			resources: hookmsg.Resources{NetClsClassID: n(0x100001)},
			want:      []string{"net_cls/pod/net_cls.classid: 0 -> 1048577"},
		},
		{
			name: "v1, the largest class of packets is there", files: join(splitV1, map[string]string{"net_cls/pod/net_cls.classid": "4294967295\n"}),
			resources: hookmsg.Resources{NetClsClassID: n(math.MaxUint32)},
		},
		{name: "the kernel weighs an idle cgroup itself", files: splitV1, resources: hookmsg.Resources{CPUShares: n(2), CPUIdle: n(1)}, want: []string{"cpu/pod/cpu.idle: 0 -> 1"}},
		{
			name: "an idle cgroup wakes before it takes shares", files: splitV1, write: map[string]string{"cpu/pod/cpu.idle": "1\n", "cpu/pod/cpu.shares": "3\n"},
			resources: hookmsg.Resources{CPUShares: n(2048), CPUIdle: n(0)},
			want:      []string{"cpu/pod/cpu.idle: 1 -> 0", "cpu/pod/cpu.shares: 3 -> 2048"},
		},
		{
			name: "v2, the quota alone keeps the period", files: treeV2, write: map[string]string{"pod/cpu.max": "50000 200000\n"},
			resources: hookmsg.Resources{CFSQuotaUS: n(300_000)}, want: []string{"pod/cpu.max: 50000 200000 -> 300000 200000"},
		},
		{
			name: "v2, the period alone keeps the quota", files: treeV2, resources: hookmsg.Resources{CFSPeriodUS: n(10_000)},
			want: []string{"pod/cpu.max: max 100000 -> max 10000"},
		},
		{
			name: "v2, no limit any more", files: treeV2, write: map[string]string{"pod/cpu.max": "50000 100000\n", "pod/memory.max": "4096\n"},
			resources: hookmsg.Resources{CFSQuotaUS: n(-1), MemoryLimitBytes: n(-1)},
			want:      []string{"pod/cpu.max: 50000 100000 -> max 100000", "pod/memory.max: 4096 -> max"},
		},
		{
			name: "v1, quota before a shorter period", files: splitV1, write: map[string]string{"cpu/pod/cpu.cfs_quota_us": "100000"},
			resources: hookmsg.Resources{CFSQuotaUS: n(80_000), CFSPeriodUS: n(20_000)},
			// 1 CPU to 4: 0.8 is not between, 5 neither.
			want: []string{"cpu/pod/cpu.cfs_quota_us: 100000 -> -1", "cpu/pod/cpu.cfs_period_us: 100000 -> 20000", "cpu/pod/cpu.cfs_quota_us: -1 -> 80000"},
		},
		{
			name: "v1, quota first when that lies between", files: splitV1, write: map[string]string{"cpu/pod/cpu.cfs_quota_us": "100000"},
			resources: hookmsg.Resources{CFSQuotaUS: n(200_000), CFSPeriodUS: n(50_000)},
			want:      []string{"cpu/pod/cpu.cfs_quota_us: 100000 -> 200000", "cpu/pod/cpu.cfs_period_us: 100000 -> 50000"},
		},
		{
			name: "v1, the period first when a limit is new", files: splitV1, resources: hookmsg.Resources{CFSQuotaUS: n(20_000), CFSPeriodUS: n(10_000)},
			want: []string{"cpu/pod/cpu.cfs_period_us: 100000 -> 10000", "cpu/pod/cpu.cfs_quota_us: -1 -> 20000"},
		},
		{
			name: "v1, the quota first when the limit goes", files: splitV1, write: map[string]string{"cpu/pod/cpu.cfs_quota_us": "100000"},
			resources: hookmsg.Resources{CFSQuotaUS: n(-1), CFSPeriodUS: n(10_000)},
			want:      []string{"cpu/pod/cpu.cfs_quota_us: 100000 -> -1", "cpu/pod/cpu.cfs_period_us: 100000 -> 10000"},
		},
		{
			name: "v1, the burst shrinks before its quota", files: splitV1, write: map[string]string{"cpu/pod/cpu.cfs_quota_us": "100000", "cpu/pod/cpu.cfs_burst_us": "50000"},
			resources: hookmsg.Resources{CFSQuotaUS: n(20_000), CPUBurstUS: n(10_000)},
			want:      []string{"cpu/pod/cpu.cfs_burst_us: 50000 -> 10000", "cpu/pod/cpu.cfs_quota_us: 100000 -> 20000"},
		},
		{
			name: "v1, the burst grows after its quota", files: splitV1, write: map[string]string{"cpu/pod/cpu.cfs_quota_us": "10000"},
			resources: hookmsg.Resources{CFSQuotaUS: n(20_000), CPUBurstUS: n(15_000)},
			want:      []string{"cpu/pod/cpu.cfs_quota_us: 10000 -> 20000", "cpu/pod/cpu.cfs_burst_us: 0 -> 15000"},
		},
		{
			name: "v1, a burst that shrinks while the limit grows", files: splitV1, write: map[string]string{"cpu/pod/cpu.cfs_quota_us": "80000", "cpu/pod/cpu.cfs_burst_us": "50000"},
			resources: hookmsg.Resources{CFSQuotaUS: n(20_000), CFSPeriodUS: n(10_000), CPUBurstUS: n(10_000)},
			want: []string{
				"cpu/pod/cpu.cfs_burst_us: 50000 -> 10000", "cpu/pod/cpu.cfs_quota_us: 80000 -> -1",
				"cpu/pod/cpu.cfs_period_us: 100000 -> 10000", "cpu/pod/cpu.cfs_quota_us: -1 -> 20000",
			},
		},
		{
			name: "v1, a cpuset that moves holds both in between", files: splitV1, resources: hookmsg.Resources{CPUSetCPUs: new("6-9")},
			want: []string{"cpuset/pod/cpuset.cpus: 0-7 -> 0-9", "cpuset/pod/cpuset.cpus: 0-9 -> 6-9"},
		},
		{
			name: "v2, a cpuset moves at once", files: treeV2, write: map[string]string{"pod/cpuset.cpus": "0-7"}, resources: hookmsg.Resources{CPUSetCPUs: new("6-9")},
			want: []string{"pod/cpuset.cpus: 0-7 -> 6-9"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := tree(t, join(c.files, c.write))
			before := read(t, root, slices.Collect(maps.Keys(c.files))...)
			a := applier(t, cgroup.ApplierConfig{Root: root, Weight: c.weight})
			target := cgroup.Target{Cgroup: "pod", Resources: &c.resources}

			planned, err := a.DryRun(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, read(t, root, slices.Collect(maps.Keys(c.files))...)); diff != "" {
				t.Errorf("a dry run wrote: %s", diff)
			}
			changes, err := a.Apply(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(planned, changes); diff != "" {
				t.Errorf("the dry run planned otherwise: %s", diff)
			}
			var got []string
			written := map[string]string{}
			for _, change := range changes {
				got = append(got, change.String())
				written[change.File] = change.To
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			is := read(t, root, slices.Collect(maps.Keys(written))...)
			for file, text := range is {
				is[file] = strings.TrimSuffix(text, "\n") // What stands for nothing.
			}
			if diff := cmp.Diff(written, is); diff != "" {
				t.Errorf("the files: %s", diff)
			}
			if again, err := a.Apply(t.Context(), target); err != nil || len(again) != 0 {
				t.Errorf("a second time it writes %v, error %v", again, err)
			}
		})
	}
}

// The pod's and the container's cgroups are widened from the top down and
// tightened from the bottom up, in whatever order they are given.
func TestApplyOrdersTargets(t *testing.T) {
	pod := func(quota, cpus string) map[string]string {
		return join(
			in("cpu/pod", map[string]string{"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"}), in("cpuset/pod", map[string]string{"cpuset.cpus": cpus}),
			in("cpu/pod/web", map[string]string{"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"}), in("cpuset/pod/web", map[string]string{"cpuset.cpus": cpus}),
		)
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		quota int64
		cpus  string
		want  []string
	}{
		{"wider", pod("100000", "0-1"), 200_000, "0-3", []string{
			"cpu/pod/cpu.cfs_quota_us", "cpuset/pod/cpuset.cpus", "cpu/pod/web/cpu.cfs_quota_us", "cpuset/pod/web/cpuset.cpus",
		}},
		{"tighter", pod("100000", "0-3"), 50_000, "0-1", []string{
			"cpu/pod/web/cpu.cfs_quota_us", "cpuset/pod/web/cpuset.cpus", "cpu/pod/cpu.cfs_quota_us", "cpuset/pod/cpuset.cpus",
		}},
		{"elsewhere", pod("100000", "0-1"), 100_000, "2-3", []string{
			"cpuset/pod/cpuset.cpus", "cpuset/pod/web/cpuset.cpus", "cpuset/pod/web/cpuset.cpus", "cpuset/pod/cpuset.cpus",
		}},
	} {
		for _, cgroups := range [][]string{{"pod", "pod/web"}, {"pod/web", "pod"}} {
			t.Run(c.name+" "+cgroups[0], func(t *testing.T) {
				a := applier(t, cgroup.ApplierConfig{Root: tree(t, c.files)})
				var targets []cgroup.Target
				for _, path := range cgroups {
					targets = append(targets, cgroup.Target{Cgroup: path, Resources: &hookmsg.Resources{CFSQuotaUS: &c.quota, CPUSetCPUs: &c.cpus}})
				}
				changes, err := a.Apply(t.Context(), targets...)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, change := range changes {
					got = append(got, change.File)
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func TestApplyStaysBelowTheRoot(t *testing.T) {
	outside := tree(t, in("pod", cpuV1))
	root := tree(t, join(flatV1, in("other", cpuV1), in("linked", map[string]string{"cpu.cfs_quota_us": "-1"})))
	for name, to := range map[string]string{
		"away": outside, "relative": "../" + filepath.Base(outside), "inside": "other", "linked/cpu.shares": "../other/cpu.shares",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := read(t, outside, "pod/cpu.shares")
	a := applier(t, cgroup.ApplierConfig{Root: root})
	for _, path := range []string{
		"", ".", "..", "/", "/pod", "../" + filepath.Base(outside) + "/pod", "pod/..", "pod/../pod", "pod/../../x", "pod/", "pod//x", "./pod",
		"away/pod", "relative/pod", "inside", "linked",
	} {
		changes, err := a.Apply(t.Context(), cgroup.Target{Cgroup: path, Resources: &hookmsg.Resources{CPUShares: new(int64(2))}})
		if !errors.Is(err, cgroup.ErrEscapes) || len(changes) != 0 {
			t.Errorf("cgroup %q: changes %v and error %v, want ErrEscapes", path, changes, err)
		}
	}
	if diff := cmp.Diff(before, read(t, outside, "pod/cpu.shares")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"other/cpu.shares": "1024\n"}, read(t, root, "other/cpu.shares")); diff != "" {
		t.Error(diff)
	}
}

// One file that fails does not keep the others from being written, and says
// which it is.
func TestApplyErrors(t *testing.T) {
	files := join(splitV1, in("cpu/broken", map[string]string{"cpu.cfs_quota_us": "lots", "cpu.cfs_period_us": "100000"}), in("cpu/plain", map[string]string{"cpu.shares": "1024"}), in("cpu/elsewhere", map[string]string{"cgroup.procs": "0\n"}))
	delete(files, "memory/pod/memory.high")
	root := tree(t, files)
	if err := os.Mkdir(filepath.Join(root, "cpu/plain/cpu.idle"), 0o755); err != nil {
		t.Fatal(err)
	}
	a := applier(t, cgroup.ApplierConfig{Root: root})
	shares := hookmsg.Resources{CPUShares: new(int64(2))}
	with := func(change func(*hookmsg.Resources)) *hookmsg.Resources {
		r := shares
		change(&r)
		return &r
	}
	for _, c := range []struct {
		name    string
		cgroup  string
		give    *hookmsg.Resources
		is      error
		text    string
		changes int
	}{
		{"a cgroup that is gone", "gone", &shares, fs.ErrNotExist, "open cpu/gone: no such file or directory", 0},
		{"a file that the kernel does not have", "pod", with(func(r *hookmsg.Resources) { r.MemoryHighBytes = new(int64(4096)) }), fs.ErrNotExist, "read memory/pod/memory.high: no such file or directory", 1},
		{"a controller that the cgroup is not in", "plain", with(func(r *hookmsg.Resources) { r.MemoryLimitBytes = new(int64(4096)) }), fs.ErrNotExist, "open memory/plain: no such file or directory", 1},
		{"a directory where a file should be", "plain", with(func(r *hookmsg.Resources) { r.CPUIdle = new(int64(0)) }), cgroup.ErrEscapes, "read cpu/plain/cpu.idle: not a regular file", 0},
		{"a file that is none of the kernel's", "broken", &hookmsg.Resources{CFSQuotaUS: new(int64(-1))}, nil, `read cpu/broken/cpu.cfs_quota_us: "lots" and "100000" are not a quota and a period`, 0},
		{"processes that are not there", "pod", with(func(r *hookmsg.Resources) { r.CPUShares, r.OOMScoreAdj = new(int64(4)), new(int64(1)) }), fs.ErrNotExist, `read cpu/pod/cgroup.procs: no such file or directory`, 1},
		{"processes of another namespace", "elsewhere", &hookmsg.Resources{OOMScoreAdj: new(int64(1))}, cgroup.ErrUnsupported, `apply oom_score_adj to cgroup "elsewhere": its processes are in another PID namespace`, 0},
		{"a file of v2", "pod", &hookmsg.Resources{Unified: map[string]string{"io.weight": "1"}}, cgroup.ErrUnsupported, `open io: the controller is not mounted: no cgroup file holds it`, 0},
		{"a class of packets without its controller", "pod", &hookmsg.Resources{NetClsClassID: new(int64(1))}, cgroup.ErrUnsupported, `open net_cls: the controller is not mounted: no cgroup file holds it`, 0},
		{"a list that is none", "pod", &hookmsg.Resources{CPUSetCPUs: new("x")}, nil, `apply cpuset.cpus to cgroup "pod": "x" is not a list`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, err := a.Apply(t.Context(), cgroup.Target{Cgroup: c.cgroup, Resources: c.give})
			if err == nil || !strings.Contains(err.Error(), c.text) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got error %v\nwant one with %s", err, c.text)
			}
			if len(changes) != c.changes {
				t.Errorf("got changes %v, want %d", changes, c.changes)
			}
		})
	}

	t.Run("the end of the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		changes, err := a.Apply(ctx, cgroup.Target{Cgroup: "pod", Resources: &hookmsg.Resources{CPUShares: new(int64(8))}})
		if !errors.Is(err, context.Canceled) || len(changes) != 0 {
			t.Errorf("got changes %v and error %v", changes, err)
		}
	})
}

func TestApplyUnifiedIsChecked(t *testing.T) {
	a := applier(t, cgroup.ApplierConfig{Root: tree(t, treeV2)})
	for file, want := range map[string]string{
		"../cgroup.x": "not a cgroup file's name", "cgroup.kill": "a file of the cgroup core", "cpu.weight": "another field writes the file",
		"io.latency": "read pod/io.latency: no such file or directory",
	} {
		_, err := a.Apply(t.Context(), cgroup.Target{Cgroup: "pod", Resources: &hookmsg.Resources{CPUShares: new(int64(1024)), Unified: map[string]string{file: "1"}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %s", file, err, want)
		}
	}
}

func TestNewApplierTellsTheVersion(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		give  cgroup.Version
		want  cgroup.Version
		err   string
	}{
		{name: "v2", files: treeV2, want: cgroup.V2},
		{name: "v1", files: splitV1, want: cgroup.V1},
		{name: "v1 in one directory", files: flatV1, want: cgroup.V1},
		{name: "hybrid", files: join(splitV1, in("unified", treeV2)), want: cgroup.V1},
		{name: "neither", files: in("pod", filesV2), err: "neither cgroup.controllers nor a controller of cgroup v1 exists"},
		{name: "neither, but given", files: in("pod", filesV2), give: cgroup.V2, want: cgroup.V2},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: tree(t, c.files), Version: c.give})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			if got := a.Version(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	if _, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a root that is not there: %v", err)
	}
}

func TestWeight(t *testing.T) {
	for _, c := range []struct {
		conversion   cgroup.WeightConversion
		shares, want int64
	}{
		{cgroup.WeightQuadratic, 2, 1}, {cgroup.WeightQuadratic, 102, 17}, {cgroup.WeightQuadratic, 1024, 100}, {cgroup.WeightQuadratic, 2000, 170},
		{cgroup.WeightQuadratic, 262143, 10000}, {cgroup.WeightQuadratic, 262144, 10000}, {cgroup.WeightQuadratic, 0, 1}, {cgroup.WeightQuadratic, 1 << 40, 10000},
		{cgroup.WeightLinear, 2, 1}, {cgroup.WeightLinear, 1024, 39}, {cgroup.WeightLinear, 2000, 77}, {cgroup.WeightLinear, 262144, 10000},
	} {
		if got := c.conversion.Weight(c.shares); got != c.want {
			t.Errorf("%s: %d shares weigh %d, want %d", c.conversion, c.shares, got, c.want)
		}
	}
	for shares, last := int64(2), int64(0); shares <= 262144; shares++ {
		w := cgroup.WeightQuadratic.Weight(shares)
		if w < last || w < 1 || w > 10000 {
			t.Fatalf("%d shares weigh %d, after %d", shares, w, last)
		}
		last = w
	}
}

func TestCgroupOf(t *testing.T) {
	for _, c := range []struct {
		name string
		req  hookmsg.Request
		want string
		err  error
	}{
		{"a class", hookmsg.Request{Level: abi.LevelQOS, CgroupParent: "kubepods/besteffort"}, "kubepods/besteffort", nil},
		{"a pod", hookmsg.Request{Level: abi.LevelPod, CgroupParent: "kubepods/pod1"}, "kubepods/pod1", nil},
		{"a container", hookmsg.Request{Level: abi.LevelContainer, CgroupParent: "kubepods/pod1", Container: hookmsg.ContainerMeta{ID: "4b1f"}}, "kubepods/pod1/4b1f", nil},
		{"a parent that climbs", hookmsg.Request{Level: abi.LevelPod, CgroupParent: "kubepods/../.."}, "", cgroup.ErrEscapes},
		{"an identifier that climbs", hookmsg.Request{Level: abi.LevelContainer, CgroupParent: "pod1", Container: hookmsg.ContainerMeta{ID: ".."}}, "", cgroup.ErrEscapes},
		{"an identifier with a slash", hookmsg.Request{Level: abi.LevelContainer, CgroupParent: "pod1", Container: hookmsg.ContainerMeta{ID: "a/b"}}, "", cgroup.ErrEscapes},
		{"a container without a parent", hookmsg.Request{Level: abi.LevelContainer, Container: hookmsg.ContainerMeta{ID: "4b1f"}}, "", cgroup.ErrEscapes},
	} {
		got, err := cgroup.Layout{}.Of(&c.req)
		if !errors.Is(err, c.err) || c.err == nil && got != c.want {
			t.Errorf("%s: got %q and error %v", c.name, got, err)
		}
	}
	if _, err := (cgroup.Layout{}).Of(&hookmsg.Request{Level: abi.LevelContainer, CgroupParent: "pod1"}); err == nil || !strings.Contains(err.Error(), "has no identifier") {
		t.Errorf("a container that is not created yet: error %v", err)
	}
}

// subtree makes a cgroup of the test's own in the controllers of the machine's
// cgroup v1 and returns its path below /sys/fs/cgroup/<controller>.
func subtree(t *testing.T, controllers ...string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a cgroup")
	}
	name := "kubewasm-test-" + strings.ReplaceAll(t.Name(), "/", "-")
	for _, c := range controllers {
		root := filepath.Join("/sys/fs/cgroup", c)
		if _, err := os.Stat(filepath.Join(root, "cgroup.clone_children")); err != nil {
			t.Skipf("needs the %s controller of cgroup v1: %v", c, err)
		}
		for _, dir := range []string{name, name + "/web"} {
			path := filepath.Join(root, dir)
			if err := os.Mkdir(path, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
				t.Skipf("cannot make a cgroup: %v", err)
			}
			t.Cleanup(func() {
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
			})
		}
	}
	return name
}

// The kernel takes what is applied to a parent and a child, in both directions.
func TestApplyToRealCgroups(t *testing.T) {
	pod := subtree(t, "cpu", "cpuset", "memory")
	a := applier(t, cgroup.ApplierConfig{Root: "/sys/fs/cgroup"})
	web := pod + "/web"
	all, err := os.ReadFile("/sys/fs/cgroup/cpuset/cpuset.cpus")
	if err != nil {
		t.Fatal(err)
	}
	some, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(string(all)), "-", ","), ",")
	cpus := []string{strings.TrimSpace(string(all)), some}

	n := func(v int64) *int64 { return &v }
	for i, c := range []struct{ quota, period, burst, memory int64 }{
		{-1, 100_000, 0, -1},
		{100_000, 100_000, 50_000, 64 << 20},
		{80_000, 20_000, 10_000, 128 << 20}, // 4 CPUs, by a way that is not direct.
		{20_000, 40_000, 0, 32<<20 + 1},
		{500_000, 1_000_000, 400_000, 32 << 20}, // The same limit otherwise.
		{2000, 1000, 1000, 64 << 20},
		{-1, 50_000, 0, -1},
	} {
		resources := &hookmsg.Resources{
			CPUShares: n(int64(2 + i)), CFSQuotaUS: &c.quota, CFSPeriodUS: &c.period, CPUBurstUS: &c.burst,
			CPUSetCPUs: &cpus[i%2], CPUSetMems: new("0"), MemoryLimitBytes: &c.memory,
		}
		targets := []cgroup.Target{{Cgroup: web, Resources: resources}, {Cgroup: pod, Resources: resources}}
		changes, err := a.Apply(t.Context(), targets...)
		if err != nil {
			t.Fatalf("step %d: %v\nafter %v", i, err, changes)
		}
		if again, err := a.Apply(t.Context(), targets...); err != nil || len(again) != 0 {
			t.Fatalf("step %d: a second time it writes %v, error %v", i, again, err)
		}
	}
}

// What the kubelet has made of shares for pods and QoS classes, and the runtime for containers,
// is what is decided by the same shares.
func TestWeightsByLevel(t *testing.T) {
	for _, c := range []struct {
		name                string
		runtime, kubelet    cgroup.WeightConversion
		class, pod, web, db string // The weights of 1024 shares.
	}{
		{"a kubelet up to 1.37 and a runtime of today", 0, 0, "39", "39", "100", "100"},
		{"an older runtime", cgroup.WeightLinear, 0, "39", "39", "39", "39"},
		{"a kubelet that converts as the runtime", 0, cgroup.WeightQuadratic, "100", "100", "100", "100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for file, text := range map[string]string{
				"cgroup.controllers": "cpu", "kubepods/burstable/cpu.weight": c.class, "kubepods/burstable/poda/cpu.weight": c.pod,
				"kubepods/burstable/poda/web/cpu.weight": c.web, "kubepods/burstable/poda/db/cpu.weight": c.db,
			} {
				file = filepath.Join(root, file)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text+"\n"), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			a := applier(t, cgroup.ApplierConfig{Root: root, Weight: c.runtime, KubeletWeight: c.kubelet})
			shares := &hookmsg.Resources{CPUShares: new(int64(1024))}
			targets := []cgroup.Target{
				{Cgroup: "kubepods/burstable", Level: abi.LevelQOS, Resources: shares},
				{Cgroup: "kubepods/burstable/poda", Level: abi.LevelPod, Resources: shares},
				{Cgroup: "kubepods/burstable/poda/web", Level: abi.LevelContainer, Resources: shares},
				{Cgroup: "kubepods/burstable/poda/db", Resources: shares},
			}
			if changes, err := a.Apply(t.Context(), targets...); err != nil || len(changes) != 0 {
				t.Errorf("changes are %v, error %v", changes, err)
			}
			for _, target := range targets {
				if got := a.Differing(target); got != nil {
					t.Errorf("%s differs in %s", target.Cgroup, got.Fields())
				}
			}
		})
	}
}

// The kernel's answers reach the caller, with the file and the value.
func TestRealCgroupErrors(t *testing.T) {
	pod := subtree(t, "cpu", "cpuset")
	a := applier(t, cgroup.ApplierConfig{Root: "/sys/fs/cgroup"})
	for _, c := range []struct {
		name string
		give hookmsg.Resources
		want *cgroup.FileError
	}{
		{"a limit beyond the parent's", hookmsg.Resources{CFSQuotaUS: new(int64(300_000))},
			&cgroup.FileError{Cgroup: pod + "/web", Field: hookmsg.FieldCFSQuota, Op: "write", File: "cpu/" + pod + "/web/cpu.cfs_quota_us", Value: "300000", Bound: "cpu/" + pod + "/cpu.cfs_quota_us is 100000 with a period of 100000", Err: syscall.EINVAL}},
		{"a cpuset beyond the parent's", hookmsg.Resources{CPUSetCPUs: new("0")},
			&cgroup.FileError{Cgroup: pod + "/web", Field: hookmsg.FieldCPUSetCPUs, Op: "write", File: "cpuset/" + pod + "/web/cpuset.cpus", Value: "0", Err: syscall.EACCES}},
		{"a file that this kernel does not have", hookmsg.Resources{CPUBvt: new(int64(2))},
			&cgroup.FileError{Cgroup: pod + "/web", Field: hookmsg.FieldCPUBvt, Op: "read", File: "cpu/" + pod + "/web/cpu.bvt_warp_ns", Err: syscall.ENOENT}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := a.Apply(t.Context(), cgroup.Target{Cgroup: pod, Resources: &hookmsg.Resources{CFSQuotaUS: new(int64(100_000))}}); err != nil {
				t.Fatal(err)
			}
			_, err := a.Apply(t.Context(), cgroup.Target{Cgroup: pod + "/web", Resources: &c.give})
			var got *cgroup.FileError
			if !errors.As(err, &got) || *got != *c.want {
				t.Errorf("got error %v, want %v", err, c.want)
			}
		})
	}
}
