package cgroup

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// unlimited means no limit in fields that are limits.
const unlimited = -1

// valueRange is the range of a number accepted by the kernel.
type valueRange struct {
	min, max int64
	// orUnlimited is set if -1 is also allowed.
	orUnlimited bool
}

// ranges maps number fields to their ranges.
var ranges = map[hookmsg.Fields]valueRange{
	// kernel/sched/sched.h: MIN_SHARES, MAX_SHARES.
	hookmsg.FieldCPUShares: {2, 1 << 18, false},
	// kernel/sched/core.c: min_cfs_quota_period, max_cfs_quota_period,
	// max_cfs_runtime.
	hookmsg.FieldCFSQuota:    {1000, maxRuntime, true},
	hookmsg.FieldCFSPeriod:   {1000, 1_000_000, false},
	hookmsg.FieldCPUBvt:      {-2, 2, false},
	hookmsg.FieldCPUIdle:     {0, 1, false},
	hookmsg.FieldCPUBurst:    {0, maxRuntime, false},
	hookmsg.FieldMemoryLimit: {1, maxBytes, true},
	hookmsg.FieldMemoryMin:   {0, maxBytes, true},
	hookmsg.FieldMemoryLow:   {0, maxBytes, true},
	hookmsg.FieldMemoryHigh:  {0, maxBytes, true},
	// include/uapi/linux/oom.h. Scores below -997 need a grant of package hooks.
	hookmsg.FieldOOMScoreAdj:   {-1000, 1000, false},
	hookmsg.FieldNetClsClassID: {0, math.MaxUint32, false},
}

const (
	maxRuntime = 1<<44 - 1 // Microseconds.
	maxBytes   = 1<<62 - 1
)

// textChecks validate text fields.
var textChecks = map[hookmsg.Fields]func(string) error{
	hookmsg.FieldCPUSetCPUs:      checkList,
	hookmsg.FieldCPUSetMems:      checkList,
	hookmsg.FieldCoreSchedGroup:  checkCoreSchedGroup,
	hookmsg.FieldResctrlGroup:    checkResctrlGroup,
	hookmsg.FieldResctrlSchemata: checkSchemata,
}

func checkList(s string) error {
	_, err := parseList(s)
	return err
}

// maxUnified is the maximum number of files in Unified: each must be read as long as the cgroup
// exists.
const maxUnified = 64

// Validate returns an error for every value of resources that the kernel accepts in no cgroup at a
// level, or that would break the kubelet; nil if there is none. Whether a certain cgroup accepts a
// value depends on those above and below it, and only a write shows it.
func Validate(r *hookmsg.Resources, level abi.Level) (errs []error) {
	fields := r.Fields()
	if fields == 0 {
		return nil
	}
	for field := range fields.Numbers().All() {
		v, of := **r.Number(field), ranges[field]
		if of.min <= v && v <= of.max || of.orUnlimited && v == unlimited {
			continue
		}
		want := fmt.Sprintf("%d to %d", of.min, of.max)
		if of.orUnlimited {
			want += ", or -1"
		}
		errs = append(errs, fmt.Errorf("%s is %d, want %s", field, v, want))
	}
	if r.CPUBurstUS != nil && r.CFSQuotaUS != nil && *r.CFSQuotaUS >= 0 && *r.CPUBurstUS > *r.CFSQuotaUS {
		errs = append(errs, fmt.Errorf("cpu_burst_us is %d, more than the cfs_quota_us of %d", *r.CPUBurstUS, *r.CFSQuotaUS))
	}
	if r.OOMScoreAdj != nil && level != abi.LevelContainer {
		errs = append(errs, errors.New("oom_score_adj is set above a container, where there are no processes"))
	}
	if level != abi.LevelContainer && (r.CoreSchedGroup != nil || r.ResctrlGroup != nil) {
		errs = append(errs, errors.New("core_sched_group or resctrl_group is set above a container, where there are no processes"))
	}
	if r.ResctrlSchemata != nil && r.ResctrlGroup == nil {
		errs = append(errs, errors.New("resctrl_schemata is set without the resctrl_group that it is for"))
	}
	for field := range fields.Texts().All() {
		if err := textChecks[field](**r.Text(field)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", field, err))
		}
	}
	if n := len(r.Unified); n > maxUnified {
		return append(errs, fmt.Errorf("%s has %d entries, want at most %d", hookmsg.FieldUnified, n, maxUnified))
	} else if n == 0 {
		return errs
	}
	for file, value := range r.Unified {
		err := checkUnified(file, value)
		if field := fieldOfFile[file]; err == nil && field != 0 {
			// The field's range, owner and levels would be bypassed.
			err = fmt.Errorf("%s writes the file", field)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("unified[%.200q]: %w", file, err))
		}
	}
	return errs
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// maxValue is the length of the longest value that fits into one write, for which kernfs accepts a
// page.
const maxValue = 4095

