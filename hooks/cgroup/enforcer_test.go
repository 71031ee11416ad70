package cgroup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/cgrouptest"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
	"github.com/kubewasm/kubewasm/internal/testkit/race"
)

// enforcer opens a hierarchy and enforces a state on it.
func enforcer(t testing.TB, state *cgroup.State, root string, cfg cgroup.EnforcerConfig) *cgroup.Enforcer {
	t.Helper()
	cfg.State, cfg.Applier = state, applier(t, cgroup.ApplierConfig{Root: root})
	e, err := cgroup.NewEnforcer(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestNewEnforcerNamesWhatIsMissing(t *testing.T) {
	_, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{})
	want := "new enforcer: state is missing\nnew enforcer: applier is missing"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func put(state *cgroup.State, path string, r hookmsg.Resources) {
	state.Put(cgroup.Target{Cgroup: path, Resources: &r})
}

// changed are the changes in words.
func changed(report cgroup.Report) (changes []string) {
	for _, c := range report.Changes {
		changes = append(changes, c.String())
	}
	return changes
}

// What moves both ways on parent and child is written in an order that the
// kernel takes, on cgroups of its own.
func TestEnforceBothDirections(t *testing.T) {
	tree := cgrouptest.New(t)
	pod := tree.Make("pod")
	child := tree.Make("pod/web")
	tree.Process(child)
	var state cgroup.State
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	quotaFile, periodFile := "cpu.cfs_quota_us", "cpu.cfs_period_us"
	for _, c := range []struct {
		name          string
		quota, period int64
		cpus          string
		want          string
	}{
		{"a first limit", 100_000, 100_000, "0-1", "100000 100000"},
		{"wider", 200_000, 100_000, "0-1", "200000 100000"},
		{"tighter", 50_000, 100_000, "0", "50000 100000"},
		{"elsewhere", 50_000, 100_000, "1", "50000 100000"},
		{"another period", 80_000, 20_000, "0-1", "80000 20000"},
		{"a longer period", 30_000, 100_000, "0-1", "30000 100000"},
		{"no limit", -1, 100_000, "0-1", "-1 100000"},
		{"a limit again", 10_000, 100_000, "1", "10000 100000"},
	} {
		for _, cgroup := range []string{child, pod} {
			put(&state, cgroup, hookmsg.Resources{CFSQuotaUS: &c.quota, CFSPeriodUS: &c.period, CPUSetCPUs: &c.cpus})
		}
		if report := e.Enforce(t.Context()); report.Err != nil || len(report.Changes) == 0 {
			t.Errorf("%s: %v, %v", c.name, report.Changes, report.Err)
		}
		for _, cgroup := range []string{child, pod} {
			got := ""
			if tree.V2 {
				got = strings.Replace(tree.Read(cgroup, "cpu.max"), "max", "-1", 1)
			} else {
				got = tree.Read(cgroup, quotaFile) + " " + tree.Read(cgroup, periodFile)
			}
			if cpus := tree.Read(cgroup, "cpuset.cpus"); got != c.want || cpus != c.cpus {
				t.Errorf("%s: %s has %s and CPUs %s, want %s and %s", c.name, cgroup, got, cpus, c.want, c.cpus)
			}
		}
		if again := e.Enforce(t.Context()); len(again.Changes) != 0 || again.Err != nil || again.Files == 0 {
			t.Errorf("%s: a second look at %d files changes %v, error %v", c.name, again.Files, again.Changes, again.Err)
		}
	}
	if _, ok := e.Next(); ok {
		t.Error("something is left to be tried again")
	}
}

// An empty cpuset is the parent's, and files that no field stands for are written in
// the names of the kernel's version.
func TestEnforceTheParentsCPUsAndOtherFiles(t *testing.T) {
	tree := cgrouptest.New(t)
	pod := tree.Make("pod")
	web := tree.Make("pod/web")
	tree.Process(web)
	parents, other, value := "cpuset.cpus", "memory.swappiness", "7"
	if tree.V2 {
		parents, other = "cpuset.cpus.effective", "pids.max"
	}
	all := tree.Read(pod, parents)
	var state cgroup.State
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	for _, step := range []struct{ decided, want string }{{"0", "0"}, {"", all}} {
		put(&state, web, hookmsg.Resources{CPUSetCPUs: &step.decided, Unified: map[string]string{other: value}})
		for range 3 {
			if report := e.Enforce(t.Context()); report.Err != nil {
				t.Fatal(report.Err)
			}
		}
		if got := tree.Read(web, "cpuset.cpus"); got != step.want {
			t.Errorf("with %q decided, the CPUs are %q, want %q", step.decided, got, step.want)
		}
		if got := tree.Read(web, other); got != value {
			t.Errorf("%s is %s, want %s", other, got, value)
		}
	}
	if report := e.Enforce(t.Context()); len(report.Changes) != 0 {
		t.Errorf("it goes on to write %v", report.Changes)
	}
}

// Every field that this kernel has, written and read back.
func TestEnforceEveryField(t *testing.T) {
	tree := cgrouptest.New(t)
	pod := tree.Make("pod")
	web := tree.Make("pod/web")
	pid := tree.Process(web)
	n := func(v int64) *int64 { return &v }
	r := hookmsg.Resources{
		CPUShares: n(2048), CFSQuotaUS: n(150_000), CFSPeriodUS: n(50_000), CPUBurstUS: n(1000), CPUSetCPUs: new("0"), CPUSetMems: new("0"),
		MemoryLimitBytes: n(1<<30 + 1), MemoryHighBytes: n(1 << 29), MemoryLowBytes: n(1 << 28), MemoryMinBytes: n(1 << 27), CPUBvt: n(-1),
		OOMScoreAdj: n(321),
	}
	var state cgroup.State
	put(&state, web, r)
	r.OOMScoreAdj = nil
	put(&state, pod, r)
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	report := e.Enforce(t.Context())
	want := map[string]string{
		"cpu.shares": "2048", "cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "50000", "cpu.cfs_burst_us": "1000",
		"cpuset.cpus": "0", "cpuset.mems": "0", "memory.limit_in_bytes": "1073741824",
	}
	refused := map[hookmsg.Fields]bool{hookmsg.FieldMemoryHigh: true, hookmsg.FieldMemoryLow: true, hookmsg.FieldMemoryMin: true, hookmsg.FieldCPUBvt: true}
	if tree.V2 {
		want = map[string]string{
			"cpu.weight": "174", "cpu.max": "150000 50000", "cpu.max.burst": "1000", "cpuset.cpus": "0", "cpuset.mems": "0",
			"memory.max": "1073741824", "memory.high": "536870912", "memory.low": "268435456", "memory.min": "134217728",
		}
		refused = map[hookmsg.Fields]bool{hookmsg.FieldCPUBvt: true}
	}
	for _, cgroup := range []string{pod, web} {
		for file, value := range want {
			if got := tree.Read(cgroup, file); got != value {
				t.Errorf("%s of %s is %s, want %s", file, cgroup, got, value)
			}
		}
	}
	score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
	if err != nil || strings.TrimSpace(string(score)) != "321" {
		t.Errorf("the process has score %s, error %v", score, err)
	}
	// What this kernel does not have is reported once, by its name.
	for field := range refused {
		if tree.Has(pod, "cpu.bvt_warp_ns") && field == hookmsg.FieldCPUBvt {
			continue
		}
		found := false
		for _, err := range unjoin(report.Err) {
			var file *cgroup.FileError
			found = found || errors.As(err, &file) && file.Field == field && cgroup.CauseOf(err) == "unsupported"
		}
		if !found {
			t.Errorf("no word of %s in %v", field, report.Err)
		}
	}
	if again := e.Enforce(t.Context()); again.Err != nil || len(again.Changes) != 0 {
		t.Errorf("a second look reports %v and changes %v", again.Err, again.Changes)
	}
}

func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func TestEnforceRepairsDrift(t *testing.T) {
	tree := cgrouptest.New(t)
	pod := tree.Make("pod")
	shares, want := "cpu.shares", "512"
	if tree.V2 {
		shares, want = "cpu.weight", "59"
	}
	var state cgroup.State
	put(&state, pod, hookmsg.Resources{CPUShares: new(int64(512))})
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	if report := e.Enforce(t.Context()); report.Repairs != 0 || len(report.Changes) != 1 {
		t.Errorf("the first time: %+v", report)
	}
	tree.Write(pod, shares, "77")
	if report := e.Enforce(t.Context(), pod); report.Repairs != 1 || len(report.Changes) != 1 {
		t.Errorf("after drift: %+v", report)
	}
	if got := tree.Read(pod, shares); got != want {
		t.Errorf("shares are %s, want %s", got, want)
	}
	// The kernel may go, and come back as another of the same name.
	tree.Remove(pod)
	report := e.Enforce(t.Context(), pod)
	if report.Err != nil || !cmp.Equal(report.Gone, []string{pod}) {
		t.Errorf("a cgroup that is gone: %+v", report)
	}
	tree.Make("pod")
	e.Forget(pod)
	if report := e.Enforce(t.Context(), pod); len(report.Changes) != 1 || report.Repairs != 0 {
		t.Errorf("a cgroup that came back: %+v", report)
	}
}

// A cgroup that is removed and made again between two looks is another one, and
// no error.
func TestEnforceMeetsAnotherCgroupOfTheName(t *testing.T) {
	tree := cgrouptest.New(t)
	pod, web := tree.Make("pod"), tree.Make("web")
	var state cgroup.State
	put(&state, pod, hookmsg.Resources{CPUShares: new(int64(512)), CPUSetCPUs: new("0")})
	put(&state, web, hookmsg.Resources{OOMScoreAdj: new(int64(321))})
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	e.Enforce(t.Context())
	tree.Remove(pod)
	tree.Remove(web)
	tree.Make("pod")
	tree.Process(tree.Make("web"))
	if report := e.Enforce(t.Context()); report.Err != nil || len(report.Changes) == 0 {
		t.Errorf("got %+v", report)
	}
	if got := tree.Read(pod, "cpuset.cpus"); got != "0" {
		t.Errorf("CPUs are %s", got)
	}
	score, err := os.ReadFile("/proc/" + tree.Read(web, "cgroup.procs") + "/oom_score_adj")
	if err != nil || strings.TrimSpace(string(score)) != "321" {
		t.Errorf("the process has score %s, error %v", score, err)
	}
}

// What the kernel refuses now it may take when the parent has changed.
func TestEnforceTriesAgain(t *testing.T) {
	tree := cgrouptest.New(t)
	if tree.V2 {
		t.Skip("cgroup v2 takes a cpuset beyond the parent's")
	}
	pod, web := tree.Make("pod"), tree.Make("pod/web")
	tree.Write(web, "cpuset.cpus", "0")
	tree.Write(pod, "cpuset.cpus", "0")
	var state cgroup.State
	var log bytes.Buffer
	put(&state, web, hookmsg.Resources{CPUSetCPUs: new("0-1")})
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{RetryAfter: time.Hour, RetryAtMost: time.Hour, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	report := e.Enforce(t.Context())
	if cgroup.CauseOf(report.Err) != "beyond the parent" {
		t.Fatalf("a cpuset beyond the parent's is %v", report.Err)
	}
	for range 5 {
		if again := e.Enforce(t.Context()); again.Err != nil || len(again.Changes) != 0 {
			t.Errorf("it is tried again at once: %+v", again)
		}
	}
	if n := strings.Count(log.String(), "the kernel refuses"); n != 1 {
		t.Errorf("the refusal is logged %d times: %s", n, &log)
	}
	if next, ok := e.Next(); !ok || time.Until(next) < time.Minute {
		t.Errorf("the next attempt is at %v, %v", next, ok)
	}
	put(&state, pod, hookmsg.Resources{CPUSetCPUs: new("0-1")})
	e.Enforce(t.Context())
	if report := e.Enforce(t.Context()); report.Err != nil || report.Repairs != 0 {
		t.Errorf("what is taken at last is no repair: %+v", report)
	}
	if got := tree.Read(web, "cpuset.cpus"); got != "0-1" {
		t.Errorf("CPUs are %s", got)
	}
	if _, ok := e.Next(); ok {
		t.Error("something is left to be tried again")
	}
}

// Refusals that end when something else changes end with it, whoever decided that
// and without waiting for the time to be up.
func TestEnforceTriesAgainWhenTheWayIsFree(t *testing.T) {
	tree := cgrouptest.New(t)
	if tree.V2 {
		t.Skip("cgroup v2 takes a cpuset and a quota beyond the parent's")
	}
	for i, c := range []struct {
		name string
		// first writes files of the pod and the child, before anything is decided.
		first map[string]string
		// refused is what the kernel does not take of one of them, free what it does
		// of the other one.
		cgroup, other string
		refused, free hookmsg.Resources
		cause         string
		file, want    string
	}{
		{
			name: "EACCES", first: map[string]string{"web cpuset.cpus": "0", " cpuset.cpus": "0"}, cgroup: "web", refused: hookmsg.Resources{CPUSetCPUs: new("0-1")},
			free: hookmsg.Resources{CPUSetCPUs: new("0-1")}, cause: "beyond the parent", file: "cpuset.cpus", want: "0-1",
		},
		{
			name: "EBUSY", other: "web", refused: hookmsg.Resources{CPUSetCPUs: new("1")},
			free: hookmsg.Resources{CPUSetCPUs: new("1")}, cause: "busy", file: "cpuset.cpus", want: "1",
		},
		{
			name: "EINVAL of a child", first: map[string]string{" cpu.cfs_quota_us": "100000"}, cgroup: "web", refused: hookmsg.Resources{CFSQuotaUS: new(int64(300_000))},
			free: hookmsg.Resources{CFSQuotaUS: new(int64(400_000))}, cause: "invalid", file: "cpu.cfs_quota_us", want: "300000",
		},
		{
			name: "EINVAL of a parent", first: map[string]string{"web cpu.cfs_quota_us": "300000"}, other: "web", refused: hookmsg.Resources{CFSQuotaUS: new(int64(200_000))},
			free: hookmsg.Resources{CFSQuotaUS: new(int64(100_000))}, cause: "invalid", file: "cpu.cfs_quota_us", want: "200000",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := "pod" + strconv.Itoa(i)
			at := map[string]string{"": tree.Make(pod), "web": tree.Make(pod + "/web")}
			for _, which := range []string{"web", ""} { // The child lets the pod go first.
				for key, value := range c.first {
					if name, file, _ := strings.Cut(key, " "); name == which {
						tree.Write(at[name], file, value)
					}
				}
			}
			var state cgroup.State
			put(&state, at[c.cgroup], c.refused)
			e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{RetryAfter: time.Hour, RetryAtMost: time.Hour})
			if report := e.Enforce(t.Context()); cgroup.CauseOf(report.Err) != c.cause || len(report.Changes) != 0 {
				t.Fatalf("got %+v, want the cause %s", report, c.cause)
			}
			if report := e.Enforce(t.Context()); report.Err != nil || len(report.Changes) != 0 {
				t.Errorf("it is tried again at once: %+v", report)
			}
			put(&state, at[c.other], c.free)
			for range 2 {
				if report := e.Enforce(t.Context()); report.Err != nil {
					t.Error(report.Err)
				}
			}
			if got := tree.Read(at[c.cgroup], c.file); got != c.want {
				t.Errorf("%s is %s, want %s", c.file, got, c.want)
			}
			if _, ok := e.Next(); ok {
				t.Error("something is left to be tried again")
			}
		})
	}
}

func TestCauseOf(t *testing.T) {
	file := func(op string, err error) error {
		return fmt.Errorf("apply: %w", errors.Join(&cgroup.FileError{Op: op, File: "cpu/pod/cpu.shares", Err: err}))
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{file("open", syscall.ENOENT), "gone"},
		{file("write", syscall.ENOENT), "gone"},
		{file("read", syscall.ENODEV), "gone"},
		{file("write", syscall.ENODEV), "gone"},
		{file("read", syscall.ENOENT), "unsupported"},
		{cgroup.ErrUnsupported, "unsupported"},
		{file("write", syscall.EBUSY), "busy"},
		{&cgroup.FileError{Op: "write", File: "cpuset/pod/cpuset.cpus", Err: syscall.EACCES}, "beyond the parent"},
		{file("write", syscall.EACCES), "forbidden"},
		{file("write", syscall.EPERM), "forbidden"},
		{file("write", syscall.EROFS), "read-only"},
		{file("write", syscall.EINVAL), "invalid"},
		{file("write", syscall.ENOSPC), "empty"},
		{file("write", syscall.EIO), "other"},
		{errors.New("another"), "other"},
	} {
		if got := cgroup.CauseOf(c.err); got != c.want {
			t.Errorf("%v is %s, want %s", c.err, got, c.want)
		}
	}
}

// A field that was refused must not be tried without a pause when its cgroup is
// gone, which is an error of the first field only.
func TestEnforceWaitsForACgroupThatIsGone(t *testing.T) {
	tree := cgrouptest.New(t)
	if tree.V2 {
		t.Skip("cgroup v2 takes a cpuset beyond the parent's")
	}
	pod, web := tree.Make("pod"), tree.Make("pod/web")
	tree.Write(web, "cpuset.cpus", "0")
	tree.Write(pod, "cpuset.cpus", "0")
	var state cgroup.State
	put(&state, web, hookmsg.Resources{CPUSetMems: new("0"), CPUSetCPUs: new("0-1")})
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{RetryAfter: 10 * time.Millisecond})
	if report := e.Enforce(t.Context()); cgroup.CauseOf(report.Err) != "beyond the parent" {
		t.Fatalf("a cpuset beyond the parent's is %v", report.Err)
	}
	tree.Remove(web)
	for range 5 {
		next, ok := e.Next()
		if !ok {
			t.Fatal("nothing is left to be tried again")
		}
		<-time.After(time.Until(next))
		if report := e.Enforce(t.Context()); report.Err != nil || len(report.Gone) != 1 {
			t.Errorf("a cgroup that is gone: %+v", report)
		}
		if next, _ := e.Next(); !next.After(time.Now().Add(-time.Millisecond)) {
			t.Fatalf("the next attempt is %s ago", time.Since(next))
		}
	}
}

