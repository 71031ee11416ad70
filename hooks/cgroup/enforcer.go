package cgroup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Enforcer keeps the cgroups at what a [State] says. It is safe for use by
// several goroutines, one of which works at a time.
//
// It keeps the files open and remembers what the kernel made of what was
// written, so to look at a file that nobody touched costs one read. A file whose
// text is another is compared by its meaning, and written if that differs.
type Enforcer struct {
	state   *State
	applier *Applier
	cfg     EnforcerConfig

	mu      sync.Mutex
	dirs    directories
	cgroups map[string]*enforced
	// all is the state at version.
	all     []Target
	version uint64
	// troubles counts the files that are left alone for a while.
	troubles int
}

// EnforcerConfig configures an Enforcer. The zero value is the default.
type EnforcerConfig struct {
	// DryRun compares and reports, and writes nothing.
	DryRun bool
	// Contention says when another writer is given way to.
	Contention Contention
	// RetryAfter is how long a file that the kernel refused is left alone at
	// first, and twice as long each time after that, up to RetryAtMost. Whatever
	// changes above or below the cgroup ends the wait. Defaults 1 s and 5 min.
	RetryAfter, RetryAtMost time.Duration
	// KeepFiles is how many files stay open; others are opened each time. Default
	// half of what the process may open; less than 0 is none.
	KeepFiles int
	// Logger receives what is repaired, refused and contended; nil drops it.
	Logger *slog.Logger
	// Observer is told of each pass, nil for none.
	Observer Observer
}