// unifiedControllers are the controllers whose files may be in unified: those of cgroup v2
// (Documentation/admin-guide/cgroup-v2.rst), and those of v1 that only limit or weigh (cgroup-v1).
// Devices and the freezer are not among them.
var unifiedControllers = [...]string{"blkio", "cpu", "cpuset", "dmem", "hugetlb", "io", "memory", "misc", "net_prio", "pids", "rdma"}

// fieldOfFile maps files, of either version, to the fields that represent them.
var fieldOfFile = map[string]hookmsg.Fields{
	"cpu.shares": hookmsg.FieldCPUShares, "cpu.cfs_quota_us": hookmsg.FieldCFSQuota, "cpu.cfs_period_us": hookmsg.FieldCFSPeriod, "cpu.cfs_burst_us": hookmsg.FieldCPUBurst,
	"memory.limit_in_bytes": hookmsg.FieldMemoryLimit, "net_cls.classid": hookmsg.FieldNetClsClassID,
	"cpu.weight": hookmsg.FieldCPUShares, "cpu.weight.nice": hookmsg.FieldCPUShares, "cpu.max": hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod, "cpu.max.burst": hookmsg.FieldCPUBurst,
	"cpu.idle": hookmsg.FieldCPUIdle, "cpu.bvt_warp_ns": hookmsg.FieldCPUBvt, "cpuset.cpus": hookmsg.FieldCPUSetCPUs, "cpuset.mems": hookmsg.FieldCPUSetMems,
	"memory.max": hookmsg.FieldMemoryLimit, "memory.high": hookmsg.FieldMemoryHigh, "memory.low": hookmsg.FieldMemoryLow, "memory.min": hookmsg.FieldMemoryMin,
}

// acting are files that do more than configure their cgroup: memory.reclaim and memory.force_empty
// act, cpuset.cpus.partition and cpuset.cpu_exclusive take CPUs from others, memory.oom_control
// stops the OOM killer, cpuset.sched_load_balance affects the CPUs of all cgroups, and
// cpu.rt_runtime_us takes them from all others.
var acting = map[string]bool{
	"memory.reclaim": true, "cpuset.cpus.partition": true, "cpuset.cpus.exclusive": true,
	"memory.force_empty": true, "memory.oom_control": true, "memory.use_hierarchy": true, "memory.move_charge_at_immigrate": true,
	"memory.pressure_level": true, "blkio.reset_stats": true, "cpu.rt_runtime_us": true, "cpu.rt_period_us": true,
	"cpuset.cpu_exclusive": true, "cpuset.mem_exclusive": true, "cpuset.sched_load_balance": true, "cpuset.sched_relax_domain_level": true,
	"cpuset.memory_pressure_enabled": true,
}

// actingSuffixes are suffixes of other such files: statistics that a write resets.
var actingSuffixes = [...]string{".pressure", ".peak", ".failcnt", "max_usage_in_bytes"}

// checkUnified checks a file of a cgroup and the value to write. Plugins may write neither the
// files of the core nor those that are acting.
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

// checkCgroup refuses paths that are not clean paths below the root.
func checkCgroup(cgroup string) error {
	if cgroup == "" || cgroup == "." || path.IsAbs(cgroup) || path.Clean(cgroup) != cgroup || cgroup == ".." || strings.HasPrefix(cgroup, "../") {
		return fmt.Errorf("cgroup %q: %w", cgroup, errEscapes)
	}
	return nil
}
