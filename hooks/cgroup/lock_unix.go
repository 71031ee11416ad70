//go:build unix

package cgroup

import (
	"errors"
	"fmt"
	"syscall"
)

// errLocked is wrapped by the error of [Applier.Lock].
var errLocked = errors.New("another process holds it")

// Lock locks the hierarchy for this process until unlock is called or the process ends, since two
// processes that write different decisions would undo each other's work forever. It does not wait:
// it returns an error if another process has called Lock, on the node or in any of its containers.
func (a *Applier) Lock() (unlock func(), err error) {
	dir, err := a.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", a.path, err)
	}
	for {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errLocked
	}
	if err != nil {
		dir.Close()
		return nil, fmt.Errorf("lock %s: %w", a.path, err)
	}
	return func() { dir.Close() }, nil
}