// Contention says when two writers fight over a file. The zero value is the
// default.
type Contention struct {
	// Repairs in Period are what is too many. Defaults 10 and 10 s.
	Repairs int
	Period  time.Duration
	// Backoff is how long the other writer has its way at first, and twice as
	// long each time after that, up to MaxBackoff. Defaults 30 s and 10 min.
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

// Report is what one pass over the cgroups found and did.
type Report struct {
	// Files is how many files were looked at.
	Files int
	// Changes are the writes, in order; of a dry run, those that it would do.
	Changes []Change
	// Drifted are those of the changes that put back what somebody else wrote, and
	// Repairs is how many were written: none of a dry run.
	Drifted []Change
	Repairs int
	// Contended are the files that another writer has its way with from now on.
	Contended []Contended
	// Gone are the cgroups that are not there.
	Gone []string
	// DryRun says that the changes were not written.
	DryRun bool
	// Err joins the errors that are new: the kernel's refusal of one field is
	// reported once, until it takes it or refuses it for another reason.
	Err error
	// LeftToOthers is how many files are left alone for now since another writer has
	// its way with them, LeftRefused how many since the kernel refused what was
	// decided. Both are of all cgroups.
	LeftToOthers, LeftRefused int
	// Took is how long the pass took.
	Took time.Duration
}

// Errors returns the errors that Err joins.
func (r *Report) Errors() []error {
	if joined, ok := r.Err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if r.Err == nil {
		return nil
	}
	return []error{r.Err}
}

// Contended is a file that is written by somebody else as well.
type Contended struct {
	Change
	// Repairs is how often it was put back, For how long it is left alone now.
	Repairs int
	For     time.Duration
}

func (c Contended) String() string {
	return fmt.Sprintf("%s of cgroup %q: another writer set %s to %s %d times; it is left alone for %s", c.Field, c.Cgroup, c.File, c.From, c.Repairs, c.For)
}

// enforced is what is known of a cgroup.
type enforced struct {
	// resources are what the files were settled for.
	resources *hookmsg.Resources
	files     []settled
	trouble   map[troubleKey]*trouble
	repairs   map[string][]time.Time // By file.
	// processes says that something is written for processes, of which others come.
	processes bool
	// loose says that a file could not be settled.
	loose bool
	// words are texts that files had again when what was decided had been written
	// to them twice, by name.
	words map[string]words
}

// words are what a file has instead of what was written to it: the kernel's words
// for the same, or those of another writer who is quick. Nothing tells one from
// the other, so it is written some more times, and once more at each full look.
type words struct {
	text string
	// tries is how many looks have found them.
	tries int
}

// enoughTries is how many looks it takes to believe that words are the kernel's.
const enoughTries = 3

// settled is a file that has what it should.
type settled struct {
	name string
	text string
	dir  *directory
	file *os.File // nil if it is not kept open.
}

// troubleKey names a file of a field, or all of them.
type troubleKey struct {
	field hookmsg.Fields
	file  string
}

// trouble is why a file is left alone, and until when.
type trouble struct {
	until   time.Time
	wait    time.Duration
	cause   Cause
	forever bool
	// fight is another writer's way. When it is over, what is known of it stays,
	// so that the next one lasts longer.
	fight, over bool
}

// waits reports whether the file is left alone.
func (t *trouble) waits(now time.Time) bool {
	return t.forever || !t.over && now.Before(t.until)
}

// Observer receives what an [Enforcer] finds.
type Observer interface {
	// Enforced is called after each pass over cgroups. It must be quick, and not keep
	// the report.
	Enforced(ctx context.Context, report Report)
}

// NewEnforcer returns an Enforcer of state by applier. Close it before the
// applier.
func NewEnforcer(state *State, applier *Applier, cfg EnforcerConfig) *Enforcer {
	cfg.setDefaults()
	return &Enforcer{
		state: state, applier: applier, cfg: cfg, cgroups: map[string]*enforced{},
		dirs: directories{applier: applier, open: map[string]*directory{}, room: cfg.KeepFiles},
	}
}

// DryRun reports whether nothing is written.
func (e *Enforcer) DryRun() bool { return e.cfg.DryRun }

// Hierarchies returns those of the applier.
func (e *Enforcer) Hierarchies() []string { return e.applier.Hierarchies() }

// Version returns that of the applier.
func (e *Enforcer) Version() Version { return e.applier.version }

// Exists reports whether a cgroup is there.
func (e *Enforcer) Exists(cgroup string) bool { return e.applier.exists(cgroup) }

// Others returns those of some resources that a cgroup has otherwise, nil if there
// are none. What cannot be compared, as if the cgroup is not there, is not among
// them.
func (e *Enforcer) Others(cgroup string, r *hookmsg.Resources) *hookmsg.Resources {
	p := e.applier.plan([]Target{{Cgroup: cgroup, Resources: r}}, nil, nil)
	defer p.close()
	var fields hookmsg.Fields
	for _, s := range p.steps {
		fields |= s.setting.field
	}
	for _, err := range p.errs {
		_, field, _ := whose(err)
		fields &^= field
	}
	return r.Select(fields)
}

// Limits returns the quota, the period and the memory limit that a cgroup has, nil for
// those that cannot be read.
func (e *Enforcer) Limits(cgroup string) *hookmsg.Resources {
	r := new(hookmsg.Resources)
	read := func(file string) (string, bool) {
		controller, _, _ := strings.Cut(file, ".")
		dir, err := e.applier.openDirectory(controller, cgroup)
		if err != nil {
			return "", false
		}
		defer dir.close()
		text, err := dir.read(file)
		return strings.TrimSpace(text), err == nil
	}
	memory := "memory.max"
	if e.applier.version == V2 {
		if text, ok := read("cpu.max"); ok {
			if quota, period, ok := parseCPUMax(text); ok {
				r.CFSQuotaUS, r.CFSPeriodUS = &quota, &period
			}
		}
	} else {
		memory = "memory.limit_in_bytes"
		for file, into := range map[string]**int64{"cpu.cfs_quota_us": &r.CFSQuotaUS, "cpu.cfs_period_us": &r.CFSPeriodUS} {
			if text, ok := read(file); ok {
				if n, err := strconv.ParseInt(text, 10, 64); err == nil {
					*into = &n
				}
			}
		}
	}
	if text, ok := read(memory); ok {
		if n, ok := parseBytes(text); ok {
			r.MemoryLimitBytes = &n
		}
	}
	return r
}

// Close closes the files that are open.
func (e *Enforcer) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for cgroup := range e.cgroups {
		e.forget(cgroup)
	}
}

// Forget drops what is known of a cgroup and those in it: they are gone, or may
// be others of the same name.
func (e *Enforcer) Forget(cgroup string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for known := range e.cgroups {
		if known == cgroup || strings.HasPrefix(known, cgroup+"/") {
			e.forget(known)
		}
	}
}

func (e *Enforcer) forget(cgroup string) {
	e.dirs.forget(cgroup)
	e.troubles -= len(e.cgroups[cgroup].trouble)
	delete(e.cgroups, cgroup)
}

// Enforce compares some cgroups, or all, with the state and writes what differs.
// Cgroups of which the state says nothing are left alone.
func (e *Enforcer) Enforce(ctx context.Context, cgroups ...string) Report {
	e.mu.Lock()
	defer e.mu.Unlock()
	start := time.Now()
	report := e.enforce(ctx, cgroups)
	report.DryRun = e.cfg.DryRun
	report.LeftToOthers, report.LeftRefused = e.leftAlone()
	report.Took = time.Since(start)
	if e.cfg.Observer != nil {
		e.cfg.Observer.Enforced(ctx, report)
	}
	return report
}

