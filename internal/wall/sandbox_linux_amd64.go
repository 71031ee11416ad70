package wall

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

// allowedHere are the system calls that only this architecture has: a thread sets its register for
// thread-local storage.
var allowedHere = []uint32{unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT}
