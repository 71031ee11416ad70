package cgroup

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
	"github.com/kubewasm/kubewasm/internal/lograte"
)

// Enforcer keeps cgroups at the resources of a [State]. It is safe for use by several goroutines,
// one of which works at a time.
//
// It keeps the files open and remembers the text of each after the write, so an unchanged file
// costs one read. A changed text is compared by its meaning, and the file is written if that
// differs. If the kernel refuses a value, or another writer keeps changing a file, the file is left
// alone for a growing time: filestate.go has the states of a file.
type Enforcer struct {
	state   *State
	applier *Applier
	cfg     EnforcerConfig

	mu      sync.Mutex
	dirs    *directories
	lines   *lograte.Budget
	cgroups map[string]*enforced
	// all are the targets of the state at version.
	all     []Target
	version uint64
	// waiting is the number of files that are refused, hopeless or yielding.
	waiting int
	waits   waits
	// lacking are the fields already logged as fields without a file on the node.
	lacking hookmsg.Fields
}

// EnforcerConfig configures an Enforcer.
type EnforcerConfig struct {
	// State holds the desired resources of cgroups. Required.
	State *State
	// Applier reads and writes the files. Required; close it after the Enforcer.
	Applier *Applier
	// DryRun compares and reports without writing.
	DryRun bool
	// Contention configures when a file is left to another writer.
	Contention Contention
	// RetryAfter is the time for which a file is left alone after the kernel refused its value for
	// the first time.
	RetryAfter, RetryAtMost time.Duration
	// KeepFiles is the number of files and directories that stay open. Others are opened for each
	// use. Default half of the process's limit; a negative number means none.
	KeepFiles int
	// Logger receives repairs, refusals and contention; nil drops them.
	Logger *slog.Logger
	// Observer receives the report of each pass; nil for none.
	Observer Observer
}

// Contention determines when two writers contend for a file, and how long the Enforcer then leaves
// the file to the other writer. The zero value is the default.
type Contention struct {
	// Repairs is the number of repairs within Period at which the Enforcer gives way. Defaults 10
	// and 10 s.
	Repairs int
	Period  time.Duration
	// Backoff is the time for which the file is left to the other writer at first. Each further
	// contention doubles it, up to MaxBackoff. Defaults 30 s and 10 min.
	Backoff, MaxBackoff time.Duration
}

func (c *EnforcerConfig) setDefaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.RetryAfter, time.Second)
	set(&c.RetryAtMost, max(5*time.Minute, c.RetryAfter))
	set(&c.Contention.Period, 10*time.Second)
	set(&c.Contention.Backoff, 30*time.Second)
	set(&c.Contention.MaxBackoff, max(10*time.Minute, c.Contention.Backoff))
	if c.Contention.Repairs == 0 {
		c.Contention.Repairs = 10
	}
	if c.KeepFiles == 0 {
		c.KeepFiles = openFiles() / 2
	}
}

// enforced is the state of a cgroup in an Enforcer.
type enforced struct {
	// resources are the resources to which the files were settled, nil if the last pass did not get
	// to all of them.
	resources *hookmsg.Resources
	files     []keptFile
	// records holds the records of files of which more is known than their text.
	records map[fileKey]*fileRecord
	// lines is the budget of log lines about the cgroup, nil before the first.
	lines *lograte.Budget
	// processes is set if a field is written for processes, since new processes need it as well.
	processes bool
}

// keptFile is a file with its text after the last pass.
type keptFile struct {
	key  fileKey
	text string
	dir  *directory
	file *os.File // nil unless it stays open.
}

// yields reports whether a file is left to another writer for now.
func (k *enforced) yields(key fileKey, now time.Time) bool {
	r := k.records[key]
	return r != nil && r.state == yielding && r.leftAlone(now)
}

// drifted reports whether a change undoes that of another writer. This is so if the file's text
// differs from the one after the last pass, or the change is for a task listed by the last pass.
// tasks caches the tasks of cgroups.
func (k *enforced) drifted(c *Change, tasks map[string]map[string]bool) bool {
	if task := c.task(); task != "" {
		if tasks[c.Cgroup] == nil {
			tasks[c.Cgroup] = k.tasks()
		}
		return tasks[c.Cgroup][task]
	}
	file := path.Base(c.File)
	i := slices.IndexFunc(k.files, func(f keptFile) bool { return f.key.file == file })
	if i < 0 { // A file whose value was refused has no kept text.
		r := k.records[fileKey{c.Field, file}]
		return r == nil || r.state != refused
	}
	return strings.TrimSpace(k.files[i].text) != c.From
}

