package cgroup

import (
	"syscall"
	"unsafe"
)

// elsewhere explains on systems other than Linux that there are no cgroups.
const elsewhere = ""

// The numbers of include/uapi/linux/prctl.h.
const (
	prSchedCore          = 62
	prSchedCoreGet       = 0
	prSchedCoreCreate    = 1
	prSchedCoreShareTo   = 2
	prSchedCoreShareFrom = 3
	schedCoreScopeThread = 0
)

// prctl is the kernel's core scheduling.
type prctl struct{}

func (prctl) call(command, thread int, cookie *uint64) error {
	_, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, prSchedCore, uintptr(command), uintptr(thread), schedCoreScopeThread, uintptr(unsafe.Pointer(cookie)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (p prctl) get(thread int) (cookie uint64, err error) {
	err = p.call(prSchedCoreGet, thread, &cookie)
	return cookie, err
}

func (p prctl) create() error              { return p.call(prSchedCoreCreate, 0, nil) }
func (p prctl) shareTo(thread int) error   { return p.call(prSchedCoreShareTo, thread, nil) }
func (p prctl) shareFrom(thread int) error { return p.call(prSchedCoreShareFrom, thread, nil) }
