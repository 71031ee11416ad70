package hooks

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// unlimited stands for no limit where a number is a limit.
const unlimited = -1

// numberFields are the fields of Resources that are numbers, with the range
// that the kernel takes.
var numberFields = [...]struct {
	name     string
	in       func(*hookmsg.Resources) **int64
	min, max int64
	// orUnlimited says that -1 is allowed too.
	orUnlimited bool
}{
	// kernel/sched/sched.h: MIN_SHARES, MAX_SHARES.
	{"cpu_shares", func(r *hookmsg.Resources) **int64 { return &r.CPUShares }, 2, 1 << 18, false},
	// kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period,
	// max_cfs_runtime.
	{"cfs_quota_us", func(r *hookmsg.Resources) **int64 { return &r.CFSQuotaUS }, 1000, maxRuntime, true},
	{"cfs_period_us", func(r *hookmsg.Resources) **int64 { return &r.CFSPeriodUS }, 1000, 1_000_000, false},
	{"cpu_bvt", func(r *hookmsg.Resources) **int64 { return &r.CPUBvt }, -2, 2, false},
	{"cpu_idle", func(r *hookmsg.Resources) **int64 { return &r.CPUIdle }, 0, 1, false},
	{"cpu_burst_us", func(r *hookmsg.Resources) **int64 { return &r.CPUBurstUS }, 0, maxRuntime, false},
	{"memory_limit_bytes", func(r *hookmsg.Resources) **int64 { return &r.MemoryLimitBytes }, 1, maxBytes, true},
	{"memory_min_bytes", func(r *hookmsg.Resources) **int64 { return &r.MemoryMinBytes }, 0, maxBytes, true},
	{"memory_low_bytes", func(r *hookmsg.Resources) **int64 { return &r.MemoryLowBytes }, 0, maxBytes, true},
	{"memory_high_bytes", func(r *hookmsg.Resources) **int64 { return &r.MemoryHighBytes }, 0, maxBytes, true},
	// include/uapi/linux/oom.h has -1000, which exempts a process. Below the score of
	// a guaranteed pod (k8s.io/kubernetes/pkg/kubelet/qos, guaranteedOOMScoreAdj) are
	// the kubelet and the runtime.
	{"oom_score_adj", func(r *hookmsg.Resources) **int64 { return &r.OOMScoreAdj }, -997, 1000, false},
	{"net_cls_classid", func(r *hookmsg.Resources) **int64 { return &r.NetClsClassID }, 0, math.MaxUint32, false},
}

// numbersOf returns the numbers in the order of numberFields.
func numbersOf(r *hookmsg.Resources) [len(numberFields)]*int64 {
	return [...]*int64{
		r.CPUShares, r.CFSQuotaUS, r.CFSPeriodUS, r.CPUBvt, r.CPUIdle, r.CPUBurstUS,
		r.MemoryLimitBytes, r.MemoryMinBytes, r.MemoryLowBytes, r.MemoryHighBytes, r.OOMScoreAdj, r.NetClsClassID,
	}
}

const (
	maxRuntime = 1<<44 - 1 // Microseconds.
	maxBytes   = 1<<62 - 1
)

// textFields are the fields of Resources that are text: lists of CPUs or nodes, and
// groups of processes. check reports what is wrong with one.
var textFields = [...]struct {
	name  string
	in    func(*hookmsg.Resources) **string
	check func(string) error
}{
	{"cpuset_cpus", func(r *hookmsg.Resources) **string { return &r.CPUSetCPUs }, checkList},
	{"cpuset_mems", func(r *hookmsg.Resources) **string { return &r.CPUSetMems }, checkList},
	{"core_sched_group", func(r *hookmsg.Resources) **string { return &r.CoreSchedGroup }, checkCoreSchedGroup},
	{"resctrl_group", func(r *hookmsg.Resources) **string { return &r.ResctrlGroup }, checkResctrlGroup},
	{"resctrl_schemata", func(r *hookmsg.Resources) **string { return &r.ResctrlSchemata }, checkSchemata},
}

func checkList(s string) error {
	_, err := parseList(s)
	return err
}

