package cgroup_test

import (
	"fmt"
	"maps"
	"os"
	"syscall"
	"testing"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// descriptors returns the number of files and directories that are open.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

// KeepFiles bounds what an Enforcer keeps open, directories among it, also while a pass goes over
// all cgroups: the process has files of its own to open.
func TestKeepFilesBoundsWhatStaysOpen(t *testing.T) {
	const cgroups = 300
	files := map[string]string{}
	for i := range cgroups {
		maps.Copy(files, map[string]string{
			fmt.Sprintf("cpu/kubepods/pod%d/cpu.shares", i):        "2\n",
			fmt.Sprintf("cpu/kubepods/pod%d/cpu.cfs_quota_us", i):  "-1\n",
			fmt.Sprintf("cpu/kubepods/pod%d/cpu.cfs_period_us", i): "100000\n",
			fmt.Sprintf("cpuset/kubepods/pod%d/cpuset.cpus", i):    "0-3\n",
		})
	}
	for _, tt := range []struct {
		name string
		keep int
		most int
	}{
		{"none", -1, 0},
		{"some", 50, 50},
		{"all", 10 * cgroups, 10 * cgroups},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var state cgroup.State
			e := enforcer(t, &state, tree(t, files), cgroup.EnforcerConfig{KeepFiles: tt.keep})
			target := func(i int) string { return fmt.Sprintf("kubepods/pod%d", i) }
			for i := range cgroups {
				put(&state, target(i), hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(5000)), CPUSetCPUs: new("0")})
			}
			before := descriptors(t)
			if tt.keep < cgroups { // No pass may open more for a moment.
				var limit syscall.Rlimit
				if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
					t.Fatal(err)
				}
				low := limit
				low.Cur = uint64(before + tt.most + 30)
				if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
					t.Fatal(err)
				}
				defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
			}
			if r := e.Enforce(t.Context()); r.Err != nil || len(r.Changes) != 3*cgroups {
				t.Fatalf("%d are written, want %d, error %v", len(r.Changes), 3*cgroups, r.Err)
			}
			for range 3 {
				if r := e.Enforce(t.Context()); r.Err != nil || len(r.Changes) != 0 || r.Files != 4*cgroups {
					t.Fatalf("%d files are compared and %d written, error %v", r.Files, len(r.Changes), r.Err)
				}
			}
			if n := descriptors(t) - before; n > tt.most || tt.keep > cgroups && n < cgroups {
				t.Errorf("%d descriptors stay open, want at most %d", n, tt.most)
			}
			for i := range cgroups {
				state.Remove(target(i))
			}
			e.Enforce(t.Context())
			if n := descriptors(t) - before; n != 0 {
				t.Errorf("%d descriptors stay open of cgroups that have left the state", n)
			}
		})
	}
}