// tasks returns the processes and threads listed by the last pass.
func (k *enforced) tasks() map[string]bool {
	listed := map[string]bool{}
	for i := range k.files {
		switch k.files[i].key.file {
		case procsFile, threadsV1, threadsV2:
			for task := range strings.FieldsSeq(k.files[i].text) {
				listed[task] = true
			}
		}
	}
	return listed
}

// Observer receives the reports of an [Enforcer].
type Observer interface {
	// Enforced is called after each pass over cgroups. It must be fast, and must not keep the
	// report.
	Enforced(ctx context.Context, report Report)
}

// NewEnforcer returns an Enforcer that applies the state. Close it before the applier. The error
// lists missing fields of cfg.
func NewEnforcer(cfg EnforcerConfig) (*Enforcer, error) {
	var errs []error
	if cfg.State == nil {
		errs = append(errs, errors.New("new enforcer: state is missing"))
	}
	if cfg.Applier == nil {
		errs = append(errs, errors.New("new enforcer: applier is missing"))
	}
	if len(errs) != 0 {
		return nil, errors.Join(errs...)
	}
	cfg.setDefaults()
	return &Enforcer{
		waits: waits{bounds{cfg.RetryAfter, cfg.RetryAtMost}, bounds{cfg.Contention.Backoff, cfg.Contention.MaxBackoff}},
		state: cfg.State, applier: cfg.Applier, cfg: cfg, cgroups: map[string]*enforced{},
		dirs: newDirectories(cfg.KeepFiles), lines: lograte.New(logBytes),
	}, nil
}

// Applier returns the applier.
func (e *Enforcer) Applier() *Applier { return e.applier }

// DryRun reports whether the Enforcer writes nothing.
func (e *Enforcer) DryRun() bool { return e.cfg.DryRun }

// Check returns an error if no decision can take effect with a layout: the cgroups of the QoS
// classes are not at the layout's paths, or cannot be written. The error names the layout of the
// other driver if that one exists.
func (e *Enforcer) Check(l Layout) error { return e.applier.check(l, !e.cfg.DryRun) }

// Close closes the open files.
func (e *Enforcer) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for cgroup := range e.cgroups {
		e.forget(cgroup)
	}
}

// Forget drops the state of a cgroup and of those in it. Call it when one is removed or created,
// since a new cgroup may have the name of an old one.
func (e *Enforcer) Forget(cgroup string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	within := func(known string) bool { return known == cgroup || strings.HasPrefix(known, cgroup+"/") }
	for known := range e.cgroups {
		if within(known) {
			e.forget(known)
		}
	}
	e.applier.conversions.forget(within)
}

func (e *Enforcer) forget(cgroup string) {
	e.dirs.forget(cgroup)
	e.forgetRecords(e.cgroups[cgroup])
	delete(e.cgroups, cgroup)
}

// Enforce compares the named cgroups, or all if none is named, with the state, and writes the
// differences. Cgroups outside of the state are not touched.
func (e *Enforcer) Enforce(ctx context.Context, cgroups ...string) Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	start := time.Now()
	var wanted []Target
	if len(cgroups) == 0 {
		if all, version := e.state.since(e.version); version != e.version {
			e.all, e.version = all, version
			for cgroup := range e.cgroups {
				if _, ok := slices.BinarySearchFunc(e.all, cgroup, func(t Target, cgroup string) int { return strings.Compare(t.Cgroup, cgroup) }); !ok {
					e.forget(cgroup) // The cgroup has left the state.
				}
			}
		}
		wanted = e.all
	} else {
		for _, cgroup := range slices.Compact(slices.Sorted(slices.Values(cgroups))) {
			if d, ok := e.state.Get(cgroup); ok {
				wanted = append(wanted, d)
			}
		}
	}
	report, differ := e.compare(wanted, start, len(cgroups) == 0)
	if len(differ) != 0 {
		e.apply(ctx, differ, start, &report)
	}
	report.DryRun = e.cfg.DryRun
	if e.waiting != 0 {
		e.leftAlone(&report)
	}
	report.Took = time.Since(start)
	if e.cfg.Observer != nil {
		e.cfg.Observer.Enforced(ctx, report)
	}
	return report
}

