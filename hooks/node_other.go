//go:build !linux

package hooks

import (
	"errors"

	"github.com/kubewasm/kubewasm/codec/hookpb"
)

// device is for Linux, where runtimes take the numbers of devices.
func (n *node) device(string) (hookpb.Device, error) {
	return hookpb.Device{}, errors.ErrUnsupported
}