// What ends in the middle, at whichever write, is gone on with by the next one:
// whatever a file has in between was decided, or was there.
func TestEnforceAfterAnEndInTheMiddle(t *testing.T) {
	tree := cgrouptest.New(t)
	pod, web := tree.Make("pod"), tree.Make("pod/web")
	decide := func(state *cgroup.State, quota, period int64, cpus string) {
		for _, cgroup := range []string{pod, web} {
			put(state, cgroup, hookmsg.Resources{CFSQuotaUS: &quota, CFSPeriodUS: &period, CPUSetCPUs: &cpus, CPUShares: &quota})
		}
	}
	look := func() map[string]string {
		files := map[string]string{}
		for _, cgroup := range []string{pod, web} {
			for _, name := range []string{"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpu.max", "cpu.weight", "cpuset.cpus"} {
				if tree.Has(cgroup, name) {
					files[cgroup+"/"+name] = tree.Read(cgroup, name)
				}
			}
		}
		return files
	}
	enforce := func(ctx context.Context, quota, period int64, cpus string) cgroup.Report {
		var state cgroup.State
		decide(&state, quota, period, cpus)
		e, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: &state, Applier: applier(t, cgroup.ApplierConfig{Root: cgrouptest.Mount})})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		return e.Enforce(ctx)
	}
	before := func() cgroup.Report { return enforce(t.Context(), 100_000, 100_000, "0") }
	after := func(ctx context.Context) cgroup.Report { return enforce(ctx, 80_000, 20_000, "1") }
	before()
	old := look()
	after(t.Context())
	want := look()
	writes := 0
	for ended := true; ended; writes++ {
		before()
		ctx := &ending{Context: t.Context(), left: writes}
		after(ctx)
		ended = ctx.ended
		for file, got := range look() {
			between := strings.HasSuffix(file, "cfs_quota_us") && got == "-1" || strings.HasSuffix(file, "cpuset.cpus") && got == "0-1"
			if got != old[file] && got != want[file] && !between {
				t.Errorf("after %d writes %s has %s, neither %s nor %s", writes, file, got, old[file], want[file])
			}
		}
		if report := after(t.Context()); report.Err != nil {
			t.Errorf("after %d writes: %v", writes, report.Err)
		}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Errorf("after %d writes: %s", writes, diff)
		}
	}
	if writes < 6 {
		t.Errorf("there are %d writes only", writes)
	}
}

