package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// plan holds the writes that bring some cgroups to their resources.
type plan struct {
	applier *Applier
	dirs    *directories
	// skip reports whether a file is left alone; nil skips none.
	skip func(cgroup string, field hookmsg.Fields, file string) bool

	steps []step // In an order accepted by the kernel.
	left  []step // Steps not taken because ctx has ended.
	errs  []error
	reads []reading
	rolls []*roll

	// cgroup, level, depth and field are those of the target being planned.
	cgroup string
	level  abi.Level
	depth  int
	field  hookmsg.Fields
	closed map[string]bool // The controllers whose directory cannot be opened.
	files  map[string]bool // Those of fields other than unified.
}

// reading is the text of a file when it was planned.
type reading struct {
	cgroup, file string
	setting      *setting
	raw          string
}

// step is a single write.
type step struct {
	Change
	setting *setting
	// widens is set if the write allows the cgroup more, or bounds no children.
	widens bool
	depth  int
	// do performs the write; it is nil for a file of the cgroup.
	do func() error
	// noted is the name of the note on the value before the first write, empty for none, and note
	// its text.
	noted, note string
	// done is set after the write, and cleared if it is undone.
	done bool
}

// setting is a field of a cgroup, or several fields that share a file. Its later steps depend on
// the earlier ones, and are skipped after a failure.
type setting struct {
	dir    *directory
	cgroup string
	field  hookmsg.Fields
	// planned is set if it has steps, begun if one of them was tried, and failed if one failed.
	planned, begun, failed bool
}

// run does the steps and returns those that succeeded. If a step of a setting fails, the earlier
// ones are undone, since the first may have lifted a limit that the last should have set.
func (p *plan) run(ctx context.Context) (done []Change, err error) {
	defer func() {
		for _, r := range p.rolls {
			r.close()
		}
	}()
	var ended error
	for i := range p.steps {
		s := &p.steps[i]
		if ended == nil {
			if ended = ctx.Err(); ended != nil {
				p.errs = append(p.errs, fmt.Errorf("apply: %w", ended))
			}
		}
		if ended != nil && !s.setting.begun { // A setting that has begun is completed.
			p.left = append(p.left, *s)
			continue
		}
		if s.setting.failed {
			continue
		}
		s.setting.begun = true
		write := s.do
		if write == nil {
			write = func() error { return s.setting.dir.write(path.Base(s.File), s.To) }
		}
		if s.noted != "" {
			s.setting.dir.note(s.noted, s.note)
		}
		if err := write(); err != nil {
			s.setting.failed = true
			p.explain(s, err)
			p.failField(err, s.Cgroup, s.Field)
			p.undo(p.steps[:i], s.setting)
			continue
		}
		s.done = true
	}
	for i := range p.steps {
		if p.steps[i].done {
			done = append(done, p.steps[i].Change)
		}
	}
	return done, errors.Join(p.errs...)
}

// undo reverts the steps of a setting on files of the cgroup, starting with the last.
func (p *plan) undo(steps []step, of *setting) {
	for i := range slices.Backward(steps) {
		s := &steps[i]
		if s.setting != of || !s.done || s.do != nil {
			continue
		}
		if err := of.dir.write(path.Base(s.File), s.From); err != nil {
			p.explain(&step{Change: Change{File: s.File, To: s.From}, setting: of}, err)
			p.failField(fmt.Errorf("undo: %w", err), s.Cgroup, s.Field)
			return // The earlier steps made room for this one.
		}
		s.done = false
	}
}

// changes returns the writes of run.
func (p *plan) changes() (changes []Change) {
	for i := range p.steps {
		changes = append(changes, p.steps[i].Change)
	}
	return changes
}

// fail adds an error of the current target and field.
func (p *plan) fail(err error) { p.failField(err, p.cgroup, p.field) }

func (p *plan) failField(err error, cgroup string, field hookmsg.Fields) {
	if file := (*FileError)(nil); errors.As(err, &file) {
		file.Cgroup, file.Field = cgroup, field
	} else {
		err = &fieldError{cgroup: cgroup, field: field, err: err}
	}
	p.errs = append(p.errs, err)
}