// goesWith reports what is wrong with a plugin's decision beside those of earlier
// plugins.
func goesWith(plugin string, d *hookmsg.Decision, earlier []part) error {
	if err := findConflict(plugin, d, earlier); err != nil {
		return err
	}
	if r := d.Resources; r != nil && (r.CPUBurstUS != nil || r.CFSQuotaUS != nil) {
		// The kernel takes no burst above the quota; they may be two plugins'.
		burst, quota := r.CPUBurstUS, r.CFSQuotaUS
		for _, e := range earlier {
			if e := e.decision.Resources; e != nil {
				burst, quota = or(burst, e.CPUBurstUS), or(quota, e.CFSQuotaUS)
			}
		}
		if burst != nil && quota != nil && *quota != unlimited && *burst > *quota {
			return &DecisionError{Plugin: plugin, Err: fmt.Errorf("cpu_burst_us is %d, more than the cfs_quota_us of %d", *burst, *quota)}
		}
	}
	return nil
}

func or[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// invalid returns every mistake of the decision, nil if there is none.
func invalid(d *hookmsg.Decision, level hookmsg.Level) (errs []error) {
	if r := d.Resources; r != nil {
		numbers := numbersOf(r)
		for i := range numbers {
			v, f := numbers[i], &numberFields[i]
			if v == nil || f.min <= *v && *v <= f.max || f.orUnlimited && *v == unlimited {
				continue
			}
			want := fmt.Sprintf("%d to %d", f.min, f.max)
			if f.orUnlimited {
				want += ", or -1"
			}
			errs = append(errs, fmt.Errorf("%s is %d, want %s", f.name, *v, want))
		}
		if r.CPUIdle != nil && level == hookmsg.LevelQOS {
			errs = append(errs, errors.New("cpu_idle is set for a QoS class, where the kubelet could no longer set cpu.weight"))
		}
		if r.OOMScoreAdj != nil && level != hookmsg.LevelContainer {
			errs = append(errs, errors.New("oom_score_adj is set above a container, where there are no processes"))
		}
		if level != hookmsg.LevelContainer && (r.CoreSchedGroup != nil || r.ResctrlGroup != nil) {
			errs = append(errs, errors.New("core_sched_group or resctrl_group is set above a container, where there are no processes"))
		}
		if r.ResctrlSchemata != nil && r.ResctrlGroup == nil {
			errs = append(errs, errors.New("resctrl_schemata is set without the resctrl_group that it is for"))
		}
		for i := range textFields {
			if v := *textFields[i].in(r); v != nil {
				if err := textFields[i].check(*v); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", textFields[i].name, err))
				}
			}
		}
	}
	if !hasKeyed(d) {
		return errs
	}
	if errs = append(errs, invalidKeyed(d)...); len(errs) > maxMistakes {
		more := len(errs) - maxMistakes
		errs = append(errs[:maxMistakes], fmt.Errorf("%d more mistakes", more))
	}
	return errs
}

// hasKeyed reports whether the decision has any maps or lists. Most have none, and
// beginning to range over five empty ones takes longer than seeing that they are.
func hasKeyed(d *hookmsg.Decision) bool {
	return len(d.ContainerAnnotations)+len(d.ContainerEnvs)+len(d.ContainerMounts)+len(d.ContainerDevices) != 0 ||
		d.Resources != nil && len(d.Resources.Unified) != 0
}

// maxMistakes is how many mistakes a message names.
const maxMistakes = 20

// The most entries of a decision, each of which costs the host files to look at, now
// or as long as the cgroup is there. Maps that cost memory alone have the limit of
// the decision's bytes.
const (
	maxUnified = 64
	maxMounts  = 128
	maxDevices = 128
)

