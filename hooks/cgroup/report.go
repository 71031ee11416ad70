package cgroup

import (
	"fmt"
	"time"
)

// Report is the result of one pass over the cgroups.
type Report struct {
	// Files is the number of files that were compared.
	Files int
	// Changes are the writes, in order, or the writes omitted by a dry run.
	Changes []Change
	// Drifted are the changes that undo those of another writer. Repairs is the number of them that
	// were written, 0 for a dry run.
	Drifted []Change
	Repairs int
	// Contended are the files that are left to another writer from now on.
	Contended []Contended
	// Gone are the cgroups that do not exist.
	Gone []string
	// DryRun is set if the changes were not written.
	DryRun bool
	// Err joins the new errors. A refusal of a field is new until the kernel takes the
	// field, or refuses it for another cause.
	Err error
	// LeftToOthers is the number of files left to another writer for now. LeftRefused is the number
	// of files left alone because the kernel refused their values. Both count all cgroups.
	LeftToOthers, LeftRefused int
	// Took is the duration of the pass.
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

// Contended is a file that another writer keeps changing.
type Contended struct {
	Change
	// Repairs is the number of repairs until then, and For the time for which the file is left
	// alone.
	Repairs int
	For     time.Duration
}

func (c Contended) String() string {
	return fmt.Sprintf("%s of cgroup %q: another writer set %s to %s %d times; it is left alone for %s", c.Field, c.Cgroup, c.File, c.From, c.Repairs, c.For)
}
