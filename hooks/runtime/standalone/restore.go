package standalone

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
	"github.com/kubewasm/kubewasm/hooks/internal/facts"
)

// Restorable are the fields that can be restored: those requested by the kubelet, those with a
// default in the kernel, and those on which the cgroup has notes, see [cgroup.Applier.Notes]. The
// OOM score and the groups of resctrl stay unchanged.
const Restorable = askedFields | hookmsg.FieldUnified | hookmsg.FieldCoreSchedGroup | hookmsg.FieldCPUIdle | hookmsg.FieldCPUBvt | hookmsg.FieldCPUBurst | hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUSetMems |
	hookmsg.FieldMemoryHigh | hookmsg.FieldMemoryLow | hookmsg.FieldMemoryMin | hookmsg.FieldNetClsClassID

const askedFields = limitFields | hookmsg.FieldCPUShares | hookmsg.FieldMemoryLimit

// undecided returns the values of fields without a decision: those requested by the kubelet, or
// those of a new cgroup. Fields without either are left out.
func undecided(asked *hookmsg.Resources, level abi.Level, fields hookmsg.Fields) *hookmsg.Resources {
	const none = -1
	r := &hookmsg.Resources{
		CPUIdle: new(int64), CPUBvt: new(int64), CPUBurstUS: new(int64), MemoryMinBytes: new(int64), MemoryLowBytes: new(int64), MemoryHighBytes: new(int64(none)),
		NetClsClassID: new(int64), CPUSetCPUs: new(string), CPUSetMems: new(string), CoreSchedGroup: new(string),
	}
	if asked.Fields() != 0 {
		r.CPUShares, r.CFSPeriodUS = asked.CPUShares, asked.CFSPeriodUS
		r.CFSQuotaUS, r.MemoryLimitBytes = new(int64(none)), new(int64(none))
		if asked.CFSQuotaUS != nil {
			r.CFSQuotaUS = asked.CFSQuotaUS
		}
		if asked.MemoryLimitBytes != nil {
			r.MemoryLimitBytes = asked.MemoryLimitBytes
		}
	}
	if level != abi.LevelContainer {
		fields &^= hookmsg.FieldCoreSchedGroup // There are no processes.
	}
	if level == abi.LevelQOS {
		fields &^= hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUSetMems // The lists of a class affect all cgroups below.
	}
	return r.Select(fields)
}

const protectionFields = hookmsg.FieldMemoryMin | hookmsg.FieldMemoryLow | hookmsg.FieldMemoryHigh

// protected returns the fields, among those given, that the kubelet's feature MemoryQoS has set,
// with the amounts from before they were decided. An amount equal to the decided one is from an
// earlier process, so the original is unknown.
func protected(found, decided *hookmsg.Resources, fields hookmsg.Fields) *hookmsg.Resources {
	if found == nil {
		return nil
	}
	for field := range (found.Fields() & fields & protectionFields).All() {
		if d := *decided.Number(field); d != nil && *d == **found.Number(field) {
			fields &^= field
		}
	}
	return found.Select(fields & protectionFields)
}

// giveBack writes the resources of targets that are no longer decided on. A missing cgroup or file
// is not an error.
func (r *Reconciler) giveBack(ctx context.Context, targets []cgroup.Target) ([]cgroup.Change, error) {
	if r.cfg.Enforcer.DryRun() {
		changes, err := r.cfg.Enforcer.Applier().DryRun(ctx, targets...)
		return changes, restoreError(err)
	}
	changes, err := r.cfg.Enforcer.Applier().GiveBack(ctx, targets...)
	if len(changes) != 0 && ctx.Err() == nil {
		// On cgroup v1 a list is copied from the parent, whose list may just have changed.
		var more []cgroup.Change
		more, err = r.cfg.Enforcer.Applier().GiveBack(ctx, targets...)
		changes = append(changes, more...)
	}
	for _, c := range changes {
		r.cfg.Logger.Info("restored values without a decision", slog.String("fields", c.Field.String()), slog.String("change", c.String()))
	}
	return changes, restoreError(err)
}

