//go:build !linux || !(amd64 || arm64)

package host

import (
	"context"
	"errors"

	"github.com/tetratelabs/wazero/api"
)

// checkWall returns the reason why there is no isolation by process on this system.
func checkWall() error { return errors.New("isolation by process needs Linux on amd64 or arm64") }

type remote struct{}

func (*remote) free() {}

func (*compiled) buildRemote(context.Context, []byte) error { return checkWall() }

func (*compiled) instantiateRemote(context.Context, *Instance) (api.Module, error) {
	return nil, checkWall()
}

func (*version) newSharedMemory(*Instance, uint64, uint64) error { return checkWall() }

type remoteInstance struct{}

func (*remoteInstance) alive() bool { return false }

func (*remoteInstance) copy(b []byte) []byte { return b }

func (*remoteInstance) getGlobals([]uint64) {}

func (*remoteInstance) setGlobals([]uint64) {}
