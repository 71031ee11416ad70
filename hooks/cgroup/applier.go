package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Applier writes resources into the cgroups below one directory. It is safe for use by several
// goroutines. If two goroutines apply to one cgroup at the same time, the values of either may
// remain.
type Applier struct {
	version     Version
	conversions conversions
	path        string
	// root is the hierarchy, or the directory of several.
	root *os.Root
	// controllers are the hierarchies of cgroup v1 in root; nil if root is the only one.
	controllers map[string]*os.Root
	// others are further hierarchies of v1, for net_cls_classid and unified alone.
	others map[string]*os.Root
	// proc has a directory for each process, resctrl a directory for each group of processes.
	proc, resctrl string
	cores         coreSched
}

// ApplierConfig configures an Applier.
type ApplierConfig struct {
	// Root is the directory of the cgroup hierarchy, /sys/fs/cgroup on most
	// nodes. Required.
	//
	// With cgroup v1 it may hold a directory for each controller (cpu, cpuset, memory), as on most
	// nodes, or the files of all controllers together.
	Root string
	// Version is the version of the hierarchy. By default it is detected from the files in Root.
	Version Version
	// Weight is the conversion from cpu.shares to cpu.weight on cgroup v2 for containers, whose
	// cgroups the runtime creates. By default it is detected from containers with known shares, or
	// [WeightQuadratic] if none reveals it: see [Applier.FindConversion].
	Weight WeightConversion
	// KubeletWeight is the conversion for pods and QoS classes, whose cgroups the kubelet creates.
	// By default it is detected likewise, or [WeightLinear] if no cgroup reveals it.
	KubeletWeight WeightConversion
	// Proc is the proc file system, for oom_score_adj. It must be that of the node if the program
	// runs in a separate PID namespace. Default /proc.
	Proc string
	// Resctrl is the resctrl file system. Default /sys/fs/resctrl.
	Resctrl string
}

// Version is a version of the kernel's cgroup interface.
type Version uint8

// The versions.
const (
	V1 Version = 1 + iota
	V2
)

// String returns the name of the version.
func (v Version) String() string {
	switch v {
	case V1:
		return "v1"
	case V2:
		return "v2"
	}
	return fmt.Sprintf("version(%d)", uint8(v))
}

// Target is a cgroup with the resources that it should have.
type Target struct {
	// Cgroup is the path below the root, slash-separated and clean:
	// "kubepods/burstable/pod8dbc5577/4b1f".
	Cgroup string
	// PodUID is the UID of the pod that contains the cgroup, empty for a QoS class. Only a [State]
	// uses it.
	PodUID string
	// Level is the level of the cgroup. The kubelet, which creates the cgroups of pods and QoS
	// classes, converts cpu_shares differently from the runtimes, which create those of containers.
	// The zero value is a container.
	Level abi.Level
	// Resources are the values to write. Files of nil fields stay unchanged.
	Resources *hookmsg.Resources
}

// Change is one write to a file.
type Change struct {
	// Cgroup is the cgroup of the target. Field is the field in the file; a quota with its period
	// is two fields.
	Cgroup string
	Field  hookmsg.Fields
	// File is the path below the root.
	File string
	// From is the text before the write, without the newline at the end, and To the text to write.
	From, To string
}

// String returns "cpu/pod/cpu.shares: 1024 -> 2".
func (c Change) String() string { return c.File + ": " + c.From + " -> " + c.To }

// task returns the process or the thread of the change, empty for a change of a file.
func (c *Change) task() string {
	switch {
	case c.Field&(hookmsg.FieldOOMScoreAdj|hookmsg.FieldCoreSchedGroup) != 0:
		return path.Base(path.Dir(c.File))
	case c.Field&hookmsg.FieldResctrlGroup != 0 && path.Base(c.File) == resctrlTasks:
		return c.To
	}
	return ""
}

// v1Controllers are the controllers of cgroup v1 that have a cgroup for each pod and container,
// whose files an Applier writes. v1Others are controllers that may have one.
var (
	v1Controllers = [...]string{"cpu", "cpuset", "memory"}
	v1Others      = [...]string{"blkio", "hugetlb", "misc", "net_cls", "net_prio", "pids", "rdma"}
)