// restoreError removes errors that do not concern a restoration.
func restoreError(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	return errors.Join(slices.DeleteFunc(slices.Clone(joined.Unwrap()), func(err error) bool {
		cause := cgroup.CauseOf(err)
		return cause == "unsupported" || cause == "gone"
	})...)
}

// Restore restores fields of everything that runs: it writes the values requested by the kubelet,
// and the kernel's defaults, without asking any plugin. Call it after the plugins or the program
// have been removed from the node. If Run is running, it enforces its decisions again.
//
// Only [Restorable] fields are restored, and only those of cgroups listed by the Discovery; of
// FieldUnified the files for which owns returns true, or all if owns is nil. A missing quota stays:
// a kubelet with a static CPU manager also requests none. A file that the kernel lacks is not an
// error.
func (r *Reconciler) Restore(ctx context.Context, fields hookmsg.Fields, owns func(file string) bool) ([]cgroup.Change, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pods, err := r.cfg.Discovery.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var targets []cgroup.Target
	var errs []error
	restore := func(path, podUID string, asked *hookmsg.Resources, level abi.Level, derived bool, known map[string]string) {
		if derived {
			asked = inForce(asked, r.cfg.Enforcer.Applier().Limits(path))
		}
		if asked != nil && asked.CPUShares != nil {
			r.cfg.Enforcer.Applier().FindConversion(level, path, *asked.CPUShares)
		}
		own := fields
		var files map[string]string
		if fields&(hookmsg.FieldUnified|hookmsg.FieldCoreSchedGroup) != 0 {
			notes := r.cfg.Enforcer.Applier().Notes(path)
			if notes.CoreSchedGroup == "" {
				own &^= hookmsg.FieldCoreSchedGroup
			}
			if fields&hookmsg.FieldUnified != 0 {
				files = maps.Clone(notes.Files)
				maps.DeleteFunc(files, func(name, _ string) bool { return owns != nil && !owns(name) })
				for name := range files {
					if text, ok := known[name]; ok {
						files[name] = text
					}
				}
			}
		}
		given := undecided(asked, level, own).Overlay(&hookmsg.Resources{Unified: files})
		targets = append(targets, cgroup.Target{Cgroup: path, PodUID: podUID, Level: level, Resources: given})
	}
	for i := range pods {
		p := &pods[i]
		path := p.Cgroup
		if path == "" {
			path = r.cfg.Layout.Pod(p.QOSClass, p.UID)
		}
		if _, err := r.cfg.Layout.CheckPod(p.meta(), path); err != nil {
			errs = append(errs, err)
			continue
		}
		files := func(of facts.Subject, path string, hugepages map[string]int64, swap int64) map[string]string {
			if !p.Derived {
				return nil
			}
			return r.files(of, path, hugepages, swap)
		}
		restore(path, p.UID, p.Resources, abi.LevelPod, p.Derived, files(facts.Subject{PodUID: p.UID}, path, p.Hugepages, 0))
		for j := range p.Containers {
			c := &p.Containers[j]
			container := c.Cgroup
			if container == "" {
				container = r.cfg.Layout.Container(path, c.ID)
			}
			if err := r.cfg.Layout.CheckContainer(p.meta(), path, c.meta(), container); err != nil {
				errs = append(errs, err)
				continue
			}
			restore(container, p.UID, c.Resources, abi.LevelContainer, p.Derived, files(facts.Subject{PodUID: p.UID, ContainerID: c.ID}, container, c.Hugepages, c.SwapRequest))
		}
	}
	for class := abi.QOSGuaranteed; class <= abi.QOSBestEffort; class++ {
		restore(r.cfg.Layout.QOS(class), "", nil, abi.LevelQOS, false, nil)
	}
	changes, err := r.giveBack(ctx, targets)
	return changes, errors.Join(append(errs, err)...)
}