// ending is a context that ends when it has been looked at a number of times.
type ending struct {
	context.Context
	left  int
	ended bool
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		e.ended = true
		return context.Canceled
	}
	return nil
}

// Two writers who both insist: we give way, name the field and come back later.
func TestEnforceGivesWay(t *testing.T) {
	for name, keep := range map[string]int{"files that are kept open": 100, "files that are opened each time": -1} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, splitV1)
			var state cgroup.State
			put(&state, "pod", hookmsg.Resources{CPUShares: new(int64(512)), CPUSetCPUs: new("0-3")})
			e := enforcer(t, &state, root, cgroup.EnforcerConfig{KeepFiles: keep, Contention: cgroup.Contention{Repairs: 3, Period: time.Hour, Backoff: time.Hour}})
			e.Enforce(t.Context())
			other := func(file, value string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(root, file), []byte(value), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var contended []cgroup.Contended
			for range 10 {
				other("cpu/pod/cpu.shares", "77\n")
				contended = append(contended, e.Enforce(t.Context()).Contended...)
			}
			if len(contended) != 1 || contended[0].Field != hookmsg.FieldCPUShares || contended[0].Repairs != 3 {
				t.Fatalf("contended is %v", contended)
			}
			if got, want := contended[0].String(), `cpu_shares of cgroup "pod": another writer set cpu/pod/cpu.shares to 77 3 times; it is left alone for 1h0m0s`; got != want {
				t.Errorf("got %s\nwant %s", got, want)
			}
			if got := read(t, root, "cpu/pod/cpu.shares")["cpu/pod/cpu.shares"]; got != "77\n" {
				t.Errorf("shares are %q, want the other writer's", got)
			}
			// The other fields of the cgroup are looked after as before.
			other("cpuset/pod/cpuset.cpus", "0-7\n")
			if report := e.Enforce(t.Context()); len(report.Changes) != 1 || report.Changes[0].Field != hookmsg.FieldCPUSetCPUs {
				t.Errorf("got %+v", report)
			}
			// A new decision is a new start.
			put(&state, "pod", hookmsg.Resources{CPUShares: new(int64(256))})
			e.Enforce(t.Context())
			if got := read(t, root, "cpu/pod/cpu.shares")["cpu/pod/cpu.shares"]; got != "256" {
				t.Errorf("shares are %q", got)
			}
		})
	}
}