// plan plans the writes that bring the targets to their resources: widening writes from the top
// down, then tightening writes from the bottom up.
func (a *Applier) plan(targets []Target, dirs *directories, skip func(cgroup string, field hookmsg.Fields, file string) bool) *plan {
	p := &plan{applier: a, dirs: dirs, skip: skip}
	for _, t := range targets {
		if err := checkCgroup(t.Cgroup); err != nil {
			p.fail(err)
			continue
		}
		if t.Resources == nil {
			continue
		}
		p.cgroup, p.level, p.depth = t.Cgroup, t.Level, strings.Count(t.Cgroup, "/")
		p.closed, p.files = map[string]bool{}, map[string]bool{}
		p.resources(t.Resources)
	}
	slices.SortStableFunc(p.steps, func(a, b step) int {
		switch {
		case a.widens && b.widens:
			return cmp.Compare(a.depth, b.depth)
		case a.widens:
			return -1
		case b.widens:
			return 1
		}
		return cmp.Compare(b.depth, a.depth)
	})
	return p
}

// fieldFiles lists the fields in planning order, with their files on cgroup v1 and v2.
var fieldFiles = [...]struct {
	field  hookmsg.Fields
	v1, v2 string
}{
	{hookmsg.FieldCPUIdle, "cpu.idle", "cpu.idle"}, // Before the shares, which an idle cgroup refuses.
	{hookmsg.FieldCPUShares, "cpu.shares", "cpu.weight"},
	{hookmsg.FieldCPUBvt, "cpu.bvt_warp_ns", "cpu.bvt_warp_ns"},
	{limitFields, "cpu.cfs_quota_us", "cpu.max"}, // On v1, the period has a separate file.
	{hookmsg.FieldCPUBurst, "cpu.cfs_burst_us", "cpu.max.burst"},
	{hookmsg.FieldCPUSetMems, "cpuset.mems", "cpuset.mems"},
	{hookmsg.FieldCPUSetCPUs, "cpuset.cpus", "cpuset.cpus"},
	{hookmsg.FieldMemoryLimit, "memory.limit_in_bytes", "memory.max"},
	{hookmsg.FieldMemoryHigh, "memory.high", "memory.high"},
	{hookmsg.FieldMemoryLow, "memory.low", "memory.low"},
	{hookmsg.FieldMemoryMin, "memory.min", "memory.min"},
	{hookmsg.FieldNetClsClassID, "net_cls.classid", "net_cls.classid"},
	{hookmsg.FieldOOMScoreAdj, "", ""}, // Those of processes.
	{hookmsg.FieldCoreSchedGroup, "", ""},
	{hookmsg.FieldResctrlGroup, "", ""},
	{hookmsg.FieldUnified, "", ""}, // Those that it names.
}

// quotaFile, periodFile and maxFileV2 are the files of limitFields, on cgroup v1 and v2.
const quotaFile, periodFile, maxFileV2 = "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max"

// limitFields are the fields that together form one limit.
const limitFields = hookmsg.FieldCFSQuota | hookmsg.FieldCFSPeriod

// resources plans the resources of one cgroup.
func (p *plan) resources(r *hookmsg.Resources) {
	set, v2 := r.Fields(), p.applier.version == V2
	if r.CPUIdle != nil && *r.CPUIdle != 0 {
		set &^= hookmsg.FieldCPUShares
	}
	for i := range fieldFiles {
		f := &fieldFiles[i]
		if p.field = set & f.field; p.field == 0 {
			continue
		}
		file := f.v1
		if v2 {
			file = f.v2
		}
		switch f.field {
		case hookmsg.FieldCPUShares:
			shares := *r.CPUShares
			if v2 {
				shares = p.applier.conversion(p.level, p.cgroup).Weight(shares)
			}
			p.number(file, shares)
		case limitFields:
			if v2 {
				p.cpuMax(r.CFSQuotaUS, r.CFSPeriodUS)
			} else {
				p.quotaAndPeriod(r.CFSQuotaUS, r.CFSPeriodUS)
			}
		case hookmsg.FieldCPUBurst:
			p.burst(file, *r.CPUBurstUS)
		case hookmsg.FieldCPUSetMems, hookmsg.FieldCPUSetCPUs:
			p.list(file, **r.Text(f.field))
		case hookmsg.FieldMemoryLimit, hookmsg.FieldMemoryHigh, hookmsg.FieldMemoryLow, hookmsg.FieldMemoryMin:
			p.bytes(file, **r.Number(f.field))
		case hookmsg.FieldOOMScoreAdj:
			p.oomScoreAdj(*r.OOMScoreAdj)
		case hookmsg.FieldCoreSchedGroup:
			p.coreSchedGroup(*r.CoreSchedGroup)
		case hookmsg.FieldResctrlGroup:
			p.resctrl(*r.ResctrlGroup, r.ResctrlSchemata)
		case hookmsg.FieldUnified:
			for _, file := range slices.Sorted(maps.Keys(r.Unified)) {
				p.unified(file, r.Unified[file])
			}
		default:
			p.number(file, **r.Number(f.field))
		}
	}
}

