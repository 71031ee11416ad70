package cgroup

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
)

// groupNode is a tree of files like those of a node: a container's cgroup of v2 with two
// threads, and resctrl with its root group.
func groupNode(t *testing.T, threads string) (a *Applier, root, resctrl string) {
	t.Helper()
	root, resctrl = t.TempDir(), t.TempDir()
	write(t, root, map[string]string{"cgroup.controllers": "cpu\n", "pod/web/cgroup.threads": threads, "pod/db/cgroup.threads": "30\n"})
	write(t, resctrl, map[string]string{"schemata": "    L3:0=fff;1=fff\n    MB:0=100;1=100\n", "tasks": "1\n10\n11\n30\n", "info/L3/cbm_mask": "fff\n"})
	a, err := NewApplier(ApplierConfig{Root: root, Resctrl: resctrl})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a, root, resctrl
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for file, text := range files {
		file = filepath.Join(root, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// changes applies and returns what was written, without the directory of resctrl.
func changes(t *testing.T, a *Applier, cgroup string, r *hookmsg.Resources) (got []string, err error) {
	t.Helper()
	done, err := a.Apply(t.Context(), Target{Cgroup: cgroup, Resources: r})
	for _, c := range done {
		got = append(got, strings.TrimPrefix(c.String(), a.resctrl+"/"))
	}
	return got, err
}

func TestResctrl(t *testing.T) {
	a, root, resctrl := groupNode(t, "10\n11\n")
	r := &hookmsg.Resources{ResctrlGroup: new("batch"), ResctrlSchemata: new("L3:0=f;1=0F\nMB:0=50")}
	// The kernel makes the files of a directory with it; here the test does.
	got, err := changes(t, a, "pod/web", r)
	var file *FileError
	if !errors.As(err, &file) || file.Field != hookmsg.FieldResctrlGroup|hookmsg.FieldResctrlSchemata || !cmp.Equal(got, []string{"batch:  -> batch"}) {
		t.Errorf("of a group that is not there: %q, error %v", got, err)
	}
	write(t, resctrl, map[string]string{"batch/schemata": "    L3:0=fff;1=fff\n    MB:0=100;1=100\n", "batch/tasks": "11\n"})
	got, err = changes(t, a, "pod/web", r)
	want := []string{"batch/schemata: L3:0=fff;1=fff\n    MB:0=100;1=100 -> L3:0=f;1=0F\nMB:0=50", "batch/tasks:  -> 10"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%s, error %v", diff, err)
	}
	if b, err := os.ReadFile(filepath.Join(resctrl, "batch/schemata")); err != nil || string(b) != "L3:0=f;1=0F\nMB:0=50\n" {
		t.Errorf("the kernel is told %q, error %v", b, err)
	}
	// The kernel's words for it, with what was not named.
	write(t, resctrl, map[string]string{"batch/schemata": "    L3:0=00f;1=00f\n    MB:0=  50;1= 100\n"})
	if got, err := changes(t, a, "pod/web", r); len(got) != 0 || err != nil {
		t.Errorf("a second time it writes %q, error %v", got, err)
	}
	// Another thread, and another container of the group.
	write(t, root, map[string]string{"pod/web/cgroup.threads": "10\n11\n12\n"})
	got, err = changes(t, a, "pod/web", r)
	more, err2 := changes(t, a, "pod/db", &hookmsg.Resources{ResctrlGroup: new("batch")})
	if want := []string{"batch/tasks:  -> 12", "batch/tasks:  -> 30"}; !cmp.Equal(append(got, more...), want) || errors.Join(err, err2) != nil {
		t.Errorf("got %q and %q, errors %v and %v", got, more, err, err2)
	}
}

func TestResctrlErrors(t *testing.T) {
	for _, c := range []struct {
		name    string
		threads string
		group   string
		change  func(t *testing.T, resctrl string)
		err     string
		is      error
	}{
		{name: "not mounted", threads: "10\n", group: "batch", change: func(t *testing.T, resctrl string) { os.RemoveAll(resctrl) }, err: "is not mounted", is: errUnsupported},
		{name: "the empty directory to mount it at", threads: "10\n", group: "batch", change: func(t *testing.T, resctrl string) { os.Remove(filepath.Join(resctrl, "schemata")) }, err: "is not mounted", is: errUnsupported},
		{name: "a name with a slash", threads: "10\n", group: "a/b", err: `"a/b" is not a name`},
		{name: "a name that leads out", threads: "10\n", group: "..", err: `".." is not a name`},
		{name: "a file", threads: "10\n", group: "schemata", err: "not a directory", is: errEscapes},
		{name: "a symbolic link", threads: "10\n", group: "link", change: func(t *testing.T, resctrl string) {
			if err := os.Symlink(t.TempDir(), filepath.Join(resctrl, "link")); err != nil {
				t.Fatal(err)
			}
		}, err: "not a directory", is: errEscapes},
		{name: "processes of another namespace", threads: "0\n", group: "batch", err: "its processes are in another PID namespace", is: errUnsupported},
		{name: "no numbers", threads: "../../etc\n", group: "batch", err: `"../../etc" is no process`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _, resctrl := groupNode(t, c.threads)
			if c.change != nil {
				c.change(t, resctrl)
			}
			got, err := changes(t, a, "pod/web", &hookmsg.Resources{ResctrlGroup: &c.group})
			if err == nil || !strings.Contains(err.Error(), c.err) || c.is != nil && !errors.Is(err, c.is) || len(got) != 0 {
				t.Errorf("got %q and error %v", got, err)
			}
		})
	}
}

func FuzzParseSchemata(f *testing.F) {
	for _, s := range []string{"L3:0=ff;1=ff\nMB:0=50", "    L3:0=00f;1=00f\n", "L3:", "L3:0", "L3CODE:0=7", ":0=1", "L3:0=", "L3:99999999999=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		parsed, err := parseSchemata(s)
		if err != nil {
			return
		}
		if !allocated(parsed, parsed) && !slices.ContainsFunc(parsed, func(a schema) bool {
			return slices.ContainsFunc(parsed, func(b schema) bool {
				return a.resource == b.resource && !cmp.Equal(a.domains, b.domains, cmp.AllowUnexported(domain{}))
			})
		}) {
			t.Errorf("%q is not what it is", s)
		}
	})
}

// cores is a kernel with core scheduling.
type cores struct {
	threads map[int]uint64
	next    uint64
	own     uint64
	err     error
}

func (c *cores) get(thread int) (uint64, error) {
	if thread == 0 || c.err != nil {
		return c.own, c.err
	}
	cookie, ok := c.threads[thread]
	if !ok {
		return 0, syscall.ESRCH
	}
	return cookie, nil
}

func (c *cores) create() error {
	c.next++
	c.own = c.next
	return c.err
}

func (c *cores) shareTo(thread int) error {
	if _, ok := c.threads[thread]; !ok {
		return syscall.ESRCH
	}
	c.threads[thread] = c.own
	return c.err
}

func (c *cores) shareFrom(thread int) error {
	if _, ok := c.threads[thread]; !ok {
		return syscall.ESRCH
	}
	c.own = c.threads[thread]
	return c.err
}

func TestCoreSched(t *testing.T) {
	a, root, _ := groupNode(t, "10\n11\n")
	kernel := &cores{threads: map[int]uint64{10: 0, 11: 0, 30: 0, 40: 0}, next: 100}
	a.cores.kernel = kernel
	group := &hookmsg.Resources{CoreSchedGroup: new("tenant a")}
	apply := func(step, cgroup string, r *hookmsg.Resources, writes int, want map[int]uint64) {
		t.Helper()
		got, err := changes(t, a, cgroup, r)
		if err != nil || len(got) != writes {
			t.Errorf("%s: wrote %q, error %v", step, got, err)
		}
		if diff := cmp.Diff(want, kernel.threads); diff != "" {
			t.Errorf("%s: %s", step, diff)
		}
	}
	apply("the first of a group", "pod/web", group, 2, map[int]uint64{10: 101, 11: 101, 30: 0, 40: 0})
	apply("a second time", "pod/web", group, 0, map[int]uint64{10: 101, 11: 101, 30: 0, 40: 0})
	apply("another container", "pod/db", group, 1, map[int]uint64{10: 101, 11: 101, 30: 101, 40: 0})
	// A container may give its own processes a cookie.
	kernel.threads[10] = 7
	apply("one that made a cookie of its own", "pod/web", group, 1, map[int]uint64{10: 101, 11: 101, 30: 101, 40: 0})
	apply("another group", "pod/db", &hookmsg.Resources{CoreSchedGroup: new("tenant b")}, 1, map[int]uint64{10: 101, 11: 101, 30: 102, 40: 0})
	// All of a group end; numbers are used again, with another's cookie.
	maps.Copy(kernel.threads, map[int]uint64{10: 102, 40: 0})
	delete(kernel.threads, 11)
	write(t, root, map[string]string{"pod/web/cgroup.threads": "40\n41\n"})
	apply("a group whose threads have ended", "pod/web", group, 1, map[int]uint64{10: 102, 30: 102, 40: 103})
	if len(a.cores.groups) != 2 {
		t.Errorf("there are %d groups", len(a.cores.groups))
	}
	delete(kernel.threads, 40)
	delete(kernel.threads, 30)
	delete(kernel.threads, 10)
	write(t, root, map[string]string{"pod/db/cgroup.threads": "50\n"})
	kernel.threads[50] = 0
	apply("groups that are over are forgotten", "pod/db", &hookmsg.Resources{CoreSchedGroup: new("tenant c")}, 1, map[int]uint64{50: 104})
	if len(a.cores.groups) != 1 {
		t.Errorf("there are %d groups", len(a.cores.groups))
	}
	// The threads leave their group, by one that is in none.
	none := &hookmsg.Resources{CoreSchedGroup: new("")}
	if got, err := changes(t, a, "pod/db", none); CauseOf(err) != causeUnsupported || !strings.Contains(err.Error(), "this process is in a group itself") {
		t.Errorf("by a process in a group it wrote %q, error %v", got, err)
	}
	kernel.own = 0
	apply("they leave it", "pod/db", none, 1, map[int]uint64{50: 0})
	apply("they have left it", "pod/db", none, 0, map[int]uint64{50: 0})
}

// A cgroup keeps what was written to it, for a process that comes later, until it is given back.
func TestNotes(t *testing.T) {
	a, root, _ := groupNode(t, "10\n")
	kernel := &cores{threads: map[int]uint64{10: 0}, next: 100}
	a.cores.kernel = kernel
	write(t, root, map[string]string{"pod/web/io.weight": "default 100\n"})
	decide := func(weight string) {
		t.Helper()
		if _, err := changes(t, a, "pod/web", &hookmsg.Resources{CoreSchedGroup: new("a"), Unified: map[string]string{"io.weight": weight}}); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.Notes("pod/web"); n.Files != nil || n.CoreSchedGroup != "" {
		t.Errorf("before a decision there is %+v", n)
	}
	decide("default 50")
	decide("default 60")
	want := Notes{Files: map[string]string{"io.weight": "default 100"}, CoreSchedGroup: "a"}
	got := a.Notes("pod/web")
	cgrouptest.KeepsNotes(t, root)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	kernel.own = 0
	given := Target{Cgroup: "pod/web", Resources: &hookmsg.Resources{CoreSchedGroup: new(""), Unified: map[string]string{"io.weight": "default 100"}}}
	// What could not be given back stays noted.
	kernel.err = syscall.EPERM
	if _, err := a.GiveBack(t.Context(), given); err == nil || a.Notes("pod/web").CoreSchedGroup != "a" {
		t.Errorf("error %v, and the notes %+v", err, a.Notes("pod/web"))
	}
	kernel.err = nil
	if done, err := a.GiveBack(t.Context(), given); err != nil || kernel.threads[10] != 0 {
		t.Errorf("gave back %v, error %v; the cookies are %v", done, err, kernel.threads)
	}
	if diff := cmp.Diff(Notes{}, a.Notes("pod/web")); diff != "" {
		t.Error(diff)
	}
	if n := a.Notes("pod/gone"); n.Files != nil {
		t.Errorf("a missing cgroup has %+v", n)
	}
}

func TestCoreSchedOfAKernelWithoutIt(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EINVAL, syscall.ENODEV} {
		a, _, _ := groupNode(t, "10\n")
		a.cores.kernel = &cores{threads: map[int]uint64{10: 0}, err: errno}
		_, err := changes(t, a, "pod/web", &hookmsg.Resources{CoreSchedGroup: new("a")})
		if CauseOf(err) != causeUnsupported || !strings.Contains(err.Error(), "core scheduling is not available") {
			t.Errorf("%v: %v", errno, err)
		}
	}
}

// This machine's own kernel: it has core scheduling, or says that it has none.
func TestCoreSchedOfThisKernel(t *testing.T) {
	a, root, _ := groupNode(t, "")
	write(t, root, map[string]string{"pod/web/cgroup.threads": strconv.Itoa(os.Getpid()) + "\n"})
	got, err := changes(t, a, "pod/web", &hookmsg.Resources{CoreSchedGroup: new("a")})
	if CauseOf(err) == causeUnsupported {
		t.Skip(err)
	}
	if err != nil || len(got) != 1 {
		t.Fatalf("wrote %q, error %v", got, err)
	}
	if again, err := changes(t, a, "pod/web", &hookmsg.Resources{CoreSchedGroup: new("a")}); err != nil || len(again) != 0 {
		t.Errorf("a second time it writes %q, error %v", again, err)
	}
	if left, err := changes(t, a, "pod/web", &hookmsg.Resources{CoreSchedGroup: new("")}); err != nil || len(left) != 1 {
		t.Errorf("to leave it, it writes %q, error %v", left, err)
	}
}

// Threads that have come since the last pass join their group, and that repairs nothing: a
// container in which probes run must not pass for one that another writer works on.
func TestEnforceNewThreads(t *testing.T) {
	a, root, resctrl := groupNode(t, "10\n")
	write(t, resctrl, map[string]string{"batch/tasks": ""})
	var state State
	state.Put(Target{Cgroup: "pod/web", PodUID: "u1", Resources: &hookmsg.Resources{ResctrlGroup: new("batch")}})
	e, err := NewEnforcer(EnforcerConfig{State: &state, Applier: a, Contention: Contention{Repairs: 3, Period: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	threads := "10\n"
	for n := range 6 {
		threads += strconv.Itoa(100+n) + "\n"
		write(t, root, map[string]string{"pod/web/cgroup.threads": threads})
		report := e.Enforce(t.Context())
		if report.Err != nil || len(report.Changes) == 0 || report.Repairs != 0 || len(report.Drifted) != 0 || len(report.Contended) != 0 {
			t.Fatalf("pass %d: %+v", n, report)
		}
	}
	if b, err := os.ReadFile(filepath.Join(resctrl, "batch/tasks")); err != nil || string(b) != "10\n100\n101\n102\n103\n104\n105\n" {
		t.Errorf("the group has %q, error %v", b, err)
	}
	// One that was there is another matter.
	write(t, resctrl, map[string]string{"batch/tasks": "10\n101\n102\n103\n104\n105\n"})
	if report := e.Enforce(t.Context()); report.Err != nil || report.Repairs != 1 {
		t.Errorf("a thread that was moved away: %+v", report)
	}
}