// TestEnforceBesideAQuickWriter holds that what another writer puts back at once,
// however often, is not taken for the kernel's words of what was decided.
func TestEnforceBesideAQuickWriter(t *testing.T) {
	root := tree(t, splitV1)
	var state cgroup.State
	put(&state, "pod", hookmsg.Resources{CPUShares: new(int64(300))})
	e := enforcer(t, &state, root, cgroup.EnforcerConfig{Contention: cgroup.Contention{Repairs: math.MaxInt}})
	shares, err := os.OpenFile(filepath.Join(root, "cpu/pod/cpu.shares"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer shares.Close()
	for round := range 200 {
		stop := make(chan struct{})
		var other sync.WaitGroup
		other.Go(func() {
			var buf [3]byte
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := shares.ReadAt(buf[:], 0); err == nil && string(buf[:]) != "777" {
					shares.WriteAt([]byte("777"), 0)
				}
			}
		})
		for range 20 {
			e.Enforce(t.Context())
		}
		close(stop)
		other.Wait()
		e.Enforce(t.Context())
		if got := read(t, root, "cpu/pod/cpu.shares")["cpu/pod/cpu.shares"]; got != "300" {
			t.Fatalf("round %d: shares are %q", round, got)
		}
	}
}

// TestEnforceTakesTheKernelsWords holds that a value which the kernel keeps in
// other words is not written for ever, and no repair.
func TestEnforceTakesTheKernelsWords(t *testing.T) {
	tree := cgrouptest.New(t)
	pod := tree.Make("pod")
	file, want, resources := "memory.limit_in_bytes", "10485760", hookmsg.Resources{MemoryLimitBytes: new(int64(10<<20 + 1))}
	if tree.V2 {
		file, want, resources = "memory.oom.group", "1", hookmsg.Resources{Unified: map[string]string{"memory.oom.group": "01"}}
	}
	var state cgroup.State
	put(&state, pod, resources)
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	writes := 0
	for range 10 {
		report := e.Enforce(t.Context(), pod)
		if report.Err != nil || report.Repairs != 0 {
			t.Fatalf("%+v", report)
		}
		if len(report.Changes) != 0 {
			writes++
		}
	}
	if writes > 3 {
		t.Errorf("%d of 10 looks wrote", writes)
	}
	if got := tree.Read(pod, file); got != want {
		t.Errorf("%s is %q, want %q", file, got, want)
	}
	for range 2 {
		if report := e.Enforce(t.Context()); report.Err != nil || report.Repairs != 0 {
			t.Errorf("a full look: %+v", report)
		}
	}
}

func TestEnforceComesBackAfterAFight(t *testing.T) {
	root := tree(t, splitV1)
	var state cgroup.State
	put(&state, "pod", hookmsg.Resources{CPUShares: new(int64(512))})
	e := enforcer(t, &state, root, cgroup.EnforcerConfig{Contention: cgroup.Contention{Repairs: 2, Period: time.Hour, Backoff: 10 * time.Millisecond, MaxBackoff: time.Hour}})
	file := filepath.Join(root, "cpu/pod/cpu.shares")
	for want := 10 * time.Millisecond; want <= 40*time.Millisecond; want *= 2 {
		var contended []cgroup.Contended
		for len(contended) == 0 {
			if err := os.WriteFile(file, []byte("77\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			contended = e.Enforce(t.Context()).Contended
		}
		if contended[0].For != want {
			t.Errorf("it is left alone for %s, want %s", contended[0].For, want)
		}
		next, ok := e.Next()
		if !ok {
			t.Fatal("there is no next attempt")
		}
		if err := os.WriteFile(file, []byte("77\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Until(next))
		if report := e.Enforce(t.Context()); len(report.Changes) != 1 {
			t.Errorf("after the time is up: %+v", report)
		}
	}
}

func TestEnforceDryRun(t *testing.T) {
	root := tree(t, splitV1)
	var state cgroup.State
	put(&state, "pod", hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(5000))})
	var log bytes.Buffer
	e := enforcer(t, &state, root, cgroup.EnforcerConfig{DryRun: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	report := e.Enforce(t.Context())
	if diff := cmp.Diff([]string{"cpu/pod/cpu.shares: 1024 -> 512", "cpu/pod/cpu.cfs_quota_us: -1 -> 5000"}, changed(report)); diff != "" {
		t.Error(diff)
	}
	if again := e.Enforce(t.Context()); len(again.Changes) != 0 {
		t.Errorf("the same difference is reported again: %v", again.Changes)
	}
	for _, want := range []string{"fields=cpu_shares change=\"cpu/pod/cpu.shares: 1024 -> 512\"", "fields=cfs_quota_us change=\"cpu/pod/cpu.cfs_quota_us: -1 -> 5000\""} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log does not have once %s: %s", want, &log)
		}
	}
	if diff := cmp.Diff(map[string]string{"cpu/pod/cpu.shares": "1024\n", "cpu/pod/cpu.cfs_quota_us": "-1\n"}, read(t, root, "cpu/pod/cpu.shares", "cpu/pod/cpu.cfs_quota_us")); diff != "" {
		t.Errorf("a dry run wrote: %s", diff)
	}
}

// Files that there is no room for are opened each time, with the same outcome.
func TestEnforceWithoutKeptFiles(t *testing.T) {
	tree := cgrouptest.New(t)
	var state cgroup.State
	for i := range 5 {
		put(&state, tree.Make("pod"+strconv.Itoa(i)), hookmsg.Resources{CFSQuotaUS: new(int64(5000)), CPUSetCPUs: new("0")})
	}
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{KeepFiles: 3})
	if report := e.Enforce(t.Context()); report.Err != nil || len(report.Changes) != 10 {
		t.Errorf("got %+v", report)
	}
	if report := e.Enforce(t.Context()); report.Err != nil || len(report.Changes) != 0 || report.Files < 10 {
		t.Errorf("got %+v", report)
	}
}

func TestState(t *testing.T) {
	var s cgroup.State
	r := func(shares int64) *hookmsg.Resources { return &hookmsg.Resources{CPUShares: &shares} }
	for _, c := range []struct {
		name string
		give cgroup.Target
		want bool
	}{
		{"new", cgroup.Target{Cgroup: "a/b", PodUID: "1", Resources: r(2)}, true},
		{"the same", cgroup.Target{Cgroup: "a/b", PodUID: "1", Resources: r(2)}, false},
		{"another value", cgroup.Target{Cgroup: "a/b", PodUID: "1", Resources: r(3)}, true},
		{"nothing where nothing was", cgroup.Target{Cgroup: "a/c"}, false},
		{"another pod's", cgroup.Target{Cgroup: "a", PodUID: "2", Resources: r(3)}, true},
		{"nothing any more", cgroup.Target{Cgroup: "a/b", PodUID: "1", Resources: &hookmsg.Resources{}}, true},
		{"again", cgroup.Target{Cgroup: "a/b", PodUID: "1", Resources: r(4)}, true},
		{"a neighbour", cgroup.Target{Cgroup: "ab", PodUID: "3", Resources: r(4)}, true},
	} {
		before := s.Version()
		if got := s.Put(c.give); got != c.want || (s.Version() != before) != c.want {
			t.Errorf("%s: changed is %v, want %v", c.name, got, c.want)
		}
	}
	var cgroups []string
	for _, d := range s.All() {
		cgroups = append(cgroups, d.Cgroup)
	}
	if diff := cmp.Diff([]string{"a", "a/b", "ab"}, cgroups); diff != "" {
		t.Error(diff)
	}
	s.RemovePod("1")
	if _, ok := s.Get("a/b"); ok || s.Len() != 2 {
		t.Error("the pod is still there")
	}
	s.Put(cgroup.Target{Cgroup: "a/b", Resources: r(4)})
	s.Remove("a")
	if _, ok := s.Get("ab"); !ok || s.Len() != 1 {
		t.Error("a neighbour went as well, or a child did not")
	}
	s.RemovePod("")
	if s.Len() != 1 {
		t.Error("no pod is every class")
	}
}

// A cgroup that is gone leaves the state, unless it is to be kept.
func TestEnforcePrunes(t *testing.T) {
	root := tree(t, splitV1)
	var state cgroup.State
	for path, uid := range map[string]string{"pod": "1", "pod/gone": "1", "gone": "2", "gone/too": "2", "wanted": "3", "class": ""} {
		state.Put(cgroup.Target{Cgroup: path, PodUID: uid, Resources: &hookmsg.Resources{CPUShares: new(int64(512))}})
	}
	e := enforcer(t, &state, root, cgroup.EnforcerConfig{})
	e.Enforce(t.Context())
	if diff := cmp.Diff([]string{"2"}, e.Prune(func(path string) bool { return path == "wanted" })); diff != "" {
		t.Errorf("the pods that are gone: %s", diff)
	}
	var left []string
	for _, d := range state.All() {
		left = append(left, d.Cgroup)
	}
	if diff := cmp.Diff([]string{"pod", "wanted"}, left); diff != "" {
		t.Errorf("the state: %s", diff)
	}
}

// Two goroutines enforce while cgroups come and go and decisions change.
func TestEnforceHammer(t *testing.T) {
	tree := cgrouptest.New(t)
	var state cgroup.State
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{KeepFiles: 20, RetryAfter: time.Nanosecond, RetryAtMost: time.Nanosecond, Contention: cgroup.Contention{Repairs: 1 << 30}})
	var all sync.WaitGroup
	for g := range 3 {
		name := "pod" + strconv.Itoa(g)
		all.Go(func() {
			for i := range 40 {
				pod := tree.Make(name)
				put(&state, pod, hookmsg.Resources{CFSQuotaUS: new(int64(5000 + i)), CPUSetCPUs: new(strconv.Itoa(i % 2))})
				if report := e.Enforce(t.Context(), pod); report.Err != nil {
					t.Error(report.Err)
				}
				if i%4 == 3 {
					tree.Remove(pod)
					e.Enforce(t.Context())
					state.Remove(pod)
				}
			}
		})
	}
	all.Wait()
	for _, d := range state.All() {
		t.Errorf("%s is left", d.Cgroup)
	}
}

// Comparing files that did not change allocates nothing for each of them.
func TestEnforceDoesNotAllocatePerFile(t *testing.T) {
	tree := cgrouptest.New(t)
	var state cgroup.State
	for i := range 50 {
		put(&state, tree.Make("pod"+strconv.Itoa(i)), hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(5000)), CFSPeriodUS: new(int64(100_000)), CPUSetCPUs: new("0")})
	}
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	e.Enforce(t.Context())
	files := 0
	n := testing.AllocsPerRun(20, func() {
		report := e.Enforce(t.Context())
		if len(report.Changes) != 0 || report.Err != nil {
			t.Errorf("got %+v", report)
		}
		files = report.Files
	})
	if files < 150 || n > 10 && !race.Enabled {
		t.Errorf("%v allocations for %d files, want at most 10", n, files)
	}
}