// directory returns the directory with a controller's files of the cgroup, nil if it cannot be
// opened. In that case it adds the error, once.
func (p *plan) directory(controller string) *directory {
	if p.closed[controller] {
		return nil
	}
	key := controller
	if p.applier.controllers == nil {
		key = "" // One directory has the files of all controllers.
	}
	dir := p.dirs.open[p.cgroup][key]
	if dir != nil {
		return dir
	}
	dir, err := p.applier.openDirectory(controller, p.cgroup)
	if err != nil {
		p.fail(err)
		p.closed[controller] = true
		return nil
	}
	p.dirs.add(key, dir)
	return dir
}

// read returns the setting of a file and its text. The setting is nil if the file is left
// alone, or if it cannot be read, which adds the error.
func (p *plan) read(file string) (*setting, string) {
	p.files[file] = true
	controller, _, _ := strings.Cut(file, ".")
	s, raw := p.readOf(controller, file, maxFile, p.dirs)
	return s, strings.TrimSpace(raw)
}

// readOf is read for a file of any name and size in a controller's directory. The text includes
// surrounding white space. The file stays open if keep is not nil.
func (p *plan) readOf(controller, file string, most int64, keep *directories) (*setting, string) {
	if p.skip != nil && p.skip(p.cgroup, p.field, file) {
		return nil, ""
	}
	dir := p.directory(controller)
	if dir == nil {
		return nil, ""
	}
	raw, err := dir.read(file, most, keep)
	if err != nil && gone(err) && dir.left(p.cgroup) {
		// Even if the cgroup's directory stayed open, there may be a new cgroup of its name.
		p.dirs.forget(p.cgroup)
		if dir = p.directory(controller); dir == nil {
			return nil, ""
		}
		if raw, err = dir.read(file, most, keep); err != nil && gone(err) && dir.left(p.cgroup) {
			err = &FileError{Op: "open", File: dir.name, Err: cause(err)}
		}
	}
	if err != nil {
		p.fail(err)
		return nil, ""
	}
	s := &setting{dir: dir, cgroup: p.cgroup, field: p.field}
	p.reads = append(p.reads, reading{cgroup: p.cgroup, file: file, setting: s, raw: raw})
	return s, raw
}

// write plans a write to a file of the cgroup.
func (p *plan) write(s *setting, file, from, to string, widens bool) {
	s.planned = true
	change := Change{Cgroup: s.cgroup, Field: s.field, File: s.dir.path(file), From: from, To: to}
	p.steps = append(p.steps, step{Change: change, setting: s, widens: widens, depth: p.depth})
}

// outside plans a write to something other than a file of the cgroup.
func (p *plan) outside(s *setting, file, from, to string, do func() error) {
	p.write(s, "", from, to, true)
	last := &p.steps[len(p.steps)-1]
	last.File, last.do = file, do
}

// number plans a file that holds one number. A larger one allows the cgroup more, except in
// cpu.idle.
func (p *plan) number(file string, want int64) {
	s, from := p.read(file)
	if s == nil {
		return
	}
	have, err := strconv.ParseInt(from, 10, 64)
	if err == nil && have == want {
		return
	}
	widens := err != nil || (want > have) == (p.field != hookmsg.FieldCPUIdle)
	p.write(s, file, from, strconv.FormatInt(want, 10), widens)
}

// bytes plans a file that holds an amount of memory.
func (p *plan) bytes(file string, want int64) {
	s, from := p.read(file)
	if s == nil {
		return
	}
	have, ok := parseBytes(from)
	if ok && have == wholePages(want) {
		return
	}
	to := strconv.FormatInt(want, 10)
	if want == unlimited && p.applier.version == V2 {
		to = "max"
	}
	widens := !ok || orInf(want) > orInf(have)
	p.write(s, file, from, to, widens)
}

