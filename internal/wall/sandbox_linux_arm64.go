package wall

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

// allowedHere are the system calls that only this architecture has.
var allowedHere []uint32