// What is known of pods and containers goes with them.
func TestFactsAreForgotten(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"kubepods/podu1/c1", "kubepods/podu2"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root, Version: cgroup.V2})
	if err != nil {
		t.Fatal(err)
	}
	defer applier.Close()
	state := new(cgroup.State)
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: state, Applier: applier})
	if err != nil {
		t.Fatal(err)
	}
	defer enforcer.Close()
	learn := func(uid, id, parent, path string) {
		(*facts.Store)(state.Facts()).Learn(facts.Subject{PodUID: uid, ContainerID: id}, func(f *facts.Facts) {
			f.Asked, f.Parent, f.Cgroup = &hookmsg.Resources{CFSQuotaUS: new(int64(80))}, parent, path
		})
	}
	known := func(uid, id string) bool {
		return (*facts.Store)(state.Facts()).Get(facts.Subject{PodUID: uid, ContainerID: id}).Asked != nil
	}
	learn("u1", "", "kubepods/podu1", "kubepods/podu1")
	learn("u1", "c1", "kubepods/podu1", "kubepods/podu1/c1")
	learn("u1", "c0", "kubepods/podu1", "kubepods/podu1/c0")
	learn("u1", "soon", "kubepods/podu1", "") // It has no cgroup yet.
	learn("u3", "c3", "kubepods/podu3", "")
	learn("", "c4", "", "") // Nothing to remember it by.
	pods := enforcer.Prune(func(string) bool { return false })
	if diff := cmp.Diff([]string{"u3"}, pods); diff != "" {
		t.Error(diff)
	}
	for id, want := range map[string]bool{"": true, "c1": true, "c0": false, "soon": true} {
		if got := known("u1", id); got != want {
			t.Errorf("of %q is known: %t", id, got)
		}
	}
	if known("", "c4") {
		t.Error("a pod without a UID is remembered")
	}
	(*facts.Store)(state.Facts()).Forget(facts.Subject{PodUID: "u1", ContainerID: "c1"})
	if known("u1", "c1") || !known("u1", "") {
		t.Error("a container that is forgotten")
	}
	state.RemovePod("u1")
	if known("u1", "") || known("u1", "soon") {
		t.Error("a pod that is removed")
	}
}

