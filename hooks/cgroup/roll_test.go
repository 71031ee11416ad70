package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
)

// Between the list of a cgroup's processes and the write, a process ends and its number is
// that of another cgroup's process.
func TestANumberThatIsAnotherProcesssIsNotWritten(t *testing.T) {
	for _, c := range []struct {
		name      string
		resources hookmsg.Resources
		list      string
		// got is the processes that were written.
		got func(a *Applier, proc, resctrl string) string
	}{
		{"the OOM score", hookmsg.Resources{OOMScoreAdj: new(int64(500))}, "pod/web/cgroup.procs", func(_ *Applier, proc, _ string) (got string) {
			for n := 10; n < 110; n++ {
				if b, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(n), "oom_score_adj")); err == nil && string(b) == "500" {
					got += fmt.Sprintln(n)
				}
			}
			return got
		}},
		{"core scheduling", hookmsg.Resources{CoreSchedGroup: new("a")}, "pod/web/cgroup.threads", func(a *Applier, _, _ string) (got string) {
			for n := 10; n < 110; n++ {
				if a.cores.kernel.(*cores).threads[n] != 0 {
					got += fmt.Sprintln(n)
				}
			}
			return got
		}},
		{"resctrl", hookmsg.Resources{ResctrlGroup: new("batch")}, "pod/web/cgroup.threads", func(_ *Applier, _, resctrl string) string {
			b, err := os.ReadFile(filepath.Join(resctrl, "batch/tasks"))
			if err != nil {
				return err.Error()
			}
			return string(b)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, root, resctrl := groupNode(t, "")
			a.proc = t.TempDir()
			kernel := &cores{threads: map[int]uint64{}, next: 100}
			a.cores.kernel = kernel
			// More of them than one further read of the list is for.
			var before, after string
			for n := 10; n < 110; n++ {
				kernel.threads[n] = 0
				write(t, a.proc, map[string]string{strconv.Itoa(n) + "/oom_score_adj": "0"})
				before += fmt.Sprintln(n)
				if n%3 != 0 {
					after += fmt.Sprintln(n)
				}
			}
			write(t, root, map[string]string{c.list: before})
			write(t, resctrl, map[string]string{"batch/tasks": ""})
			dirs := newDirectories(0)
			defer dirs.close()
			p := a.plan([]Target{{Cgroup: "pod/web", Resources: &c.resources}}, dirs, nil)
			write(t, root, map[string]string{c.list: after})
			if _, err := p.run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(after, c.got(a, a.proc, resctrl)); diff != "" {
				t.Error(diff)
			}
			if open, err := os.ReadDir("/proc/self/fd"); err == nil {
				for _, fd := range open {
					if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, a.proc) {
						t.Errorf("%s stays open", to)
					}
				}
			}
		})
	}
}

// A process of the kernel that leaves the cgroup before the write keeps its score.
func TestAProcessThatHasLeftKeepsItsScore(t *testing.T) {
	tree := cgrouptest.New(t)
	web, db := tree.Make("pod/web"), tree.Make("pod/db")
	stays, leaves := tree.Process(web), tree.Process(web)
	a, err := NewApplier(ApplierConfig{Root: cgrouptest.Mount})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	dirs := newDirectories(0)
	defer dirs.close()
	p := a.plan([]Target{{Cgroup: web, Resources: &hookmsg.Resources{OOMScoreAdj: new(int64(500))}}}, dirs, nil)
	if len(p.steps) != 2 {
		t.Fatalf("planned are %v", p.changes())
	}
	for _, h := range a.Hierarchies() {
		if err := os.WriteFile(filepath.Join(h, db, "cgroup.procs"), []byte(strconv.Itoa(leaves)), 0); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for pid, want := range map[int]bool{stays: true, leaves: false} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if got := strings.TrimSpace(string(b)) == "500"; err != nil || got != want {
			t.Errorf("the process has %s, error %v, want 500: %t", b, err, want)
		}
	}
}