// Prune drops cgroups that do not exist from the state, unless keep returns true, together with the
// facts about their pods. It returns the UIDs of the pods of which nothing is left. It is needed
// since a restarted runtime does not announce the end of each pod.
func (e *Enforcer) Prune(keep func(cgroup string) bool) (pods []string) {
	there := func(cgroup string) bool { return keep(cgroup) || e.applier.Exists(cgroup) }
	pods = e.state.facts.Prune(there)
	e.applier.conversions.forget(func(cgroup string) bool { return !there(cgroup) })
	left := map[string]bool{}
	all, _ := e.state.since(0)
	for _, d := range all {
		if there(d.Cgroup) {
			left[d.PodUID] = true
			continue
		}
		e.state.Remove(d.Cgroup)
		e.Forget(d.Cgroup)
		pods = append(pods, d.PodUID)
	}
	slices.Sort(pods)
	return slices.DeleteFunc(slices.Compact(pods), func(uid string) bool { return uid == "" || left[uid] })
}

// share is the number of cgroups that a goroutine compares at a time, so that one that waits for a
// CPU does not hold up the others.
const share = 50

// compare returns the targets with a file that has changed since the last pass.
func (e *Enforcer) compare(wanted []Target, now time.Time, everything bool) (report Report, differ []Target) {
	differs := make([]bool, len(wanted))
	var files, taken atomic.Int64
	look := func() {
		n := 0
		for {
			to := int(taken.Add(share))
			for i := to - share; i < min(to, len(wanted)); i++ {
				d := &wanted[i]
				known := e.cgroups[d.Cgroup]
				differs[i] = known == nil || known.resources != d.Resources || everything && known.processes || !known.unchanged(now, everything, &n)
			}
			if to >= len(wanted) {
				break
			}
		}
		files.Add(int64(n))
	}
	var others sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (len(wanted)+share-1)/share) - 1 {
		others.Go(look)
	}
	look()
	others.Wait()
	report.Files = int(files.Load())
	for i, d := range differs {
		if d {
			differ = append(differ, wanted[i])
		}
	}
	return report, differ
}

// unchanged reports whether the files have the texts of the last pass, and none of them is due. It
// adds the number of files that were read to files.
//
// 0 allocs: TestEnforceDoesNotAllocatePerFile.
func (k *enforced) unchanged(now time.Time, everything bool, files *int) bool {
	for _, r := range k.records {
		if r.due(now, everything) {
			return false
		}
	}
	var buf [settledBytes]byte
	for i := range k.files {
		f := &k.files[i]
		*files++
		same := false
		if f.file == nil {
			text, err := f.dir.read(f.key.file, maxFile, nil)
			same = err == nil && text == f.text
		} else {
			n, err := pread(f.file, buf[:])
			same = err == nil && string(buf[:n]) == f.text
		}
		if !same && !k.yields(f.key, now) {
			return false
		}
	}
	return true
}

// apply writes the resources of cgroups that differ, and updates the state of each file by events.
func (e *Enforcer) apply(ctx context.Context, differ []Target, now time.Time, report *Report) {
	e.findConversions(ctx, differ)
	known := map[string]bool{} // Cgroups that were settled for the same resources.
	var targets []Target
	for _, d := range differ {
		k := e.cgroups[d.Cgroup]
		if k == nil {
			k = &enforced{}
			e.cgroups[d.Cgroup] = k
		}
		if k.resources == d.Resources {
			known[d.Cgroup] = true
		} else {
			// The kernel may accept another value.
			if k.records != nil {
				e.forgetRecords(k)
			}
			k.resources = d.Resources
			k.processes = d.Resources.OOMScoreAdj != nil || d.Resources.CoreSchedGroup != nil || d.Resources.ResctrlGroup != nil
		}
		targets = append(targets, Target{Cgroup: d.Cgroup, Level: d.Level, Resources: d.Resources})
	}
	skip := func(cgroup string, field hookmsg.Fields, file string) bool {
		if e.state.holds(cgroup, field) {
			return true
		}
		k := e.cgroups[cgroup]
		for _, key := range [...]fileKey{{field, file}, {field, ""}} {
			if r := k.records[key]; r != nil && r.leftAlone(now) {
				return true
			}
		}
		return false
	}
	p := e.applier.plan(targets, e.dirs, skip)
	if e.cfg.DryRun {
		report.Changes = p.changes()
		for _, c := range report.Changes {
			e.log(ctx, c.Cgroup, slog.LevelInfo, "would write", slog.String("fields", c.Field.String()), slog.String("change", c.String()))
		}
	} else {
		// The errors are handled one by one.
		report.Changes, _ = p.run(ctx)
		if len(report.Changes) != 0 && ctx.Err() == nil {
			// Plan and write again. Another writer may have changed a file in between, which must
			// not count as the kernel's normal form of the value. A refused value may also have
			// depended on one written after it.
			p = e.applier.plan(targets, e.dirs, skip)
			more, _ := p.run(ctx)
			report.Changes = append(report.Changes, more...)
		}
	}
	tasks := map[string]map[string]bool{} // By cgroup.
	for _, c := range report.Changes {
		if known[c.Cgroup] && e.cgroups[c.Cgroup].drifted(&c, tasks) {
			report.Drifted = append(report.Drifted, c)
		}
	}
	e.settle(ctx, p, differ, now, report)
	if e.cfg.DryRun {
		return
	}
	for _, c := range report.Drifted {
		report.Repairs++
		e.log(ctx, c.Cgroup, slog.LevelInfo, "repaired a change by another writer", slog.String("fields", c.Field.String()), slog.String("change", c.String()))
		e.contend(ctx, c, now, report)
	}
	if len(report.Changes) != 0 && e.waiting != 0 {
		e.retryRelated(report.Changes, now)
	}
}

