//go:build !unix

package cgroup

import "errors"

// errLocked is wrapped by the error of [Applier.Lock].
var errLocked = errors.New("another process holds it")

// Lock does nothing: there are no cgroups on this system.
func (a *Applier) Lock() (unlock func(), err error) { return func() {}, nil }
