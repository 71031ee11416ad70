package cgroup

import (
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxChildren is the maximum number of children of a cgroup that are searched for a value bounding
// that of the parent.
const maxChildren = 1000

// explain adds to the error of a refused write the file that bounds the value: another file of the
// cgroup, or a file of the parent or of a child.
func (p *plan) explain(s *step, err error) {
	file := (*FileError)(nil)
	if s.do != nil || !errors.As(err, &file) || file.Op != "write" {
		return
	}
	n := neighbors{dir: s.setting.dir, cgroup: s.setting.cgroup}
	if n.cgroup == "" {
		return
	}
	switch name := path.Base(s.File); {
	case errors.Is(err, syscall.EINVAL) && (name == quotaFile || name == periodFile || name == maxFileV2):
		file.Bound = n.ofLimit(name, s.To)
	case errors.Is(err, syscall.EINVAL) && (name == "cpu.cfs_burst_us" || name == "cpu.max.burst"):
		quota := quotaFile
		if name == "cpu.max.burst" {
			quota = maxFileV2
		}
		file.Bound = n.own(quota)
	case errors.Is(err, syscall.EINVAL) && name == "memory.limit_in_bytes":
		file.Bound = n.own(memswFile)
	case errors.Is(err, syscall.EINVAL) && name == memswFile:
		file.Bound = n.own("memory.limit_in_bytes")
	case errors.Is(err, syscall.EBUSY) && name == "memory.limit_in_bytes":
		file.Bound = n.own("memory.usage_in_bytes")
	case name == "cpuset.cpus" || name == "cpuset.mems":
		file.Bound = n.ofList(name, s.To)
	}
}

// neighbors holds the files that may bound a value of a cgroup.
type neighbors struct {
	dir    *directory
	cgroup string
}

// of returns the text of a file of the parent (".."), of a child, or of the cgroup itself (".").
func (n *neighbors) of(where, file string) (text, name string) {
	if where == "." {
		text, err := n.dir.read(file, maxFile, nil)
		if err != nil {
			return "", ""
		}
		return strings.TrimSpace(text), n.dir.path(file)
	}
	at := path.Join(n.cgroup, where)
	f, err := n.dir.hierarchy.Open(path.Join(at, file))
	if err != nil {
		return "", ""
	}
	defer f.Close()
	var buf [settledBytes]byte
	length, err := pread(f, buf[:])
	if err != nil {
		return "", ""
	}
	return strings.TrimSpace(string(buf[:length])), path.Join(n.dir.name, where, file)
}

// own returns another file of the cgroup with its text.
func (n *neighbors) own(file string) string {
	text, name := n.of(".", file)
	if name == "" {
		return ""
	}
	return name + " is " + text
}

func (n *neighbors) children() (names []string) {
	root, done, err := n.dir.opened()
	if err != nil {
		return nil
	}
	defer done()
	dir, err := root.Open(".")
	if err != nil {
		return nil
	}
	defer dir.Close()
	for len(names) < maxChildren {
		entries, err := dir.ReadDir(100)
		for _, entry := range entries {
			if entry.IsDir() {
				names = append(names, entry.Name())
			}
		}
		if err != nil {
			break
		}
	}
	slices.Sort(names)
	return names
}

// limit returns the quota, the period and their quotient, at one of the places of [neighbors.of].
func (n *neighbors) limit(where string) (limit float64, says string, ok bool) {
	if text, name := n.of(where, maxFileV2); name != "" {
		quota, period, ok := parseCPUMax(text)
		return orInf(quota) / float64(period), name + " is " + text, ok
	}
	quota, name := n.of(where, quotaFile)
	period, _ := n.of(where, periodFile)
	q, err := strconv.ParseInt(quota, 10, 64)
	per, err2 := strconv.ParseInt(period, 10, 64)
	return orInf(q) / float64(per), name + " is " + quota + " with a period of " + period, errors.Join(err, err2) == nil && per > 0
}

// ofLimit returns the value that bounds a quota or a period.
func (n *neighbors) ofLimit(file, to string) string {
	quotaText, periodText := to, ""
	switch file {
	case maxFileV2:
		quotaText, periodText, _ = strings.Cut(to, " ")
	case quotaFile:
		periodText, _ = n.of(".", periodFile)
	default:
		periodText = to
		quotaText, _ = n.of(".", quotaFile)
	}
	quota, err := strconv.ParseInt(quotaText, 10, 64)
	period, err2 := strconv.ParseInt(periodText, 10, 64)
	if errors.Join(err, err2) != nil || period <= 0 {
		return ""
	}
	for _, burst := range [...]string{"cpu.cfs_burst_us", "cpu.max.burst"} {
		if text, name := n.of(".", burst); name != "" {
			if b, err := strconv.ParseInt(text, 10, 64); err == nil && b > quota && quota >= 0 {
				return name + " is " + text
			}
		}
	}
	if file == maxFileV2 {
		return "" // Neither the parent nor a child bounds the value.
	}
	want := orInf(quota) / float64(period)
	// The nearest limit above counts.
	for above := ".."; path.Join(n.cgroup, above) != "."; above += "/.." {
		if limit, says, ok := n.limit(above); ok && limit < want {
			return says
		}
	}
	for _, child := range n.children() {
		if limit, says, ok := n.limit(child); ok && limit > want && limit != orInf(unlimited) {
			return says
		}
	}
	return ""
}

// ofList returns the list that bounds one of CPUs or nodes.
func (n *neighbors) ofList(file, to string) string {
	want, err := parseList(to)
	if err != nil {
		return ""
	}
	if text, name := n.of("..", file); name != "" {
		if list, err := parseList(text); err == nil && text != "" && !list.contains(want) {
			return name + " is " + text
		}
	}
	for _, child := range n.children() {
		if text, name := n.of(child, file); name != "" {
			if list, err := parseList(text); err == nil && !want.contains(list) {
				return name + " is " + text
			}
		}
	}
	return ""
}