// enforce is a pass; e.mu is held.
func (e *Enforcer) enforce(ctx context.Context, cgroups []string) Report {
	var wanted []Target
	if len(cgroups) == 0 {
		if e.all == nil || e.state.moved(e.version) {
			e.all, e.version = e.state.snapshot()
			e.forgetOthers()
		}
		wanted = e.all
	} else {
		for _, cgroup := range cgroups {
			if d, ok := e.state.Get(cgroup); ok {
				wanted = append(wanted, d)
			}
		}
	}
	now := time.Now()
	report, differ := e.compare(wanted, now, len(cgroups) == 0)
	if len(differ) == 0 {
		return report
	}
	e.apply(ctx, differ, now, &report)
	return report
}

// Prune drops from the state the cgroups that keep does not want and that are not
// there, with their pods, and what is known of those; it returns the UIDs of the pods
// of which nothing is left. A runtime that was restarted does not tell of the end of
// each pod.
func (e *Enforcer) Prune(keep func(cgroup string) bool) (pods []string) {
	there := func(cgroup string) bool { return keep(cgroup) || e.Exists(cgroup) }
	pods = e.state.facts.Prune(there)
	left := map[string]bool{}
	for _, d := range e.state.All() {
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

// forgetOthers closes the cgroups that are no longer in the state.
func (e *Enforcer) forgetOthers() {
	for cgroup := range e.cgroups {
		if _, ok := slices.BinarySearchFunc(e.all, cgroup, func(d Target, cgroup string) int { return strings.Compare(d.Cgroup, cgroup) }); !ok {
			e.forget(cgroup)
		}
	}
}

// share is how many cgroups a goroutine takes to look at, again and again until
// all are taken: one that has to wait for a CPU does not keep the others waiting.
const share = 50

// compare returns those of wanted that are not as they were left.
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
				differs[i] = known == nil || known.resources != d.Resources || known.loose || known.due(now) ||
					everything && known.processes || known.doubtful(everything) || !known.unchanged(now, &n)
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

// doubtful reports whether a file's words are to be tried again.
func (k *enforced) doubtful(everything bool) bool {
	for _, w := range k.words {
		if everything || w.tries < enoughTries {
			return true
		}
	}
	return false
}

// unchanged reports whether the files have the texts that they were left with.
//
// 0 allocs: TestEnforceDoesNotAllocatePerFile.
func (k *enforced) unchanged(now time.Time, files *int) bool {
	var buf [settledBytes]byte
	for i := range k.files {
		f := &k.files[i]
		*files++
		same := false
		if f.file == nil {
			text, err := f.dir.read(f.name)
			same = err == nil && text == f.text
		} else {
			n, err := pread(f.file, buf[:])
			same = err == nil && string(buf[:n]) == f.text
		}
		if !same && !k.fighting(f.name, now) {
			return false
		}
	}
	return true
}

// fighting reports whether a file is left to another writer.
func (k *enforced) fighting(file string, now time.Time) bool {
	for key, t := range k.trouble {
		if key.file == file && t.fight && t.waits(now) {
			return true
		}
	}
	return false
}

// due reports whether a file that was left alone may be tried again.
func (k *enforced) due(now time.Time) bool {
	for _, t := range k.trouble {
		if !t.over && !t.waits(now) {
			return true
		}
	}
	return false
}

// apply brings cgroups to their resources.
func (e *Enforcer) apply(ctx context.Context, differ []Target, now time.Time, report *Report) {
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
			// Another value may be one that the kernel takes.
			e.troubles -= len(k.trouble)
			k.resources, k.trouble, k.repairs, k.words = d.Resources, nil, nil, nil
			k.processes = d.Resources.OOMScoreAdj != nil || d.Resources.CoreSchedGroup != nil || d.Resources.ResctrlGroup != nil
		}
		targets = append(targets, Target{Cgroup: d.Cgroup, Resources: d.Resources})
	}
	skip := func(cgroup string, field hookmsg.Fields, file string) bool {
		k := e.cgroups[cgroup]
		for _, key := range [...]troubleKey{{field, file}, {field, ""}} {
			if t := k.trouble[key]; t != nil && t.waits(now) {
				return true
			}
		}
		return false
	}
	// What is written to try words again repairs nothing.
	tries := func(c Change) bool {
		w, ok := e.cgroups[c.Cgroup].words[path.Base(c.File)]
		return ok && strings.TrimSpace(w.text) == c.From
	}
	p := e.applier.plan(targets, &e.dirs, skip)
	if e.cfg.DryRun {
		report.Changes = p.changes()
		for _, c := range report.Changes {
			e.log(ctx, slog.LevelInfo, "would write", slog.String("fields", c.Field.String()), slog.String("change", c.String()))
		}
	} else {
		// The errors are looked at one by one.
		report.Changes, _ = p.run(ctx)
		if len(report.Changes) != 0 && ctx.Err() == nil {
			e.verify(ctx, p, targets, skip, report)
		}
	}
	for _, c := range report.Changes {
		if known[c.Cgroup] && !tries(c) {
			report.Drifted = append(report.Drifted, c)
		}
	}
	e.settle(p, differ)
	var errs []error
	for _, err := range p.errs {
		if fresh := e.note(err, now, report); fresh {
			errs = append(errs, err)
			e.log(ctx, slog.LevelWarn, "a cgroup does not take what was decided", slog.Any("error", err))
		}
	}
	report.Err = errors.Join(errs...)
	e.tried(differ, now)
	for _, c := range report.Drifted {
		if e.cfg.DryRun {
			break
		}
		report.Repairs++
		e.log(ctx, slog.LevelInfo, "put back what another writer changed", slog.String("fields", c.Field.String()), slog.String("change", c.String()))
		e.contend(ctx, c, now, report)
	}
	if len(report.Changes) != 0 && !e.cfg.DryRun && e.troubles != 0 {
		e.encourage(report.Changes)
	}
}