// parseBytes parses an amount of memory in the kernel's notation: "max" is unlimited, and so is the
// largest number of pages, which cgroup v1 shows instead.
func parseBytes(s string) (n int64, ok bool) {
	if s == "max" {
		return unlimited, true
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err == nil && n > maxBytes {
		n = unlimited
	}
	return n, err == nil
}

// wholePages rounds an amount down to whole pages, as the kernel does.
func wholePages(bytes int64) int64 {
	if bytes == unlimited {
		return unlimited
	}
	return bytes - bytes%int64(os.Getpagesize())
}

func orInf(n int64) float64 {
	if n == unlimited {
		return math.Inf(1)
	}
	return float64(n)
}

// list plans a file that holds CPUs or nodes. On v1 a list must lie within the parent's and hold
// the children's, so in between, a list that moves is the union of the old and the new list.
func (p *plan) list(file, want string) {
	if want == "" {
		p.parentsList(file)
		return
	}
	wanted, err := parseList(want)
	if err != nil {
		p.fail(fmt.Errorf("apply %s to cgroup %q: %w", file, p.cgroup, err))
		return
	}
	s, from := p.read(file)
	if s == nil {
		return
	}
	had, err := parseList(from)
	if err != nil {
		had = new(list)
	}
	switch to := wanted.String(); {
	case err == nil && *had == *wanted:
	case wanted.contains(had):
		p.write(s, file, from, to, true)
	case had.contains(wanted) || p.applier.version == V2:
		p.write(s, file, from, to, false)
	default:
		both := had.union(wanted).String()
		p.write(s, file, from, both, true)
		p.write(s, file, both, to, false)
	}
}

// parentsList plans the parent's list for a file of CPUs or nodes. On v2 an empty file means the
// parent's list, but a non-empty file cannot be emptied while the cgroup has processes.
func (p *plan) parentsList(file string) {
	parents := file
	if p.applier.version == V2 {
		if s, from := p.read(file); s == nil || from == "" {
			return
		}
		parents = file + ".effective"
	}
	list, err := p.parents(parents)
	if err != nil {
		p.fail(err)
	} else if list != "" {
		p.list(file, list)
	}
}

// parents returns the text of a file of the parent cgroup.
func (p *plan) parents(file string) (string, error) {
	controller, _, _ := strings.Cut(file, ".")
	parent := path.Dir(p.cgroup)
	root, name := p.applier.root, parent
	if p.applier.controllers != nil {
		if root, name = p.applier.controllers[controller], controller+"/"+parent; root == nil {
			return "", &FileError{Op: "open", File: controller, Err: fmt.Errorf("the controller is not mounted: %w: %w", errUnsupported, fs.ErrNotExist)}
		}
	}
	dir, err := root.OpenRoot(parent)
	if err != nil {
		return "", &FileError{Op: "open", File: name, Err: cause(err)}
	}
	d := &directory{root: dir, hierarchy: root, name: name}
	defer d.close()
	text, err := d.read(file, maxFile, nil)
	return strings.TrimSpace(text), err
}

// cpuMax plans cpu.max of cgroup v2, "quota period". A nil value stays unchanged.
func (p *plan) cpuMax(quota, period *int64) {
	const file = maxFileV2
	s, from := p.read(file)
	if s == nil {
		return
	}
	haveQuota, havePeriod, ok := parseCPUMax(from)
	if !ok {
		p.fail(&FileError{Op: "read", File: s.dir.path(file), Err: fmt.Errorf("%q is not a quota and a period", from)})
		return
	}
	wantQuota, wantPeriod := *cmp.Or(quota, &haveQuota), *cmp.Or(period, &havePeriod)
	if wantQuota == haveQuota && wantPeriod == havePeriod {
		return
	}
	to := "max"
	if wantQuota != unlimited {
		to = strconv.FormatInt(wantQuota, 10)
	}
	to += " " + strconv.FormatInt(wantPeriod, 10)
	p.write(s, file, from, to, orInf(wantQuota)/float64(wantPeriod) > orInf(haveQuota)/float64(havePeriod))
}

func parseCPUMax(s string) (quota, period int64, ok bool) {
	q, per, _ := strings.Cut(s, " ")
	quota = unlimited
	var err, err2 error
	if q != "max" {
		quota, err = strconv.ParseInt(q, 10, 64)
	}
	period, err2 = strconv.ParseInt(per, 10, 64)
	return quota, period, err == nil && err2 == nil && period > 0
}

// quotaAndPeriod plans the two files of cgroup v1 whose quotient is the limit. Between the old
// limit and the new one it must not leave their range, or it may violate the parent's or a child's
// limit.
func (p *plan) quotaAndPeriod(quota, period *int64) {
	s, fromQuota := p.read(quotaFile)
	if s == nil {
		return
	}
	other, fromPeriod := p.read(periodFile)
	if other == nil {
		return
	}
	p.reads[len(p.reads)-1].setting = s // Both files belong to one setting.
	haveQuota, err := strconv.ParseInt(fromQuota, 10, 64)
	havePeriod, err2 := strconv.ParseInt(fromPeriod, 10, 64)
	if err = errors.Join(err, err2); err != nil || havePeriod <= 0 {
		p.fail(&FileError{Op: "read", File: s.dir.path(quotaFile), Err: fmt.Errorf("%q and %q are not a quota and a period", fromQuota, fromPeriod)})
		return
	}
	wantQuota, wantPeriod := *cmp.Or(quota, &haveQuota), *cmp.Or(period, &havePeriod)
	limit := func(quota, period int64) float64 { return orInf(quota) / float64(period) }
	have, want := limit(haveQuota, havePeriod), limit(wantQuota, wantPeriod)
	between := func(l float64) bool { return min(have, want) <= l && l <= max(have, want) }

	toQuota, toPeriod := strconv.FormatInt(wantQuota, 10), strconv.FormatInt(wantPeriod, 10)
	widens := want > have
	setQuota := func() { p.write(s, quotaFile, fromQuota, toQuota, widens) }
	setPeriod := func() { p.write(s, periodFile, fromPeriod, toPeriod, widens) }
	switch {
	case wantQuota == haveQuota && wantPeriod == havePeriod:
	case wantPeriod == havePeriod:
		setQuota()
	case wantQuota == haveQuota:
		setPeriod()
	case between(limit(wantQuota, havePeriod)):
		setQuota()
		setPeriod()
	case between(limit(haveQuota, wantPeriod)):
		setPeriod()
		setQuota()
	default:
		const lifted = "-1"
		p.write(s, quotaFile, fromQuota, lifted, widens)
		setPeriod()
		fromQuota = lifted
		setQuota()
	}
}

// burst plans the burst, which must never exceed the quota: it shrinks before the quota does, and
// grows after it.
func (p *plan) burst(file string, want int64) {
	limit := slices.IndexFunc(p.steps, func(s step) bool { return s.Cgroup == p.cgroup && s.Field&limitFields != 0 })
	end := len(p.steps)
	p.number(file, want)
	if limit < 0 || len(p.steps) == end {
		return
	}
	s := p.steps[end]
	shrinks := !s.widens
	s.widens = p.steps[limit].widens
	p.steps = p.steps[:end]
	if shrinks {
		end = limit
	}
	p.steps = slices.Insert(p.steps, end, s)
}

// unified plans a file named by the resources.
func (p *plan) unified(file, value string) {
	fail := func(err error) {
		p.errs = append(p.errs, &fieldError{cgroup: p.cgroup, field: p.field, file: file, err: fmt.Errorf("apply unified[%q] to cgroup %q: %w", file, p.cgroup, err)})
	}
	if p.skip != nil && p.skip(p.cgroup, p.field, file) {
		return
	}
	// Callers other than an engine may not have validated it.
	if err := checkUnified(file, value); err != nil {
		fail(err)
		return
	}
	if p.files[file] {
		fail(errors.New("another field writes the file"))
		return
	}
	s, from := p.read(file)
	if s == nil || from == strings.TrimSpace(value) {
		return
	}
	p.write(s, file, from, value, true)
	last := &p.steps[len(p.steps)-1]
	last.noted, last.note = file, from
	if file == memswFile {
		p.memsw(from, value)
	}
}

// memswFile is the limit of memory and swap on cgroup v1, which must never be less than that of
// memory.
const memswFile = "memory.memsw.limit_in_bytes"

// memsw orders the last step, a write of memswFile, which grows before the limit of memory does,
// and shrinks after it.
func (p *plan) memsw(from, to string) {
	end := len(p.steps) - 1
	s := p.steps[end]
	have, ok := parseBytes(from)
	want, ok2 := parseBytes(strings.TrimSpace(to))
	if !ok || !ok2 {
		return // Equal, in another notation.
	}
	s.widens = orInf(want) > orInf(have)
	limit := slices.IndexFunc(p.steps[:end], func(s step) bool { return s.Cgroup == p.cgroup && s.Field == hookmsg.FieldMemoryLimit })
	if !s.widens || limit < 0 {
		limit = end
	}
	p.steps = slices.Insert(p.steps[:end], limit, s)
}
