package cgroup

import (
	"fmt"
	"time"
)

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
