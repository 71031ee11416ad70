package cgroup

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Found is the current state of a cgroup's file for a field of a target.
type Found struct {
	// Field is the field in the file. A quota and a period in one file are two fields. Key is the
	// file's name for FieldUnified.
	Field hookmsg.Fields
	Key   string
	// File is the path below the root, and Text the contents without the newline at the end. Both
	// are empty if it cannot be read, and for fields of processes.
	File, Text string
	// Differs is set if the file does not have the target's value.
	Differs bool
	// Err is the error of reading.
	Err error
	// LeftAlone is set if an [Enforcer] does not write the file for now.
	LeftAlone *LeftAlone
}

// LeftAlone is the reason that an [Enforcer] does not write a file for now.
type LeftAlone struct {
	// Reason is "contended" if another writer keeps changing the file, "refused" if the kernel does
	// not accept the value, and "observed" while the agent waits for another writer's next value.
	Reason string
	// Cause is one of [Causes] after a refusal, Message its error.
	Cause, Message string
	// Until is the latest time at which the file is written again, zero if that is unknown.
	Until time.Time
}

// The reasons of LeftAlone.
const (
	leftContended = "contended"
	leftRefused   = "refused"
	leftObserved  = "observed"
)

// ofProcesses are the fields of processes, which no file of their cgroup holds.
const ofProcesses = hookmsg.FieldOOMScoreAdj | hookmsg.FieldCoreSchedGroup | hookmsg.FieldResctrlGroup | hookmsg.FieldResctrlSchemata

// Inspect compares a cgroup with a target, and writes nothing. The target may differ from that of
// the State. Passes of the Enforcer continue meanwhile.
func (e *Enforcer) Inspect(t Target) (found []Found) {
	found = e.applier.inspect(t)
	e.mu.Lock()
	defer e.mu.Unlock()
	k, now := e.cgroups[t.Cgroup], time.Now()
	for i := range found {
		f := &found[i]
		if e.state.holds(t.Cgroup, f.Field) {
			f.LeftAlone = &LeftAlone{Reason: leftObserved}
			continue
		}
		if k == nil {
			continue
		}
		for key, r := range k.records {
			if key.field&f.Field == 0 || key.file != "" && f.Field == hookmsg.FieldUnified && key.file != f.Key || !r.state.isWaiting() {
				continue
			}
			if !r.leftAlone(now) && r.state != hopeless {
				continue
			}
			f.LeftAlone = &LeftAlone{Reason: leftRefused, Cause: r.cause, Message: r.message, Until: r.until}
			if r.state == yielding {
				f.LeftAlone = &LeftAlone{Reason: leftContended, Until: r.until}
			}
		}
	}
	return found
}

// inspect reads the files of a target.
func (a *Applier) inspect(t Target) (found []Found) {
	dirs := newDirectories(forOnce)
	defer dirs.close()
	own := t
	own.Resources = t.Resources.Select(hookmsg.AllFields &^ ofProcesses)
	p := a.plan([]Target{own}, dirs, nil)
	for i := range p.reads {
		r := &p.reads[i]
		f := Found{Field: r.setting.field, File: r.setting.dir.path(r.file), Text: strings.TrimSpace(r.raw)}
		switch { // cgroup v1 has a file for each.
		case r.file == quotaFile:
			f.Field &= hookmsg.FieldCFSQuota
		case r.file == periodFile:
			f.Field &= hookmsg.FieldCFSPeriod
		case f.Field == hookmsg.FieldUnified:
			f.Key = r.file
		}
		if f.Field == 0 {
			continue
		}
		f.Differs = slices.ContainsFunc(p.steps, func(s step) bool { return s.File == f.File })
		found = append(found, f)
	}
	for _, err := range p.errs {
		_, field, file := whose(err)
		f := Found{Field: field, Differs: true, Err: err}
		if field == hookmsg.FieldUnified {
			f.Key = file
		}
		found = append(found, f)
	}
	for field := range (t.Resources.Fields() & ofProcesses).All() {
		found = append(found, Found{Field: field})
	}
	return found
}

// Throttling returns how often the processes of a cgroup have used up its quota since its creation:
// the number of periods in which any process ran, the number of those in which processes had to
// wait, and their waiting time, over all CPUs. ok is false if the kernel does not report it.
func (a *Applier) Throttling(cgroup string) (periods, throttled int64, waited time.Duration, ok bool) {
	if checkCgroup(cgroup) != nil {
		return 0, 0, 0, false
	}
	dir, err := a.openDirectory("cpu", cgroup)
	if err != nil {
		return 0, 0, 0, false
	}
	defer dir.close()
	text, err := dir.read("cpu.stat", maxFile, nil)
	if err != nil {
		return 0, 0, 0, false
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			continue
		}
		switch name {
		case "nr_periods":
			periods, ok = n, true
		case "nr_throttled":
			throttled = n
		case "throttled_time": // v1
			waited = time.Duration(n)
		case "throttled_usec": // v2
			waited = time.Duration(n) * time.Microsecond
		}
	}
	return periods, throttled, waited, ok
}

// note records the reason that a value was refused.
func (r *fileRecord) note(cause string, err error) {
	r.cause, r.message = cause, err.Error() // The message has a value of at most maxValue bytes.
}
