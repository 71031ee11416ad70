package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// errEscapes is wrapped by errors about a cgroup whose path is not below the root, or not below
// that of its pod. Such a path is absolute, has a "..", or leads through a symbolic link.
var errEscapes = errors.New("not a path below the root")

// ClaimError reports a cgroup claimed for a pod or a container that is not the one created for it
// by the kubelet and the runtime.
type ClaimError struct {
	Pod hookmsg.PodMeta
	// Container is the zero value for the pod itself.
	Container hookmsg.ContainerMeta
	// Claimed is the claimed path. Want lists the valid paths, nil if the pod's UID or the
	// container's identifier cannot be part of a path.
	Claimed string
	Want    []string
}

func (e *ClaimError) Error() string {
	of := fmt.Sprintf("pod %s/%s with the UID %q", e.Pod.Namespace, e.Pod.Name, e.Pod.UID)
	if e.Container != (hookmsg.ContainerMeta{}) {
		of = fmt.Sprintf("container %s/%s/%s with the identifier %q", e.Pod.Namespace, e.Pod.Name, e.Container.Name, e.Container.ID)
	}
	if e.Want == nil {
		return fmt.Sprintf("cgroup %q of %s: %v", e.Claimed, of, errEscapes)
	}
	return fmt.Sprintf("cgroup %q of %s differs from its cgroup %s", e.Claimed, of, strings.Join(e.Want, " or "))
}

// Unwrap returns errEscapes.
func (e *ClaimError) Unwrap() error { return errEscapes }

// errUnsupported is wrapped by errors about a field that no file holds in this version of
// cgroups.
var errUnsupported = errors.New("no cgroup file holds it")

// FileError is a failure to open, read or write a cgroup file or directory. It wraps the
// kernel's answer:
//
//   - fs.ErrNotExist: the cgroup is gone, or the controller is missing.
//   - syscall.EINVAL: the kernel does not accept the value here.
//   - fs.ErrPermission (EACCES): a cpuset is beyond the parent's.
//   - syscall.EBUSY: a cpuset is below a child's, or a memory limit below the usage.
//   - syscall.ENOSPC: a cpuset would be empty.
//   - syscall.EROFS: the hierarchy is mounted for reading.
type FileError struct {
	// Cgroup is the cgroup of the target, and Field the fields held by the file.
	Cgroup string
	Field  hookmsg.Fields
	// Op is "open", "read" or "write".
	Op string
	// File is the path, relative to the root.
	File string
	// Value is the value that was not written.
	Value string
	// Bound is the file that bounds the value, with its text, such as
	// "cpu/pod/cpu.cfs_burst_us is 20000". It is empty if none was found.
	Bound string
	Err   error
}

func (e *FileError) Error() string {
	if e.Op == "write" {
		bound := ""
		if e.Bound != "" {
			bound = " (" + e.Bound + ")"
		}
		return fmt.Sprintf("write %q to %s: %v%s", e.Value, e.File, e.Err, bound)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.File, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }

// fieldError is an error of a field before any of its files is opened.
type fieldError struct {
	cgroup string
	field  hookmsg.Fields
	file   string // Of unified.
	err    error
}

func (e *fieldError) Error() string { return e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

// Causes of a refusal, each with a different reaction.
const (
	// causeOther is every other error. It is tried again, at growing intervals.
	causeOther = "other"
	// causeGone is a cgroup that does not exist, or no longer exists. Nothing is done until it
	// comes back.
	causeGone = "gone"
	// causeUnsupported is a file that a cgroup does not have: the kernel or the version of cgroups
	// has no such field, or the controller is off on cgroup v2. Retries fail until it is turned on.
	causeUnsupported = "unsupported"
	// causeBusy (EBUSY) is a parent's cpuset below its children's, or a limit below the usage: the
	// obstacle may disappear.
	causeBusy = "busy"
	// causeBeyondParent (EACCES) is a cpuset beyond the parent's: the parent may widen.
	causeBeyondParent = "beyond the parent"
	// causeInvalid (EINVAL) is a value that the kernel does not accept here: a quota on cgroup v1
	// beyond the parent's or below a child's, which may change.
	causeInvalid = "invalid"
	// causeReadOnly (EROFS) is a hierarchy that is mounted for reading: a container must be
	// privileged to write to it.
	causeReadOnly = "read-only"
	// causeForbidden (EPERM, or EACCES of a file outside of cpuset) is a lack of rights, or a rule
	// of a security module.
	causeForbidden = "forbidden"
	// causeEmpty (ENOSPC) is a cpuset that would leave processes no CPU. Retries fail.
	causeEmpty = "empty"
)

// Causes returns all results of [CauseOf].
func Causes() []string {
	return []string{causeOther, causeGone, causeUnsupported, causeBusy, causeBeyondParent, causeInvalid, causeReadOnly, causeForbidden, causeEmpty}
}

// CauseOf returns the cause of an error of [Applier.Apply], in a word or two:
//
//   - "gone": the cgroup does not exist.
//   - "unsupported": the kernel or its version of cgroups has no such file, or the
//     controller is off.
//   - "busy": a child or the usage is an obstacle.
//   - "beyond the parent": the parent's cpuset is narrower.
//   - "invalid": the kernel does not accept the value here.
//   - "read-only": the hierarchy is mounted for reading.
//   - "forbidden": the process lacks a right, or a security module refuses.
//   - "empty": processes would be left without a CPU.
//   - "other": any other error.
//
// Of joined errors, only one counts.
func CauseOf(err error) string {
	var file *FileError
	switch {
	case errors.Is(err, errUnsupported):
		return causeUnsupported
	case !errors.As(err, &file):
		return causeOther
	case gone(err) && file.Op != "read", errors.Is(err, syscall.ENODEV), errors.Is(err, fs.ErrClosed):
		// A file is read before it is written, so it existed.
		return causeGone
	case gone(err):
		return causeUnsupported
	case errors.Is(err, syscall.EBUSY):
		return causeBusy
	case errors.Is(err, syscall.EROFS):
		return causeReadOnly
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES) && !strings.HasPrefix(path.Base(file.File), "cpuset."):
		return causeForbidden
	case errors.Is(err, syscall.EACCES):
		return causeBeyondParent
	case errors.Is(err, syscall.EINVAL):
		return causeInvalid
	case errors.Is(err, syscall.ENOSPC):
		return causeEmpty
	}
	return causeOther
}

// gone reports whether a file or its cgroup does not exist: ENOENT, or ENODEV for one that was
// open.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) }
