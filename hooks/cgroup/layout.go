package cgroup

import (
	"fmt"
	"path"
	"strings"

	"github.com/kubewasm/kubewasm/abi"
	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// Driver is the kubelet's cgroupDriver, which determines how the cgroups of pods are created and
// named.
type Driver uint8

// The drivers.
const (
	// Cgroupfs names directories after the pods: "kubepods/burstable/pod8dbc5577/4b1f".
	Cgroupfs Driver = iota
	// Systemd names directories after systemd's units:
	// "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8dbc5577.slice/cri-containerd-4b1f.scope".
	Systemd
)

// String returns the name used in the kubelet's configuration.
func (d Driver) String() string {
	switch d {
	case Cgroupfs:
		return "cgroupfs"
	case Systemd:
		return "systemd"
	}
	return fmt.Sprintf("cgroupDriver(%d)", uint8(d))
}

// Layout describes the paths of the cgroups of QoS classes, pods and containers. Like those of a
// [Target], paths are relative to the root of the hierarchy, without a leading slash. The zero
// value is the layout of the kubelet and containerd for the driver cgroupfs.
type Layout struct {
	Driver Driver
	// Root is the kubelet's cgroupRoot, empty for the root of the hierarchy.
	Root string
	// Scope is the prefix of a container's directory, before its identifier:
	// "cri-containerd" (the default for systemd), "crio", "docker". The driver cgroupfs
	// has none by default.
	Scope string
}

// path returns the path of a class or, with a UID, of a pod.
func (l Layout) path(class abi.QOSClass, uid string) string {
	names := []string{"kubepods"}
	switch class {
	case abi.QOSBurstable:
		names = append(names, "burstable")
	case abi.QOSBestEffort:
		names = append(names, "besteffort")
	}
	if uid != "" {
		names = append(names, "pod"+uid)
	}
	root := strings.Trim(l.Root, "/")
	if l.Driver != Systemd {
		return path.Join(root, path.Join(names...))
	}
	// systemd uses "-" for the levels of slices: CgroupName.ToSystemd in
	// k8s.io/kubernetes/pkg/kubelet/cm.
	if root != "" {
		names = append(strings.Split(root, "/"), names...)
	}
	for i, name := range names {
		names[i] = strings.ReplaceAll(name, "-", "_")
	}
	return expandSlice(strings.Join(names, "-") + ".slice")
}

// expandSlice returns the path of a slice: each "-" in its name is a level
// (systemd.slice(5)).
func expandSlice(slice string) string {
	name, ok := strings.CutSuffix(slice, ".slice")
	if !ok {
		return slice
	}
	var dirs []string
	for i := range len(name) + 1 {
		if i == len(name) || name[i] == '-' {
			dirs = append(dirs, name[:i]+".slice")
		}
	}
	return path.Join(dirs...)
}

// QOS returns the cgroup above the pods of a class. The cgroups of guaranteed pods lie in the one
// above all classes.
func (l Layout) QOS(class abi.QOSClass) string { return l.path(class, "") }

// Pod returns the cgroup of a pod.
func (l Layout) Pod(class abi.QOSClass, uid string) string { return l.path(class, uid) }

// Container returns the cgroup of a container in its pod's.
func (l Layout) Container(pod, id string) string {
	scope := l.Scope
	if l.Driver == Systemd {
		if scope == "" {
			scope = "cri-containerd"
		}
		return pod + "/" + scope + "-" + id + ".scope"
	}
	if scope != "" {
		scope += "-"
	}
	return pod + "/" + scope + id
}

// Parent returns the path of a cgroup parent as the kubelet passes it to a runtime:
// "/kubepods/burstable/pod8dbc5577", or the last slice alone:
// "kubepods-burstable-pod8dbc5577.slice".
func (l Layout) Parent(cgroupParent string) string {
	p := strings.Trim(cgroupParent, "/")
	if strings.Contains(p, "/") {
		return p
	}
	return expandSlice(p)
}

// Path returns the path of a container's cgroup from linux.cgroupsPath of the
// OCI runtime specification: "/kubepods/pod8dbc5577/4b1f", or in systemd's
// notation "kubepods-pod8dbc5577.slice:cri-containerd:4b1f".
func (l Layout) Path(cgroupsPath string) string {
	if fields := strings.Split(cgroupsPath, ":"); len(fields) == 3 {
		return expandSlice(fields[0]) + "/" + fields[1] + "-" + fields[2] + ".scope"
	}
	return strings.Trim(cgroupsPath, "/")
}

// Of returns the cgroup of a request, for a [Target]: the cgroup parent itself at levels
// QOS and Pod, the container's directory in it at level Container.
//
// It returns an error if the path is not below the root, and for a container without an identifier,
// which has no cgroup yet.
func (l Layout) Of(req *hookmsg.Request) (string, error) {
	cgroup := req.CgroupParent
	if req.Level == abi.LevelContainer {
		id := req.Container.ID
		name := req.Pod.Namespace + "/" + req.Pod.Name + "/" + req.Container.Name
		if id == "" {
			return "", fmt.Errorf("cgroup of container %s: it has no identifier", name)
		}
		if !isIdentifier(id) {
			return "", fmt.Errorf("cgroup of container %s: identifier %q: %w", name, id, errEscapes)
		}
		if err := checkCgroup(cgroup); err != nil {
			return "", err
		}
		cgroup = l.Container(cgroup, id)
	}
	return cgroup, checkCgroup(cgroup)
}

// maxIdentifier is above the length of UIDs (36 bytes) and identifiers of containers (64).
const maxIdentifier = 128

// isIdentifier reports whether a UID or a container's identifier can be part of a cgroup's name: it
// has no "/", and is neither "." nor "..".
func isIdentifier(id string) bool {
	return id != "" && len(id) <= maxIdentifier && id[0] != '.' && !strings.ContainsFunc(id, func(r rune) bool { return r == '.' || notFileName(r) })
}

// CheckPod checks that a cgroup is the one created by the kubelet for the pod's UID, and returns
// its QoS class. No other source of a path can be trusted: the pod's author writes annotations, and
// a runtime may have copied a path from one.
//
// Any other path is a *[ClaimError].
func (l Layout) CheckPod(pod hookmsg.PodMeta, cgroup string) (abi.QOSClass, error) {
	e := &ClaimError{Pod: pod, Claimed: cgroup}
	if !isIdentifier(pod.UID) {
		return 0, e
	}
	for _, class := range qosClasses {
		want := l.Pod(class, pod.UID)
		if cgroup == want {
			return class, nil
		}
		e.Want = append(e.Want, want)
	}
	return 0, e
}

// FindPod returns the cgroup of the pod with a UID: the existing one of the paths that the kubelet
// may use, one for each QoS class. It is empty if none exists.
func (l Layout) FindPod(uid string, exists func(cgroup string) bool) string {
	if !isIdentifier(uid) {
		return ""
	}
	for _, class := range qosClasses {
		if cgroup := l.Pod(class, uid); exists(cgroup) {
			return cgroup
		}
	}
	return ""
}

// CheckContainer checks that a cgroup can be that of a container in the pod's cgroup parent: it
// must be a direct child of the parent. Its name must be the container's identifier, with or
// without a prefix that ends in "-" and the suffix ".scope". Any other path is a *[ClaimError].
func (l Layout) CheckContainer(pod hookmsg.PodMeta, parent string, container hookmsg.ContainerMeta, cgroup string) error {
	e := &ClaimError{Pod: pod, Container: container, Claimed: cgroup}
	if isIdentifier(container.ID) {
		e.Want = []string{l.Container(parent, container.ID)}
		name, ok := strings.CutPrefix(cgroup, parent+"/")
		name = strings.TrimSuffix(name, ".scope")
		prefix, ends := strings.CutSuffix(name, container.ID)
		if ok && ends && (prefix == "" || isIdentifier(prefix) && strings.HasSuffix(prefix, "-")) {
			return nil
		}
	}
	return e
}