// invalidKeyed returns the mistakes of the maps and lists of the decision.
func invalidKeyed(d *hookmsg.Decision) (errs []error) {
	unified := 0
	if d.Resources != nil {
		unified = len(d.Resources.Unified)
	}
	for _, f := range [...]struct {
		field   Fields
		n, most int
	}{{FieldUnified, unified, maxUnified}, {FieldContainerMounts, len(d.ContainerMounts), maxMounts}, {FieldContainerDevices, len(d.ContainerDevices), maxDevices}} {
		if f.n > f.most {
			errs = append(errs, fmt.Errorf("%s has %d entries, want at most %d", f.field, f.n, f.most))
		}
	}
	if errs != nil {
		return errs
	}
	if d.Resources != nil {
		for file, value := range d.Resources.Unified {
			err := checkUnified(file, value)
			if field := fieldOfFile[file]; err == nil && field != 0 {
				// Its range, its owner and its levels would not count.
				err = fmt.Errorf("%s writes the file", field)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("unified[%.200q]: %w", file, err))
			}
		}
	}
	for key, value := range d.ContainerAnnotations {
		if key == "" || strings.ContainsFunc(key, isControl) || strings.IndexByte(value, 0) >= 0 {
			errs = append(errs, fmt.Errorf("container_annotations[%.200q]: not an annotation", key))
		}
	}
	for name, value := range d.ContainerEnvs {
		if name == "" || strings.ContainsFunc(name, isControl) || strings.Contains(name, "=") || strings.IndexByte(value, 0) >= 0 {
			errs = append(errs, fmt.Errorf("container_envs[%.200q]: not an environment variable", name))
		}
	}
	if len(d.ContainerMounts)+len(d.ContainerDevices) == 0 {
		return errs
	}
	seen := map[string]bool{}
	for i := range d.ContainerMounts {
		m := &d.ContainerMounts[i]
		if err := checkMount(m, seen); err != nil {
			errs = append(errs, fmt.Errorf("container_mounts[%.200q]: %w", m.Destination, err))
		}
	}
	for i := range d.ContainerDevices {
		v := &d.ContainerDevices[i]
		if err := checkDevice(v, seen); err != nil {
			errs = append(errs, fmt.Errorf("container_devices[%.200q]: %w", v.Path, err))
		}
	}
	return errs
}

// checkMount checks that a mount is one, and the only one of its place. What a
// plugin may mount is for its [Grants].
func checkMount(m *hookmsg.Mount, seen map[string]bool) error {
	switch {
	case !cleanPath(m.Destination):
		return errors.New("the destination is not an absolute and clean path")
	case seen[m.Destination]:
		return errors.New("the path is used twice")
	case m.Type == "" || strings.ContainsFunc(m.Type, isControl):
		return fmt.Errorf("the type %.200q is none of a file system", m.Type)
	case m.Type == "bind" && !cleanPath(m.Source):
		return fmt.Errorf("the source %.200q of a bind mount is not an absolute and clean path", m.Source)
	case strings.ContainsFunc(m.Source, isControl):
		return fmt.Errorf("the source %.200q has a control character", m.Source)
	}
	for _, option := range m.Options {
		if option == "" || strings.Contains(option, ",") || strings.ContainsFunc(option, isControl) {
			return fmt.Errorf("%.200q is not a mount option", option)
		}
	}
	seen[m.Destination] = true
	return nil
}

// checkDevice checks a device file by the rules of the OCI runtime
// specification, linux.devices.
func checkDevice(v *hookmsg.Device, seen map[string]bool) error {
	// The kernel has 12 bits of major and 20 of minor numbers.
	const maxMajor, maxMinor = 1<<12 - 1, 1<<20 - 1
	switch {
	case !cleanPath(v.Path):
		return errors.New("the path is not absolute and clean")
	case seen[v.Path]:
		return errors.New("the path is used twice")
	case v.Type != "c" && v.Type != "b" && v.Type != "p":
		return fmt.Errorf("the type is %.200q, want c, b or p", v.Type)
	case v.Major < 0 || v.Major > maxMajor || v.Minor < 0 || v.Minor > maxMinor:
		return fmt.Errorf("%d:%d is not the number of a device", v.Major, v.Minor)
	case v.Type == "p" && (v.Major != 0 || v.Minor != 0):
		return errors.New("a FIFO has no number")
	}
	for _, p := range [...]struct {
		name string
		n    *int64
		max  int64
	}{{"file_mode", v.FileMode, 0o777}, {"uid", v.UID, math.MaxUint32}, {"gid", v.GID, math.MaxUint32}} {
		if p.n != nil && (*p.n < 0 || *p.n > p.max) {
			return fmt.Errorf("%s is %d, want 0 to %d", p.name, *p.n, p.max)
		}
	}
	seen[v.Path] = true
	return nil
}