func TestDiffering(t *testing.T) {
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"cpu.max": "40000 100000\n", "cpu.weight": "59\n", "cpuset.cpus": "0-1\n", "memory.max": "max\n", "io.weight": "default 5\n"} {
		if err := os.WriteFile(filepath.Join(root, "c", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	applier, err := cgroup.NewApplier(cgroup.ApplierConfig{Root: root, Version: cgroup.V2})
	if err != nil {
		t.Fatal(err)
	}
	defer applier.Close()
	enforcer, err := cgroup.NewEnforcer(cgroup.EnforcerConfig{State: new(cgroup.State), Applier: applier})
	if err != nil {
		t.Fatal(err)
	}
	defer enforcer.Close()
	same := &hookmsg.Resources{
		CFSQuotaUS: new(int64(40_000)), CFSPeriodUS: new(int64(100_000)), CPUShares: new(int64(512)), CPUSetCPUs: new("0,1"), MemoryLimitBytes: new(int64(-1)),
		Unified: map[string]string{"io.weight": "default 5"},
	}
	if got := applier.Differing(cgroup.Target{Cgroup: "c", Resources: same}); got != nil {
		t.Errorf("of what it has, it has otherwise %+v", got)
	}
	limits := &hookmsg.Resources{CFSQuotaUS: same.CFSQuotaUS, CFSPeriodUS: same.CFSPeriodUS, MemoryLimitBytes: same.MemoryLimitBytes}
	if diff := cmp.Diff(limits, applier.Limits("c")); diff != "" {
		t.Errorf("its limits: %s", diff)
	}
	if diff := cmp.Diff(new(hookmsg.Resources), applier.Limits("../c")); diff != "" {
		t.Errorf("of a cgroup that is not below the root: %s", diff)
	}
	if got := applier.Differing(cgroup.Target{Cgroup: "nowhere", Resources: same}); got != nil {
		t.Errorf("a cgroup that is not there has otherwise %+v", got)
	}
	// memory.high is not there.
	other := &hookmsg.Resources{CFSQuotaUS: new(int64(60_000)), CPUShares: new(int64(512)), CPUSetCPUs: new("0"), MemoryHighBytes: new(int64(4096))}
	if diff := cmp.Diff(&hookmsg.Resources{CFSQuotaUS: new(int64(60_000)), CPUSetCPUs: new("0")}, applier.Differing(cgroup.Target{Cgroup: "c", Resources: other})); diff != "" {
		t.Error(diff)
	}
}

// A process that has just come gets its score, however lately the others were listed, and that
// repairs nothing.
func TestEnforceScoresNewProcesses(t *testing.T) {
	tree := cgrouptest.New(t)
	web := tree.Make("web")
	var state cgroup.State
	put(&state, web, hookmsg.Resources{OOMScoreAdj: new(int64(321))})
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{})
	for range 3 {
		pid := tree.Process(web)
		if report := e.Enforce(t.Context()); report.Err != nil || report.Repairs != 0 {
			t.Fatalf("got %+v", report)
		}
		if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid)); err != nil || strings.TrimSpace(string(score)) != "321" {
			t.Errorf("the process has score %s, error %v", score, err)
		}
	}
	first, _, _ := strings.Cut(tree.Read(web, "cgroup.procs"), "\n")
	if err := os.WriteFile("/proc/"+first+"/oom_score_adj", []byte("400"), 0); err != nil {
		t.Fatal(err)
	}
	if report := e.Enforce(t.Context()); report.Err != nil || report.Repairs != 1 {
		t.Errorf("a process that was there: %+v", report)
	}
}

