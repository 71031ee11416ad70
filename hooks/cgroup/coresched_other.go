//go:build !linux

package cgroup

import (
	"runtime"
	"syscall"
)

// elsewhere explains that there are no cgroups on this system.
const elsewhere = ": cgroups are a part of Linux, and this is " + runtime.GOOS

// prctl represents core scheduling, which only Linux has.
type prctl struct{}

func (prctl) get(int) (uint64, error) { return 0, syscall.ENOSYS }
func (prctl) create() error           { return syscall.ENOSYS }
func (prctl) shareTo(int) error       { return syscall.ENOSYS }
func (prctl) shareFrom(int) error     { return syscall.ENOSYS }
