package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// FindDriver returns the kubelet's driver by the cgroups that it has created below its cgroupRoot:
// "kubepods", or "kubepods.slice". If both exist because the driver of the node was changed, it
// returns the one with pods. The error reports that no cgroup exists, or that both have pods.
func (a *Applier) FindDriver(root string) (Driver, error) {
	var found, used []Driver
	var names []string
	for _, d := range []Driver{Cgroupfs, Systemd} {
		l := Layout{Driver: d, Root: root}
		cgroup := l.QOS(abi.QOSGuaranteed)
		names = append(names, cgroup)
		if !a.Exists(cgroup) {
			continue
		}
		found = append(found, d)
		if a.hasPods(l) {
			used = append(used, d)
		}
	}
	if len(found) == 2 && len(used) == 1 {
		found = used
	}
	switch len(found) {
	case 0:
		return 0, fmt.Errorf("find the kubelet's cgroup driver: %s has neither %s: check that the kubelet runs and that this is the node's hierarchy", a.path, strings.Join(names, " nor "))
	case 1:
		return found[0], nil
	}
	return 0, fmt.Errorf("find the kubelet's cgroup driver: %s has %s: name the one that the kubelet is configured with", a.path, strings.Join(names, " and "))
}

// hasPods reports whether a cgroup of a QoS class contains that of a pod.
func (a *Applier) hasPods(l Layout) bool {
	for _, class := range qosClasses {
		cgroup := l.QOS(class)
		for _, root := range a.roots() {
			entries, _ := fs.ReadDir(root.FS(), cgroup)
			prefix := "pod"
			if l.Driver == Systemd {
				prefix = strings.TrimSuffix(cgroup[strings.LastIndexByte(cgroup, '/')+1:], ".slice") + "-pod"
			}
			if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.IsDir() && strings.HasPrefix(e.Name(), prefix) }) {
				return true
			}
		}
	}
	return false
}

var qosClasses = [...]abi.QOSClass{abi.QOSGuaranteed, abi.QOSBurstable, abi.QOSBestEffort}

// roots returns the hierarchies in which pods have cgroups.
func (a *Applier) roots() (roots []*os.Root) {
	if a.controllers == nil {
		return []*os.Root{a.root}
	}
	for _, r := range a.controllers {
		roots = append(roots, r)
	}
	return roots
}

// limits are the files, by controller, that show whether a cgroup can be written. A cgroup has at
// least one of them.
var limits = map[Version]map[string]string{
	V1: {"cpu": "cpu.shares", "cpuset": "cpuset.cpus", "memory": "memory.limit_in_bytes"},
	V2: {"cpu": "cpu.weight", "cpuset": "cpuset.cpus", "memory": "memory.max"},
}

// check returns an error if the cgroups of a layout cannot be written or, unless write is set, do
// not exist.
func (a *Applier) check(l Layout, write bool) error {
	cgroup := l.QOS(abi.QOSGuaranteed)
	if !a.Exists(cgroup) {
		other := l
		other.Driver = Cgroupfs + Systemd - l.Driver
		if found := other.QOS(abi.QOSGuaranteed); a.Exists(found) {
			return fmt.Errorf("%s has no %s, and has %s: the kubelet's cgroup driver is %s, not %s", a.path, cgroup, found, other.Driver, l.Driver)
		}
		return fmt.Errorf("%s has no %s: check that the kubelet runs with this cgroupRoot, and that this is the node's hierarchy", a.path, cgroup)
	}
	if !write {
		return nil
	}
	var errs []error
	ok := false
	for controller, file := range limits[a.version] {
		err := a.canWrite(controller, cgroup, file)
		if err == nil {
			ok = true
		} else if !gone(err) {
			errs = append(errs, err)
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("cgroups cannot be written: %w", err)
	}
	if !ok {
		return fmt.Errorf("cgroups cannot be written: %s in %s has no file of the controllers cpu, cpuset and memory", cgroup, a.path)
	}
	return nil
}

// Lacks returns the fields, among those given, that no file of the pods' cgroups holds on this
// node: the kernel has no such file, or the controller is off on cgroup v2. Fields of processes,
// and of files named by a decision, are ignored.
func (a *Applier) Lacks(l Layout, fields hookmsg.Fields) (lacks hookmsg.Fields) {
	dirs := newDirectories(forOnce)
	defer dirs.close()
	p := &plan{applier: a, dirs: dirs, cgroup: l.QOS(abi.QOSGuaranteed), closed: map[string]bool{}, files: map[string]bool{}}
	for i := range fieldFiles {
		file := fieldFiles[i].v1
		if a.version == V2 {
			file = fieldFiles[i].v2
		}
		if p.field = fields & fieldFiles[i].field; p.field == 0 || file == "" {
			continue
		}
		if s, _ := p.read(file); s == nil {
			lacks |= p.field
		}
	}
	return lacks
}

// canWrite opens a file for writing without writing to it.
func (a *Applier) canWrite(controller, cgroup, file string) error {
	d, err := a.openDirectory(controller, cgroup)
	if err != nil {
		return err
	}
	defer d.close()
	f, err := d.openFile(file, os.O_WRONLY)
	if err == nil {
		return f.Close()
	}
	e := &FileError{Cgroup: cgroup, Op: "open", File: d.path(file), Err: cause(err)}
	switch {
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w (a container must be privileged or have the hierarchy mounted for writing)", e)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w (requires root or CAP_DAC_OVERRIDE, and a security module that allows it)", e)
	}
	return e
}