// What a pass that ended in the middle has not written, the next one writes, and takes for
// the work of no other writer.
func TestEnforceGoesOnAfterAnEnd(t *testing.T) {
	for writes := range 6 {
		root := tree(t, join(in("cpu/a", cpuV1), splitV1))
		var state cgroup.State
		put(&state, "a", hookmsg.Resources{CPUShares: new(int64(512))})
		put(&state, "pod", hookmsg.Resources{CPUShares: new(int64(512)), CFSQuotaUS: new(int64(5000)), CPUSetCPUs: new("0")})
		e := enforcer(t, &state, root, cgroup.EnforcerConfig{})
		e.Enforce(&ending{Context: t.Context(), left: writes})
		if report := e.Enforce(t.Context()); report.Err != nil || report.Repairs != 0 {
			t.Errorf("after %d writes: %+v", writes, report)
		}
		got := read(t, root, "cpu/a/cpu.shares", "cpu/pod/cpu.shares", "cpu/pod/cpu.cfs_quota_us", "cpuset/pod/cpuset.cpus")
		want := map[string]string{"cpu/a/cpu.shares": "512", "cpu/pod/cpu.shares": "512", "cpu/pod/cpu.cfs_quota_us": "5000", "cpuset/pod/cpuset.cpus": "0"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("after %d writes: %s", writes, diff)
		}
	}
}