// verify looks again at what was written. Somebody else may have written in
// between, which must not pass for the kernel's words for our value; and what the
// kernel refused may have waited for what was written after it. It puts what it
// finds into the place of what p found.
func (e *Enforcer) verify(ctx context.Context, p *plan, targets []Target, skip func(string, hookmsg.Fields, string) bool, report *Report) {
	again := map[string]bool{}
	for _, c := range report.Changes {
		again[c.Cgroup] = true
	}
	for _, err := range p.errs {
		if cgroup, _, _ := whose(err); mayRetry(err) {
			again[cgroup] = true
		}
	}
	q := e.applier.plan(slices.DeleteFunc(targets, func(t Target) bool { return !again[t.Cgroup] }), &e.dirs, skip)
	more, _ := q.run(ctx)
	report.Changes = append(report.Changes, more...)
	p.errs = append(slices.DeleteFunc(p.errs, func(err error) bool {
		cgroup, _, _ := whose(err)
		return again[cgroup]
	}), q.errs...)
	p.reads = append(slices.DeleteFunc(p.reads, func(r reading) bool { return again[r.cgroup] }), q.reads...)
}

func mayRetry(err error) bool {
	switch CauseOf(err) {
	case CauseBusy, CauseBeyondParent, CauseInvalid:
		return true
	}
	return false
}

// whose returns the cgroup, the field and the file of an error; the file is
// empty if it is about all of the field's.
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

// settle remembers what the files have now.
func (e *Enforcer) settle(p *plan, differ []Target) {
	for _, d := range differ {
		k := e.cgroups[d.Cgroup]
		clear(k.files)
		k.files, k.loose = k.files[:0], false
	}
	for i := range p.reads {
		r := &p.reads[i]
		k := e.cgroups[r.cgroup]
		if r.setting.failed {
			continue
		}
		if r.setting.planned && !e.cfg.DryRun {
			// It was written a second time. If that made no difference, these may be
			// the kernel's words for it; otherwise it is looked at once more.
			if text, err := r.setting.dir.read(r.file); err != nil || text != r.raw {
				k.loose = true
				continue
			}
			w := k.words[r.file]
			if w.text != r.raw {
				w = words{text: r.raw}
			}
			w.tries++
			if k.words == nil {
				k.words = map[string]words{}
			}
			k.words[r.file] = w
		} else {
			delete(k.words, r.file)
		}
		text := r.raw
		s := settled{name: r.file, text: text, dir: r.setting.dir}
		if len(text) < settledBytes {
			s.file = e.dirs.keep(s.dir, r.file)
		}
		if j := slices.IndexFunc(k.files, func(s settled) bool { return s.name == r.file }); j >= 0 {
			k.files[j] = s
		} else {
			k.files = append(k.files, s)
		}
		for _, key := range [...]troubleKey{{r.setting.field, r.file}, {r.setting.field, ""}} {
			if t := k.trouble[key]; t != nil && t.fight {
				t.over = true
			} else if t != nil {
				delete(k.trouble, key)
				e.troubles--
			}
		}
	}
}

