package hooks

import (
	"errors"
	"fmt"
)

// DecisionError says that a guest's decision is no use: malformed
// (hookpb.ErrMalformed), or with values that the kernel would not take.
type DecisionError struct {
	Plugin string
	Err    error
}

func (e *DecisionError) Error() string {
	return fmt.Sprintf("plugin %q: decision: %v", e.Plugin, e.Err)
}

func (e *DecisionError) Unwrap() error { return e.Err }

// ConflictError says that two plugins decide one field of one request
// differently.
type ConflictError struct {
	// Field is the name in hook.proto, with the key of a map:
	// "cpu_shares", "unified[io.weight]".
	Field string
	// Plugins are the earlier and the later plugin, Values what they decide.
	Plugins, Values [2]string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("plugins %q and %q decide %s differently: %s and %s", e.Plugins[0], e.Plugins[1], e.Field, e.Values[0], e.Values[1])
}

// OwnerError says that a field belongs to one plugin and another one claims it,
// in the configuration, or sets it, in a decision.
type OwnerError struct {
	// Field is the name in hook.proto, with the key of a map.
	Field string
	// Plugins are the owner, or the first of two, and the other one.
	Plugins [2]string
}

func (e *OwnerError) Error() string {
	return fmt.Sprintf("%s is owned by plugin %q and claimed by plugin %q", e.Field, e.Plugins[0], e.Plugins[1])
}

// ErrEscapes says that a cgroup's path is not one below the root: absolute, with
// "..", or through a symbolic link.
var ErrEscapes = errors.New("not a path below the root")

// ErrUnsupported says that no file of this version of cgroups holds a field.
var ErrUnsupported = errors.New("no cgroup file holds it")

// FileError says that a cgroup file or directory could not be opened, read or
// written. The kernel's answer is found by errors.Is: fs.ErrNotExist for a
// cgroup that is gone or a controller that is not there, syscall.EINVAL for a
// value that it does not take here, fs.ErrPermission (EACCES) for a cpuset
// beyond the parent's, syscall.EBUSY for one below a child's or a memory limit
// below the usage, syscall.ENOSPC for a cpuset that would be empty.
type FileError struct {
	// Op is "open", "read" or "write".
	Op string
	// File is the path, relative to the root.
	File string
	// Value is what was to be written.
	Value string
	Err   error
}

func (e *FileError) Error() string {
	if e.Op == "write" {
		return fmt.Sprintf("write %q to %s: %v", e.Value, e.File, e.Err)
	}
	return fmt.Sprintf("%s %s: %v", e.Op, e.File, e.Err)
}

func (e *FileError) Unwrap() error { return e.Err }
