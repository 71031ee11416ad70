//go:build !linux || !(amd64 || arm64)

package host

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero/api"
)

// checkWall returns the reason why there is no isolation by process on this system.
func checkWall() error { return errors.New("isolation by process needs Linux on amd64 or arm64") }

type domain struct{}

type remote struct{}

func (*remote) join() {}

func (*remote) free() {}

func (*Runtime) tryWall(context.Context) error { return checkWall() }

func (*compiled) buildRemote(context.Context, []byte) error { return checkWall() }

func (*compiled) instantiateRemote(context.Context, *Instance) (api.Module, error) {
	return nil, checkWall()
}

func (*version) newRemoteMemory(*Instance, uint64, uint64) error { return checkWall() }

type remoteInstance struct{ restored bool }

func (*remoteInstance) alive() bool { return false }

func (*remoteInstance) moves() bool { return false }

func (*remoteInstance) failure() error { return checkWall() }

func (*remoteInstance) space() []byte { return nil }

func (*remoteInstance) read(uint32, uint32) []byte { return nil }

func (*remoteInstance) write(uint32, []byte) {}

func (*remoteInstance) image([]uint64) []byte { return nil }

func (*remoteInstance) adopt(*snapshot) error { return checkWall() }

func (*remoteInstance) reset(*snapshot) bool { return false }