// whose returns the cgroup, the field and the file of an error; the file is empty if the
// error is about all files of the field.
func whose(err error) (cgroup string, field hookmsg.Fields, file string) {
	var f *FileError
	var p *fieldError
	switch {
	case errors.As(err, &f):
		if f.Op != "open" {
			file = path.Base(f.File)
		}
		return f.Cgroup, f.Field, file
	case errors.As(err, &p):
		return p.cgroup, p.field, p.file
	}
	return "", 0, ""
}

// settle records the current texts of the files, and updates the record of each file by the result
// of the last plan. A file without a record is settled.
func (e *Enforcer) settle(ctx context.Context, p *plan, differ []Target, now time.Time, report *Report) {
	for _, d := range differ {
		k := e.cgroups[d.Cgroup]
		clear(k.files)
		k.files = k.files[:0]
		for key := range k.records {
			e.on(k, key, onPass, now, "")
		}
	}
	for i := range p.reads {
		r := &p.reads[i]
		if r.setting.failed {
			continue
		}
		k, key, event := e.cgroups[r.cgroup], fileKey{r.setting.field, r.file}, onMatch
		if r.setting.planned && !e.cfg.DryRun {
			// The file was written a second time, and still differs.
			event = onReadBack
			if text, err := r.setting.dir.read(r.file, maxFile, nil); err != nil || text != r.raw {
				event = onChanging
			}
		}
		if event != onMatch || len(k.records) != 0 {
			e.on(k, key, event, now, r.raw)
		}
		if event == onChanging {
			continue
		}
		if len(k.records) != 0 {
			e.on(k, fileKey{field: key.field}, onMatch, now, "")
		}
		f := keptFile{key: key, text: r.raw, dir: r.setting.dir}
		if len(f.text) < settledBytes {
			f.file = f.dir.files[r.file]
		}
		if j := slices.IndexFunc(k.files, func(f keptFile) bool { return f.key.file == r.file }); j >= 0 {
			k.files[j] = f
		} else {
			k.files = append(k.files, f)
		}
	}
	for i := range p.left {
		e.cgroups[p.left[i].Cgroup].resources = nil // The next pass starts over.
	}
	var errs []error
	for _, err := range p.errs {
		if e.refuse(err, now, report) {
			errs = append(errs, err)
			if CauseOf(err) == causeUnsupported {
				// Logged once for a kernel that lacks a field, not once for each pod.
				if _, field, _ := whose(err); field == 0 || e.lacking&field != field {
					e.lacking |= field
					e.log(ctx, "", slog.LevelWarn, "the node has no cgroup file for a decided field; further cgroups are only counted", slog.String("fields", field.String()), slog.Any("err", err))
				}
				continue
			}
			e.log(ctx, "", slog.LevelWarn, "the kernel refuses a decided value", slog.Any("err", err))
		}
	}
	report.Err = errors.Join(errs...)
	for _, d := range differ {
		k := e.cgroups[d.Cgroup]
		for key, r := range k.records {
			if !r.leftAlone(now) { // The retry had no error.
				e.on(k, key, onExpiry, now, "")
			}
		}
	}
}

// on moves the record of a file by an event. text is the text read back, for onReadBack.
func (e *Enforcer) on(k *enforced, key fileKey, event fileEvent, now time.Time, text string) *fileRecord {
	r := k.records[key]
	if r == nil {
		r = &fileRecord{}
	}
	if r.state.isWaiting() {
		e.waiting--
	}
	r.on(event, now, &e.waits, text)
	if r.state.isWaiting() {
		e.waiting++
	}
	switch {
	case r.empty():
		delete(k.records, key)
	case k.records == nil:
		k.records = map[fileKey]*fileRecord{key: r}
	default:
		k.records[key] = r
	}
	return r
}

