package standalone

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/hooks/cgroup"
)

// Restorable are the fields that can be restored: those requested by the kubelet, and those with a
// default in the kernel. The OOM score, the groups of core scheduling and resctrl, and unified
// files stay unchanged.
const Restorable = askedFields | hookmsg.FieldCPUIdle | hookmsg.FieldCPUBvt | hookmsg.FieldCPUBurst | hookmsg.FieldCPUSetCPUs | hookmsg.FieldCPUSetMems |
	hookmsg.FieldMemoryHigh | hookmsg.FieldMemoryLow | hookmsg.FieldMemoryMin | hookmsg.FieldNetClsClassID

const askedFields = limitFields | hookmsg.FieldCPUShares | hookmsg.FieldMemoryLimit

// undecided returns the values of fields without a decision: those requested by the kubelet, or
// those of a new cgroup. Fields without either are left out.
func undecided(asked *hookmsg.Resources, level hookmsg.Level, fields hookmsg.Fields) *hookmsg.Resources {
	const none = -1
	r := &hookmsg.Resources{
		CPUIdle: new(int64), CPUBvt: new(int64), CPUBurstUS: new(int64), MemoryMinBytes: new(int64), MemoryLowBytes: new(int64), MemoryHighBytes: new(int64(none)),
		NetClsClassID: new(int64), CPUSetCPUs: new(string), CPUSetMems: new(string),
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
	if level == hookmsg.LevelQOS {
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
	changes, err := r.cfg.Enforcer.Applier().Apply(ctx, targets...)
	if len(changes) != 0 && ctx.Err() == nil {
		// On cgroup v1 a list is copied from the parent, whose list may just have changed.
		var more []cgroup.Change
		more, err = r.cfg.Enforcer.Applier().Apply(ctx, targets...)
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
// Only [Restorable] fields are restored, and only those of cgroups listed by the Discovery. A
// missing quota stays: a kubelet with a static CPU manager also requests none. A file that the
// kernel lacks is not an error.
func (r *Reconciler) Restore(ctx context.Context, fields hookmsg.Fields) ([]cgroup.Change, error) {
	pods, err := r.cfg.Discovery.Pods(ctx)
	if err != nil {
		return nil, err
	}
	var targets []cgroup.Target
	var errs []error
	restore := func(path, podUID string, asked *hookmsg.Resources, level hookmsg.Level, derived bool) {
		if derived {
			asked = inForce(asked, r.cfg.Enforcer.Applier().Limits(path))
		}
		if asked != nil && asked.CPUShares != nil {
			r.cfg.Enforcer.Applier().FindConversion(level, path, *asked.CPUShares)
		}
		targets = append(targets, cgroup.Target{Cgroup: path, PodUID: podUID, Level: level, Resources: undecided(asked, level, fields)})
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
		restore(path, p.UID, p.Resources, hookmsg.LevelPod, p.Derived)
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
			restore(container, p.UID, c.Resources, hookmsg.LevelContainer, p.Derived)
		}
	}
	for class := hookmsg.QOSGuaranteed; class <= hookmsg.QOSBestEffort; class++ {
		restore(r.cfg.Layout.QOS(class), "", nil, hookmsg.LevelQOS, false)
	}
	changes, err := r.giveBack(ctx, targets)
	return changes, errors.Join(append(errs, err)...)
}