// note remembers an error and reports whether it is news.
func (e *Enforcer) note(err error, now time.Time, report *Report) (fresh bool) {
	cgroup, field, file := whose(err)
	k := e.cgroups[cgroup]
	if k == nil {
		return true
	}
	cause := CauseOf(err)
	key := troubleKey{field, file}
	t := k.trouble[key]
	if t == nil {
		t = &trouble{}
		if k.trouble == nil {
			k.trouble = map[troubleKey]*trouble{}
		}
		k.trouble[key] = t
		e.troubles++
		fresh = true
	}
	fresh = fresh || t.cause != cause || t.fight
	t.cause, t.fight, t.over = cause, false, false
	t.forever = cause == CauseUnsupported || cause == CauseEmpty
	t.wait = min(max(2*t.wait, e.cfg.RetryAfter), e.cfg.RetryAtMost)
	t.until = now.Add(t.wait)
	if cause == CauseGone {
		if !slices.Contains(report.Gone, cgroup) {
			report.Gone = append(report.Gone, cgroup)
		}
		return false // Cgroups come and go.
	}
	return fresh
}

// tried drops what was refused once, was tried again and is no error any more:
// there is nothing to wait for, and its time would stay in the past.
func (e *Enforcer) tried(differ []Target, now time.Time) {
	for _, d := range differ {
		k := e.cgroups[d.Cgroup]
		for key, t := range k.trouble {
			switch {
			case t.waits(now):
			case t.fight:
				t.over = true
			default:
				delete(k.trouble, key)
				e.troubles--
			}
		}
	}
}

// contend counts a repair, and gives way if there are too many.
func (e *Enforcer) contend(ctx context.Context, c Change, now time.Time, report *Report) {
	k := e.cgroups[c.Cgroup]
	if k.repairs == nil {
		k.repairs = map[string][]time.Time{}
	}
	file := path.Base(c.File)
	times := slices.DeleteFunc(k.repairs[file], func(t time.Time) bool { return now.Sub(t) > e.cfg.Contention.Period })
	times = append(times, now)
	k.repairs[file] = times
	if len(times) < e.cfg.Contention.Repairs {
		return
	}
	delete(k.repairs, file)
	key := troubleKey{c.Field, file}
	t := k.trouble[key]
	if t == nil {
		t = &trouble{}
		if k.trouble == nil {
			k.trouble = map[troubleKey]*trouble{}
		}
		k.trouble[key] = t
		e.troubles++
	}
	if t.fight && now.Sub(t.until) > e.cfg.Contention.MaxBackoff {
		t.wait = 0 // That was another fight.
	}
	t.fight, t.over = true, false
	t.wait = min(max(2*t.wait, e.cfg.Contention.Backoff), e.cfg.Contention.MaxBackoff)
	t.until = now.Add(t.wait)
	contended := Contended{Change: c, Repairs: len(times), For: t.wait}
	report.Contended = append(report.Contended, contended)
	e.log(ctx, slog.LevelWarn, "gave way to another writer", slog.String("fields", c.Field.String()), slog.String("contention", contended.String()))
}

// encourage lets files be tried again whose cgroups lie above or below one that
// changed.
func (e *Enforcer) encourage(changes []Change) {
	for cgroup, k := range e.cgroups {
		for _, t := range k.trouble {
			if t.fight || t.forever {
				continue
			}
			for i := range changes {
				c := changes[i].Cgroup
				if c != cgroup && (strings.HasPrefix(c, cgroup+"/") || strings.HasPrefix(cgroup, c+"/")) {
					t.until = time.Time{}
					break
				}
			}
		}
	}
}

// Next returns when a file that is left alone is to be tried again; ok is false
// if there is none.
func (e *Enforcer) Next() (next time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.troubles == 0 {
		return next, false
	}
	for _, k := range e.cgroups {
		for _, t := range k.trouble {
			if !t.forever && !t.over && (!ok || t.until.Before(next)) {
				next, ok = t.until, true
			}
		}
	}
	return next, ok
}

// leftAlone counts the files that are left alone for now. e.mu is held.
func (e *Enforcer) leftAlone() (contended, refused int) {
	if e.troubles == 0 {
		return 0, 0
	}
	now := time.Now()
	for _, k := range e.cgroups {
		for _, t := range k.trouble {
			switch {
			case !t.waits(now):
			case t.fight:
				contended++
			default:
				refused++
			}
		}
	}
	return contended, refused
}

func (e *Enforcer) log(ctx context.Context, level slog.Level, msg string, attrs ...slog.Attr) {
	if e.cfg.Logger != nil {
		e.cfg.Logger.LogAttrs(ctx, level, msg, attrs...)
	}
}