// forgetRecords drops the records of a cgroup.
func (e *Enforcer) forgetRecords(k *enforced) {
	for _, r := range k.records {
		if r.state.isWaiting() {
			e.waiting--
		}
	}
	k.records = nil
}

// refuse records an error, and reports whether it is new.
func (e *Enforcer) refuse(err error, now time.Time, report *Report) (fresh bool) {
	cgroup, field, file := whose(err)
	k := e.cgroups[cgroup]
	if k == nil {
		return true
	}
	key, cause, event := fileKey{field, file}, CauseOf(err), onRefusal
	if cause == causeUnsupported || cause == causeEmpty {
		event = onHopeless
	}
	before := k.records[key]
	fresh = before == nil || before.state != refused && before.state != hopeless || before.cause != cause
	e.on(k, key, event, now, "").note(cause, err)
	if cause == causeGone {
		if !slices.Contains(report.Gone, cgroup) {
			report.Gone = append(report.Gone, cgroup)
		}
		return false // Cgroups come and go.
	}
	return fresh
}

// contend counts a repair, and gives way to the other writer if there are too many.
func (e *Enforcer) contend(ctx context.Context, c Change, now time.Time, report *Report) {
	k, key := e.cgroups[c.Cgroup], fileKey{c.Field, path.Base(c.File)}
	r := k.records[key]
	if r == nil {
		r = &fileRecord{}
		if k.records == nil {
			k.records = map[fileKey]*fileRecord{}
		}
		k.records[key] = r
	}
	r.repairs = slices.DeleteFunc(r.repairs, func(t time.Time) bool { return now.Sub(t) > e.cfg.Contention.Period })
	r.repairs = append(r.repairs, now)
	repairs := len(r.repairs)
	if repairs < e.cfg.Contention.Repairs {
		return
	}
	r.repairs = nil
	e.on(k, key, onContention, now, "")
	contended := Contended{Change: c, Repairs: repairs, For: r.wait}
	report.Contended = append(report.Contended, contended)
	e.log(ctx, c.Cgroup, slog.LevelWarn, "yielded to another writer", slog.String("fields", c.Field.String()), slog.String("contention", contended.String()))
}

// retryRelated ends the waits of refused files in cgroups above and below the changed ones, since
// the kernel may now accept them.
func (e *Enforcer) retryRelated(changes []Change, now time.Time) {
	for cgroup, k := range e.cgroups {
		if len(k.records) == 0 || !slices.ContainsFunc(changes, func(c Change) bool { return isBelow(c.Cgroup, cgroup) || isBelow(cgroup, c.Cgroup) }) {
			continue
		}
		for key := range k.records {
			e.on(k, key, onRelated, now, "")
		}
	}
}

// isBelow reports whether a cgroup lies in another.
func isBelow(cgroup, above string) bool { return strings.HasPrefix(cgroup, above+"/") }

// Next returns the time at which a file that is left alone is tried again; ok is false if there is
// none.
func (e *Enforcer) Next() (next time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waiting == 0 {
		return next, false
	}
	for _, k := range e.cgroups {
		for _, r := range k.records {
			if r.hasDeadline() && (!ok || r.until.Before(next)) {
				next, ok = r.until, true
			}
		}
	}
	return next, ok
}

// leftAlone counts the files that are left alone for now. e.mu must be held.
func (e *Enforcer) leftAlone(report *Report) {
	now := time.Now()
	for _, k := range e.cgroups {
		for _, r := range k.records {
			switch {
			case !r.leftAlone(now) && r.state != hopeless, r.cause == causeGone: // The file does not exist.
			case r.state == yielding:
				report.LeftToOthers++
			default:
				report.LeftRefused++
			}
		}
	}
}

// logBytes bounds the log in a minute about all cgroups, and cgroupLogBytes that about one: a
// container that keeps changing its files must not hide the others.
const (
	logBytes       = 64 << 10
	cgroupLogBytes = 4 << 10
)

// log logs a line about a cgroup, or about none. Metrics also count events whose lines are left
// out.
func (e *Enforcer) log(ctx context.Context, cgroup string, level slog.Level, msg string, attrs ...slog.Attr) {
	if e.cfg.Logger == nil {
		return
	}
	budgets := []*lograte.Budget{e.lines}
	if k := e.cgroups[cgroup]; k != nil {
		if k.lines == nil {
			k.lines = lograte.New(cgroupLogBytes)
		}
		budgets = []*lograte.Budget{k.lines, e.lines}
	}
	lograte.Logger(e.cfg.Logger, budgets...).LogAttrs(ctx, level, msg, attrs...)
}
