package cgroup

import (
	"os"
	"strconv"
	"strings"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Exists reports whether a cgroup exists in any of the hierarchies.
func (a *Applier) Exists(cgroup string) bool {
	for _, root := range a.controllers {
		if _, err := root.Lstat(cgroup); err == nil {
			return true
		}
	}
	_, err := a.root.Lstat(cgroup)
	return a.controllers == nil && err == nil
}

// Differing returns the fields of a target whose values differ from those of its cgroup, nil if
// there are none. Fields that cannot be compared are left out, such as those of a missing cgroup.
func (a *Applier) Differing(t Target) *hookmsg.Resources {
	if t.Resources != nil && t.Resources.CPUShares != nil {
		if is, _ := a.conversions.found(t.Cgroup); is == 0 {
			a.FindConversion(t.Level, t.Cgroup, *t.Resources.CPUShares)
		}
	}
	dirs := newDirectories(forOnce)
	defer dirs.close()
	p := a.plan([]Target{t}, dirs, nil)
	var fields hookmsg.Fields
	for _, s := range p.steps {
		fields |= s.Field
	}
	for _, err := range p.errs {
		_, field, _ := whose(err)
		fields &^= field
	}
	return t.Resources.Select(fields)
}

// Limits returns the quota, the period and the memory limit of a cgroup, nil for values that cannot
// be read.
func (a *Applier) Limits(cgroup string) *hookmsg.Resources {
	r := new(hookmsg.Resources)
	read := func(file string) (string, bool) {
		controller, _, _ := strings.Cut(file, ".")
		dir, err := a.openDirectory(controller, cgroup)
		if err != nil {
			return "", false
		}
		defer dir.close()
		text, err := dir.read(file, maxFile, nil)
		return strings.TrimSpace(text), err == nil
	}
	memory := "memory.max"
	if a.version == V2 {
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

// Protection returns memory.min, memory.low and memory.high of a cgroup, nil for values that it
// lacks, as on cgroup v1.
func (a *Applier) Protection(cgroup string) *hookmsg.Resources {
	r := new(hookmsg.Resources)
	if a.version != V2 {
		return r
	}
	dir, err := a.openDirectory("memory", cgroup)
	if err != nil {
		return r
	}
	defer dir.close()
	for file, into := range map[string]**int64{"memory.min": &r.MemoryMinBytes, "memory.low": &r.MemoryLowBytes, "memory.high": &r.MemoryHighBytes} {
		text, err := dir.read(file, maxFile, nil)
		if n, ok := parseBytes(strings.TrimSpace(text)); err == nil && ok {
			*into = &n
		}
	}
	return r
}

// File returns the text of a file of a cgroup, such as "memory.swap.max", without the white space
// around it; ok is false if it cannot be read.
func (a *Applier) File(cgroup, file string) (text string, ok bool) {
	controller, _, _ := strings.Cut(file, ".")
	dir, err := a.openDirectory(controller, cgroup)
	if err != nil {
		return "", false
	}
	defer dir.close()
	text, err = dir.read(file, maxFile, nil)
	return strings.TrimSpace(text), err == nil
}

// NodeMemory returns the memory and the swap space of the node, in bytes, 0 if they cannot be read.
func (a *Applier) NodeMemory() (memory, swap int64) {
	text, err := os.ReadFile(a.proc + "/meminfo")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "MemTotal":
			memory = n << 10
		case name == "SwapTotal":
			swap = n << 10
		}
	}
	return memory, swap
}