func cleanPath(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && p != "/" && !strings.ContainsFunc(p, isControl)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// maxValue is the longest value that fits into the one write of a page that
// kernfs takes.
const maxValue = 4095

// unifiedControllers are the controllers whose files may be in unified: those of
// cgroup v2 (Documentation/admin-guide/cgroup-v2.rst), and those of v1 that do no more
// than to limit or to weigh (cgroup-v1). Devices and the freezer are not among them.
var unifiedControllers = [...]string{"blkio", "cpu", "cpuset", "dmem", "hugetlb", "io", "memory", "misc", "net_prio", "pids", "rdma"}

// fieldOfFile are the fields that stand for files, of either version.
var fieldOfFile = map[string]Fields{
	"cpu.shares": FieldCPUShares, "cpu.cfs_quota_us": FieldCFSQuota, "cpu.cfs_period_us": FieldCFSPeriod, "cpu.cfs_burst_us": FieldCPUBurst,
	"memory.limit_in_bytes": FieldMemoryLimit, "net_cls.classid": FieldNetClsClassID,
	"cpu.weight": FieldCPUShares, "cpu.weight.nice": FieldCPUShares, "cpu.max": FieldCFSQuota | FieldCFSPeriod, "cpu.max.burst": FieldCPUBurst,
	"cpu.idle": FieldCPUIdle, "cpu.bvt_warp_ns": FieldCPUBvt, "cpuset.cpus": FieldCPUSetCPUs, "cpuset.mems": FieldCPUSetMems,
	"memory.max": FieldMemoryLimit, "memory.high": FieldMemoryHigh, "memory.low": FieldMemoryLow, "memory.min": FieldMemoryMin,
}

// acting are files that do more than to configure the one cgroup: memory.reclaim and
// memory.force_empty act, cpuset.cpus.partition and cpuset.cpu_exclusive take CPUs from
// others, memory.oom_control stops the OOM killer, cpuset.sched_load_balance is about
// the CPUs of all, cpu.rt_runtime_us takes them from all others.
var acting = map[string]bool{
	"memory.reclaim": true, "cpuset.cpus.partition": true, "cpuset.cpus.exclusive": true,
	"memory.force_empty": true, "memory.oom_control": true, "memory.use_hierarchy": true, "memory.move_charge_at_immigrate": true,
	"memory.pressure_level": true, "blkio.reset_stats": true, "cpu.rt_runtime_us": true, "cpu.rt_period_us": true,
	"cpuset.cpu_exclusive": true, "cpuset.mem_exclusive": true, "cpuset.sched_load_balance": true, "cpuset.sched_relax_domain_level": true,
	"cpuset.memory_pressure_enabled": true,
}

// actingSuffixes are what the names of other such files end with: statistics that
// a write resets.
var actingSuffixes = [...]string{".pressure", ".peak", ".failcnt", "max_usage_in_bytes"}

// checkUnified checks a file of a cgroup and what to write to it. The files of
// the core are not for plugins, and neither are those that are acting.
func checkUnified(file, value string) error {
	controller, name, dotted := strings.Cut(file, ".")
	switch {
	case !dotted || controller == "" || name == "" || strings.ContainsFunc(file, notFileName) || strings.Contains(file, "..") || strings.HasSuffix(file, "."):
		return errors.New(`not a cgroup file's name like "io.weight"`)
	case controller == "cgroup":
		return errors.New("a file of the cgroup core, not of a controller")
	case !slices.Contains(unifiedControllers[:], controller):
		return fmt.Errorf("%q is not a controller: there are %s", controller, strings.Join(unifiedControllers[:], ", "))
	case acting[file], slices.ContainsFunc(actingSuffixes[:], func(end string) bool { return strings.HasSuffix(file, end) }):
		return errors.New("a file that does more than to configure the cgroup")
	case value == "" || len(value) > maxValue:
		return fmt.Errorf("the value has %d bytes, want 1 to %d", len(value), maxValue)
	case strings.ContainsFunc(value, isControl):
		return fmt.Errorf("the value %.200q has a control character", value)
	}
	return nil
}

func notFileName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '-', r == '.':
		return false
	}
	return true
}

// checkCgroup refuses paths that are not plainly below the root.
func checkCgroup(cgroup string) error {
	if cgroup == "" || cgroup == "." || path.IsAbs(cgroup) || path.Clean(cgroup) != cgroup || cgroup == ".." || strings.HasPrefix(cgroup, "../") {
		return fmt.Errorf("cgroup %q: %w", cgroup, ErrEscapes)
	}
	return nil
}
