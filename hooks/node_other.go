//go:build !linux

package hooks

import (
	"errors"

	"github.com/kubewasm/kubewasm/codec/hookmsg"
)

// device is for Linux, where runtimes take the numbers of devices.
func (n *node) device(string) (hookmsg.Device, error) {
	return hookmsg.Device{}, errors.ErrUnsupported
}