// NewApplier opens the hierarchy. Close the Applier after use.
func NewApplier(cfg ApplierConfig) (*Applier, error) {
	root, err := os.OpenRoot(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("open cgroup root: %w%s", err, elsewhere)
	}
	a := &Applier{version: cfg.Version, path: cfg.Root, root: root, proc: cmp.Or(cfg.Proc, "/proc"), resctrl: cmp.Or(cfg.Resctrl, "/sys/fs/resctrl"), cores: coreSched{kernel: prctl{}}}
	a.conversions.fixed = [writers]WeightConversion{theRuntime: cfg.Weight, theKubelet: cfg.KubeletWeight}
	if a.version == 0 {
		if a.version, err = detect(root); err != nil {
			root.Close()
			return nil, fmt.Errorf("open cgroup root %s: %w%s", cfg.Root, err, elsewhere)
		}
	}
	if a.version != V1 {
		return a, nil
	}
	a.others = map[string]*os.Root{}
	for _, name := range slices.Concat(v1Controllers[:], v1Others[:]) {
		// Opened by its full path: the directory may be a symbolic link, such as cpu to
		// cpu,cpuacct, and the links in a configured root are trusted.
		c, err := os.OpenRoot(filepath.Join(cfg.Root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			a.Close()
			return nil, fmt.Errorf("open cgroup controller %s: %w", name, err)
		}
		if !slices.Contains(v1Controllers[:], name) {
			a.others[name] = c
			continue
		}
		if a.controllers == nil {
			a.controllers = map[string]*os.Root{}
		}
		a.controllers[name] = c
	}
	return a, nil
}

// detect returns the version of a hierarchy, by files that only one version has. On a hybrid node
// the controllers are those of v1, and the hierarchy of v2 has a separate directory and no
// controller.
func detect(root *os.Root) (Version, error) {
	for _, sign := range []struct {
		name    string
		version Version
	}{
		{"cgroup.controllers", V2},
		{"cpu", V1}, {"cpuset", V1}, {"memory", V1},
		{"cpu.shares", V1}, {"memory.limit_in_bytes", V1}, {"cgroup.clone_children", V1},
	} {
		if _, err := root.Lstat(sign.name); err == nil {
			return sign.version, nil
		}
	}
	return 0, errors.New("unknown cgroup version: neither cgroup.controllers nor a controller of cgroup v1 exists")
}

// Version returns the version of the hierarchy.
func (a *Applier) Version() Version { return a.version }

// Hierarchies returns the directories at which the paths of cgroups start: one for each controller
// of cgroup v1 with a directory, otherwise the root.
func (a *Applier) Hierarchies() (dirs []string) {
	for _, name := range v1Controllers {
		if a.controllers[name] != nil {
			dirs = append(dirs, filepath.Join(a.path, name))
		}
	}
	if dirs == nil {
		dirs = []string{filepath.Clean(a.path)}
	}
	return dirs
}

// Close closes the hierarchy.
func (a *Applier) Close() error {
	err := a.root.Close()
	for _, roots := range []map[string]*os.Root{a.controllers, a.others} {
		for _, c := range roots {
			err = errors.Join(err, c.Close())
		}
	}
	return err
}

// Apply writes the targets' resources to their files, and returns the writes in order, even after
// an error. A file that already has the value, in any notation, is not written.
//
// The kernel refuses a child's limit beyond its parent's. So, over all targets together, widening
// values are written first, parents before children. Tightening values follow, children before
// parents. A list that moves is first widened to the union of both.
//
// An error of one file does not stop the others. The errors are joined: a *[FileError] for a file,
// and others for a cgroup outside of the root and for a field without a file, such as
// net_cls_classid on cgroup v2. [CauseOf] has the cause of each.
//
// # Notes
//
//   - An empty list of CPUs or nodes means the parent's list. cgroup v2 has the same rule; on v1
//     the current list of the parent is written. A nil field clears nothing.
//   - cpu_shares is ignored beside a cpu_idle of 1: the kernel gives an idle cgroup a fixed weight
//     and refuses any other.
//   - oom_score_adj, core_sched_group and resctrl_group belong to processes: they are
//     written for those in the cgroup itself, and their children inherit them.
//   - A missing resctrl group is created, and stays: removing it would move the tasks that others
//     have put there.
//   - On v1, if a quota and a period change together, the quota may be -1 in between, which the
//     kernel accepts everywhere. If a later write is refused, the earlier ones of the field are
//     undone. The end of ctx does not interrupt them.
func (a *Applier) Apply(ctx context.Context, targets ...Target) ([]Change, error) {
	dirs := newDirectories(forOnce)
	defer dirs.close()
	return a.plan(targets, dirs, nil).run(ctx)
}

// DryRun returns the writes of [Applier.Apply], in order, and the errors of reading. It writes
// nothing.
func (a *Applier) DryRun(_ context.Context, targets ...Target) ([]Change, error) {
	dirs := newDirectories(forOnce)
	defer dirs.close()
	p := a.plan(targets, dirs, nil)
	return p.changes(), errors.Join(p.errs...)
}