// A cgroup that is named twice is written once, and what is written is no repair.
func TestEnforceACgroupThatIsNamedTwice(t *testing.T) {
	root := tree(t, splitV1)
	var state cgroup.State
	put(&state, "pod", hookmsg.Resources{CPUShares: new(int64(512))})
	e := enforcer(t, &state, root, cgroup.EnforcerConfig{})
	report := e.Enforce(t.Context(), "pod", "pod")
	if diff := cmp.Diff([]string{"cpu/pod/cpu.shares: 1024 -> 512"}, changed(report)); diff != "" || report.Repairs != 0 {
		t.Errorf("there are %d repairs, and %s", report.Repairs, diff)
	}
}

// A cgroup that has its parent's CPUs follows it, and no other writer is to blame.
func TestEnforceFollowsAParent(t *testing.T) {
	root := tree(t, join(splitV1, in("cpu/pod/web", cpuV1), in("cpuset/pod/web", cpusetV1)))
	var state cgroup.State
	e := enforcer(t, &state, root, cgroup.EnforcerConfig{})
	put(&state, "pod/web", hookmsg.Resources{CPUShares: new(int64(512)), CPUSetCPUs: new("")})
	for _, cpus := range []string{"0-3", "0-1"} {
		put(&state, "pod", hookmsg.Resources{CPUSetCPUs: &cpus})
		if report := e.Enforce(t.Context()); report.Err != nil || report.Repairs != 0 {
			t.Errorf("the parent: %+v", report)
		}
		if err := os.WriteFile(filepath.Join(root, "cpu/pod/web/cpu.shares"), []byte("7\n"), 0); err != nil {
			t.Fatal(err)
		}
		report := e.Enforce(t.Context())
		if got := read(t, root, "cpuset/pod/web/cpuset.cpus")["cpuset/pod/web/cpuset.cpus"]; report.Err != nil || report.Repairs != 1 || got != cpus {
			t.Errorf("the CPUs are %s, want %s: %+v", got, cpus, report)
		}
	}
}

// A file that is not there is looked for again by passes over everything: on cgroup v2 a
// controller comes back with the kernel's values.
func TestEnforceLooksAgainForAController(t *testing.T) {
	tree := cgrouptest.New(t)
	if !tree.V2 {
		t.Skip("cgroup v1 has no controllers to turn off")
	}
	pod := tree.Make("pod")
	var state cgroup.State
	put(&state, pod, hookmsg.Resources{CPUShares: new(int64(300)), MemoryLimitBytes: new(int64(1 << 30)), CPUBvt: new(int64(1))})
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{RetryAfter: time.Nanosecond, RetryAtMost: time.Nanosecond})
	want := strconv.FormatInt(cgroup.WeightQuadratic.Weight(300), 10)
	first := e.Enforce(t.Context())
	for i := range 3 {
		if got := tree.Read(pod, "cpu.weight"); got != want {
			t.Fatalf("round %d: cpu.weight is %s, want %s", i, got, want)
		}
		tree.Write(tree.Root, "cgroup.subtree_control", "-cpu")
		if off := e.Enforce(t.Context()); off.Err == nil || cgroup.CauseOf(off.Err) != "unsupported" || off.LeftRefused != first.LeftRefused+1 {
			t.Errorf("without the controller: error %v, %d are refused", off.Err, off.LeftRefused)
		}
		if off := e.Enforce(t.Context()); off.Err != nil || len(off.Changes) != 0 {
			t.Errorf("without the controller, once more: error %v, changes %v", off.Err, off.Changes)
		}
		tree.Write(tree.Root, "cgroup.subtree_control", "+cpu")
		if on := e.Enforce(t.Context()); on.Err != nil || len(on.Changes) != 1 {
			t.Errorf("with it again: error %v, changes %v", on.Err, on.Changes)
		}
	}
}

// TestLinesAboutRepairs holds that a container that changes its files again and again fills no log,
// and does not hide what happens to another.
func TestLinesAboutRepairs(t *testing.T) {
	tree := cgrouptest.New(t)
	hostile, other := tree.Make("hostile"), tree.Make("other")
	shares := "cpu.shares"
	if tree.V2 {
		shares = "cpu.weight"
	}
	var state cgroup.State
	var log strings.Builder
	put(&state, hostile, hookmsg.Resources{CPUShares: new(int64(512))})
	put(&state, other, hookmsg.Resources{CPUShares: new(int64(512))})
	e := enforcer(t, &state, cgrouptest.Mount, cgroup.EnforcerConfig{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Contention: cgroup.Contention{Repairs: math.MaxInt},
	})
	e.Enforce(t.Context())
	const repairs = 2_000
	for range repairs {
		tree.Write(hostile, shares, "77")
		if report := e.Enforce(t.Context(), hostile); report.Repairs != 1 {
			t.Fatalf("a repair: %+v", report)
		}
	}
	tree.Write(other, shares, "77")
	e.Enforce(t.Context(), other)
	if log.Len() > 16<<10 {
		t.Errorf("%d repairs are %d bytes of log", repairs, log.Len())
	}
	for line, most := range map[string]int{other + "/" + shares: 2, "lines are dropped": 2} {
		if got := strings.Count(log.String(), line); got == 0 || got > most {
			t.Errorf("the log has %d lines with %q:\n%s", got, line, log.String())
		}
	}
}
