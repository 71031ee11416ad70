package cgroup_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
)

// A value that the kernel refuses leaves the cgroup as it was, and the error names the file
// that is in the way.
func TestEnforceLeavesACgroupAsItWasIfItIsRefused(t *testing.T) {
	type files map[string]string // "pod/c cpu.cfs_quota_us": "100000"
	v2 := cgrouptest.New(t).V2
	for _, c := range []struct {
		name string
		v2   bool
		// before is written in the order of the lines.
		before string
		on     string
		want   hookmsg.Resources
		// bound is the end of the error, without the root of the test.
		bound string
		after files // Beside those of before.
	}{
		{
			name:   "v1: a container that no plugin decides on has more than the pod's new limit",
			before: "pod cpu.cfs_quota_us 200000\npod/c cpu.cfs_quota_us 200000",
			on:     "pod", want: hookmsg.Resources{CFSQuotaUS: new(int64(50000)), CFSPeriodUS: new(int64(50000))},
			bound: "pod/c/cpu.cfs_quota_us is 200000 with a period of 100000",
			after: files{"pod cpu.cfs_period_us": "100000"},
		},
		{
			name:   "v1: the pod has less than the container's new limit",
			before: "pod cpu.cfs_quota_us 50000\npod/c cpu.cfs_quota_us 20000",
			on:     "pod/c", want: hookmsg.Resources{CFSQuotaUS: new(int64(50000)), CFSPeriodUS: new(int64(50000))},
			bound: "pod/cpu.cfs_quota_us is 50000 with a period of 100000",
			after: files{"pod/c cpu.cfs_period_us": "100000"},
		},
		{
			name:   "v1: the class has less than the container's new limit, the pod none",
			before: ". cpu.cfs_quota_us 50000",
			on:     "pod/c", want: hookmsg.Resources{CFSQuotaUS: new(int64(90000)), CFSPeriodUS: new(int64(50000))},
			bound: "cpu.cfs_quota_us is 50000 with a period of 100000",
			after: files{"pod/c cpu.cfs_quota_us": "-1", "pod/c cpu.cfs_period_us": "100000"},
		},
		{
			name:   "v1: another writer's burst is above the new quota",
			before: "pod/c cpu.cfs_quota_us 50000\npod/c cpu.cfs_burst_us 20000",
			on:     "pod/c", want: hookmsg.Resources{CFSQuotaUS: new(int64(5000)), CFSPeriodUS: new(int64(10000))},
			bound: "pod/c/cpu.cfs_burst_us is 20000",
			after: files{"pod/c cpu.cfs_period_us": "100000"},
		},
		{
			name:   "v1: the quota is below the new burst",
			before: "pod/c cpu.cfs_quota_us 20000",
			on:     "pod/c", want: hookmsg.Resources{CPUBurstUS: new(int64(30000))},
			bound: "pod/c/cpu.cfs_quota_us is 20000",
			after: files{"pod/c cpu.cfs_burst_us": "0"},
		},
		{
			name:   "v1: CPUs move, and a container that no plugin decides on stays",
			before: "pod/c cpuset.cpus 0\npod cpuset.cpus 0",
			on:     "pod", want: hookmsg.Resources{CPUSetCPUs: new("1")},
			bound: "pod/c/cpuset.cpus is 0",
		},
		{
			name:   "v1: CPUs beyond the pod's",
			before: "pod/c cpuset.cpus 0\npod cpuset.cpus 0",
			on:     "pod/c", want: hookmsg.Resources{CPUSetCPUs: new("1")},
			bound: "pod/cpuset.cpus is 0",
		},
		{
			name:   "v1: memory above that with swap, as a runtime sets it that forbids swap",
			before: "pod/c memory.limit_in_bytes 104857600\npod/c memory.memsw.limit_in_bytes 104857600",
			on:     "pod/c", want: hookmsg.Resources{MemoryLimitBytes: new(int64(209715200))},
			bound: "pod/c/memory.memsw.limit_in_bytes is 104857600",
		},
		{
			name: "v2: another writer's burst is above the new quota", v2: true,
			before: "pod/c cpu.max 50000 100000\npod/c cpu.max.burst 20000",
			on:     "pod/c", want: hookmsg.Resources{CFSQuotaUS: new(int64(5000)), CFSPeriodUS: new(int64(10000))},
			bound: "pod/c/cpu.max.burst is 20000",
		},
		{
			name: "v2: the quota is below the new burst", v2: true,
			before: "pod/c cpu.max 20000 100000",
			on:     "pod/c", want: hookmsg.Resources{CPUBurstUS: new(int64(30000))},
			bound: "pod/c/cpu.max is 20000 100000",
			after: files{"pod/c cpu.max.burst": "0"},
		},
	} {
		if c.v2 != v2 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			tree := cgrouptest.New(t)
			tree.Make("pod/c")
			after := map[string]string{}
			for line := range strings.Lines(c.before) {
				at, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
				file, value, _ := strings.Cut(rest, " ")
				path := strings.TrimSuffix(tree.Root+"/"+at, "/.")
				if !tree.Has(path, file) {
					t.Skipf("this kernel has no %s", file)
				}
				tree.Write(path, file, value)
				after[at+" "+file] = value
			}
			for file, value := range c.after {
				after[file] = value
			}
			var state cgroup.State
			put(&state, tree.Root+"/"+c.on, c.want)
			e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
			report := e.Enforce(t.Context())
			var file *cgroup.FileError
			if !errors.As(report.Err, &file) || !strings.HasSuffix(file.Bound, tree.Root+"/"+c.bound) || !strings.Contains(report.Err.Error(), "("+file.Bound+")") {
				t.Errorf("got error %v, want one that names %s", report.Err, c.bound)
			}
			if len(report.Changes) != 0 || report.LeftRefused == 0 {
				t.Errorf("changes are %v, %d are refused", report.Changes, report.LeftRefused)
			}
			got := map[string]string{}
			for file := range after {
				at, name, _ := strings.Cut(file, " ")
				got[file] = tree.Read(strings.TrimSuffix(tree.Root+"/"+at, "/."), name)
			}
			if diff := cmp.Diff(after, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The limit of memory and swap grows before that of memory, and shrinks after it.
func TestEnforceOrdersMemoryAndSwap(t *testing.T) {
	tree := cgrouptest.New(t)
	pod := tree.Make("pod")
	const memory, memsw = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	if !tree.Has(pod, memsw) {
		t.Skipf("this kernel has no %s", memsw)
	}
	tree.Write(pod, memory, "104857600")
	tree.Write(pod, memsw, "104857600")
	var state cgroup.State
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	for _, limit := range []string{"209715200", "52428800"} {
		bytes := map[string]int64{"209715200": 209715200, "52428800": 52428800}[limit]
		put(&state, pod, hookmsg.Resources{MemoryLimitBytes: &bytes, Unified: map[string]string{memsw: limit}})
		if report := e.Enforce(t.Context()); report.Err != nil || tree.Read(pod, memory) != limit || tree.Read(pod, memsw) != limit {
			t.Errorf("to %s: %s and %s, error %v", limit, tree.Read(pod, memory), tree.Read(pod, memsw), report.Err)
		}
	}
}

// endsAfter is a context that ends after it was asked some times.
type endsAfter struct {
	context.Context
	asked, times int
}

func (c *endsAfter) Err() error {
	if c.asked++; c.asked > c.times {
		return context.Canceled
	}
	return nil
}

// A pass that is ended between two writes leaves no limit lifted.
func TestEnforceEndsNoLimitHalfWay(t *testing.T) {
	for times := range 6 {
		tree := cgrouptest.New(t)
		if tree.V2 {
			t.Skip("cgroup v2 has one file for quota and period")
		}
		pod := tree.Make("pod")
		tree.Write(pod, "cpu.cfs_quota_us", "200000")
		a := applier(t, cgroup.ApplierConfig{Root: cgrouptest.Mount})
		r := &hookmsg.Resources{CFSQuotaUS: new(int64(50000)), CFSPeriodUS: new(int64(50000)), CPUShares: new(int64(300))}
		a.Apply(&endsAfter{Context: t.Context(), times: times}, cgroup.Target{Cgroup: pod, Resources: r})
		quota, period := tree.Read(pod, "cpu.cfs_quota_us"), tree.Read(pod, "cpu.cfs_period_us")
		if got := quota + " " + period; got != "200000 100000" && got != "50000 50000" {
			t.Errorf("after %d looks at the context, quota and period are %s", times, got)
		}
	}
}
